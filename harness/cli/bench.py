"""The commands of `harness bench`, each made of its entry in `BENCHES` of benchmarks/, which measures."""

import importlib
import inspect
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from harness.benchmarks import BENCHES, Bench
from harness.cli import CommandGroup, OneCommand
from harness.cli.options import RESULTS, Device, Results, console, errors, option, say
from harness.errors import ExecutionError
from harness.machine.environment import resolve_device
from harness.report import screen

SUMMARY = "Measure the speed and memory of heads and whole steps, in turns with published implementations."
app = typer.Typer(cls=CommandGroup, no_args_is_help=True, add_completion=False, help=SUMMARY)


HEADS = "softmax, mosK, mfs, mfs-inputs, sigsoftmax, poster-softmax, poster-mos3; separated by commas."
FILES = "Write the raw numbers to this file; memory at ten times the tokens to FILE_n7000.json beside it."
OPTIONS = {
    "setting": option(str, "The sizes: ptb, wt2, gpt2-small, smollm2, llama-1b, llama-8b, or tiny for a quick trial."),
    "tokens": option(int | None, "The number of tokens, instead of the setting's.", min=1),
    "heads": option(str, HEADS),
    "impl": option(str, "ours-chunked, ours-stored, published, log-space, target-only, torch, liger, cce, or all."),
    "precision": option(str, "Of products: fp32, bf16, on a GPU also tf32; separated by commas."),
    "route": option(str, "Of float32 products on the CPU: default, onednn or both."),
    "backbone": option(str, "Of whole steps: transformer_encoder or lstm."),
    "backbones": option(str, "lstm, gru, transformer_encoder, gpt2, bilstm; separated by commas."),
    "contexts": option(str, "Context lengths in tokens, at least three; separated by commas."),
    "rounds": option(int, "The number of timed rounds, after one round of warm-up.", min=1),
    "threads": option(int, "The number of torch threads.", min=1),
    "device": Device,
    "compile_too": option(bool, "Also compile target-only with Inductor; seconds for each head.", "--compile"),
    "graph": option(bool, "Measure CUDA graphs, without the time of the host.", "--graph"),
    "strict": option(bool, "Stop when other programs use the machine.", "--strict"),
    "assert_targets": option(bool, "Exit with code 1 when a target is missed.", "--assert-targets"),
    "json_file": option(Path | None, FILES, "--json", metavar="FILE"),
    "save": option(bool, "Save the record in results/bench and write the tables again.", "--save"),
    "replace": option(bool, "With --save: also replace a fuller or quieter record.", "--replace"),
    "results": Results,
}
LISTED = ("heads", "impl", "precision", "backbones", "contexts")
AFTERWARDS = {"assert_targets": False, "json_file": None, "save": False, "replace": False, "results": RESULTS}


def _command(name: str, bench: Bench):
    """A command with the options of a benchmark: it measures, shows the tables, and saves them if asked to."""

    def command(**given) -> None:
        """Measure with the given options, show the tables, and write what is asked for."""
        from harness.benchmarks import tables

        module = importlib.import_module(f"harness.benchmarks.{bench.module}")
        after = {option: given.pop(option, default) for option, default in AFTERWARDS.items()}
        measured = module.measure(name, progress, **{option: _read(option, value) for option, value in given.items()})
        for part in tables.shown(measured):
            say(part) if isinstance(part, str) else console.print(_table(part))
        if after["json_file"] is not None:
            _write(measured, after["json_file"])
        for place in tables.keep(measured, after["results"], replace=after["replace"]) if after["save"] else ():
            say(f"written: {place}")
        if not all(each.holds for each in measured) or (after["assert_targets"] and _missed(measured)):
            raise typer.Exit(1)

    options = bench.options | {option: AFTERWARDS[option] for option in ("json_file", "save", "results")}
    command.__signature__ = inspect.Signature(
        inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=options[option], annotation=annotation)
        for option, annotation in OPTIONS.items()
        if option in options
    )
    return command


for _name, _bench in BENCHES.items():
    _example = f"Example: harness bench {_name} {_bench.example}"
    app.command(_name, help=_bench.summary, epilog=_example, cls=OneCommand)(_command(_name, _bench))


@app.command(epilog="Example: harness bench table", cls=OneCommand)
def table(results: Results = RESULTS) -> None:
    """Write results/tables/bench_<device>.md again from the records in results/bench."""
    from harness.benchmarks import tables

    for place in tables.write(results):
        say(f"written: {place}")


def progress(line: str) -> None:
    """Show what is measured now, on standard error."""
    errors.print(line)


def _table(rows: list[list[str]]) -> Table:
    """A table for the terminal; columns of numbers are aligned on the right."""
    names, *body = rows
    numbers = [name for at, name in enumerate(names) if all(row[at][0].isdigit() or row[at] == "-" for row in body)]
    return screen.grid(names, body, right=numbers)


def _read(option: str, value: Any) -> Any:
    """What the value of an option stands for. Raises ExecutionError."""
    if option == "device":
        return resolve_device(value.value)
    if option not in LISTED:
        return value
    parts = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if option != "contexts":
        return parts
    try:
        return tuple(map(int, parts))
    except ValueError:
        raise ExecutionError(f"--contexts {value}: expected whole numbers, separated by commas") from None


def _write(measured: list, place: Path) -> None:
    from harness.benchmarks.record import save

    for number, each in enumerate(measured):
        save(each, place.with_stem(f"{place.stem}_n{each.tokens}") if number else place)


def _missed(measured: list) -> bool:
    """Whether a target is missed. Raises ExecutionError if none applies."""
    from harness.benchmarks import tables

    targets = tables.target_rows(measured)
    if not targets:
        raise ExecutionError("no target applies to what was measured")
    return any(row[-1] == "no" for row in targets[1:])
