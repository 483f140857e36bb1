"""The commands of `harness bench` that compare nothing of others: what they measure is saved in a table of its own.

`harness/cli/bench.py` adds them to the other commands.
"""

from typing import Annotated

import typer

from harness.cli.options import RESULTS, Device, Results, console, errors, say
from harness.errors import ExecutionError
from harness.machine.environment import resolve_device

SettingName = Annotated[str, typer.Option(help="The sizes: ptb, wt2, gpt2-small, or tiny for a quick trial.")]
Rounds = Annotated[int, typer.Option(min=1, help="The number of timed rounds, after one round of warm-up.")]
Threads = Annotated[int, typer.Option(min=1, help="The number of torch threads.")]
Save = Annotated[bool, typer.Option("--save", help="Save the record in results/bench and write the tables again.")]
Backbones = Annotated[str, typer.Option(help="lstm, gru, transformer_encoder, gpt2; separated by commas.")]
Lengths = Annotated[
    str, typer.Option("--contexts", help="Context lengths in tokens, at least three; separated by commas.")
]


def plan_memory(device: Device = Device.auto, save: Save = False, results: Results = RESULTS) -> None:
    """Compare the memory that `harness plan --memory` computes with measured steps in new processes."""
    from harness.benchmarks import plan_memory as benchmark
    from harness.benchmarks.tables import screen

    measured = benchmark.measure(resolve_device(device.value), progress)
    console.print(screen(benchmark.rows(measured)))
    for place in benchmark.save(measured, results) if save else ():
        say(f"written: {place}")
    raise typer.Exit(0 if measured.holds else 1)


def sample(rounds: Rounds = 5, save: Save = False, results: Results = RESULTS) -> None:
    """Measure the tokens a second that an LSTM and Transformers of equal size write, one text at a time, one thread."""
    from harness.benchmarks import decoding
    from harness.benchmarks.tables import screen

    measured = decoding.measure(rounds, progress)
    console.print(screen(decoding.rows(measured)))
    for flag in measured.contended:
        say(f"CONTENDED: {flag}")
    for place in decoding.save(measured, results) if save else ():
        say(f"written: {place}")


def extras(setting: SettingName = "ptb", rounds: Rounds = 15, save: Save = False, results: Results = RESULTS) -> None:
    """Measure what a logit map, the z-loss and statistics add to the plain pass, in processor time, on one thread."""
    from harness.benchmarks import extras as benchmark
    from harness.benchmarks.settings import setting_of
    from harness.benchmarks.tables import screen

    measured = benchmark.measure(setting_of(setting, resolve_device("cpu")), rounds, progress)
    console.print(screen(benchmark.rows(measured), texts=3))
    for flag in measured.contended:
        say(f"CONTENDED: {flag}")
    for place in benchmark.save(measured, results) if save else ():
        say(f"written: {place}")


def backbone(
    backbones: Backbones = "lstm,transformer_encoder,gpt2",
    contexts: Lengths = "32,64,128,256,512,1024,2048",
    rounds: Rounds = 7,
    threads: Threads = 1,
    device: Device = Device.auto,
    save: Save = False,
    results: Results = RESULTS,
) -> None:
    """Measure time and memory of a backbone's step by context length: where attention costs more than the rest."""
    from harness.benchmarks import backbone_costs, backbone_tables
    from harness.benchmarks.tables import screen

    measured = backbone_costs.measure(
        listed(backbones),
        _lengths(contexts),
        rounds=rounds,
        threads=threads,
        device=resolve_device(device.value),
        report=progress,
    )
    console.print(screen(backbone_tables.rows(measured), texts=0))
    console.print(screen(backbone_tables.fit_rows(measured), texts=1))
    for flag in measured.contended:
        say(f"CONTENDED: {flag}")
    for place in backbone_tables.save(measured, results) if save else ():
        say(f"written: {place}")


EXAMPLES = {
    backbone: "backbone --contexts 64,256,1024 --save",
    plan_memory: "plan-memory --save",
    sample: "sample --save",
    extras: "extras --rounds 15 --save",
}


def listed(text: str) -> tuple[str, ...]:
    """The parts of a text that commas separate, each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def progress(line: str) -> None:
    """Show what is measured now, on standard error."""
    errors.print(line)


def _lengths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in listed(text))
    except ValueError:
        raise ExecutionError(f"--contexts {text}: expected whole numbers, separated by commas") from None
