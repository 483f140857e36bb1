"""The commands of `harness bench`. What they measure lies in benchmarks/."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import bench_ours
from harness.cli.bench_ours import Rounds, Save, SettingName, Threads, listed, progress
from harness.cli.lazy import CommandGroup, OneCommand
from harness.cli.options import RESULTS, Device, Results, console, say
from harness.errors import ExecutionError
from harness.machine.environment import resolve_device

if TYPE_CHECKING:
    from harness.benchmarks.measurement import Kind, Measurement
    from harness.benchmarks.speed import Comparison

SUMMARY = "Measure the speed and memory of heads and whole steps, in turns with published implementations."
app = typer.Typer(cls=CommandGroup, no_args_is_help=True, add_completion=False, help=SUMMARY)
_command = partial(app.command, cls=OneCommand)

Tokens = Annotated[int | None, typer.Option(min=1, help="The number of tokens, instead of the setting's.")]
Heads = Annotated[
    str,
    typer.Option(help="softmax, mosK, mfs, mfs-inputs, sigsoftmax, poster-softmax, poster-mos3; separated by commas."),
]
Impl = Annotated[
    str,
    typer.Option(help="Baselines: published, log-space, target-only, torch, liger, cce, or all."),
]
Precision = Annotated[str, typer.Option(help="Of products: fp32, bf16, on a GPU also tf32; separated by commas.")]
RouteName = Annotated[str, typer.Option("--route", help="Of float32 products on the CPU: default, onednn or both.")]
BackboneName = Annotated[str, typer.Option("--backbone", help="Of whole steps: transformer_encoder or lstm.")]
Compile = Annotated[
    bool, typer.Option("--compile", help="Also compile target-only with Inductor; seconds for each head.")
]
Graph = Annotated[bool, typer.Option("--graph", help="Measure CUDA graphs, without the time of the host.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop when other programs use the machine.")]
AssertTargets = Annotated[bool, typer.Option("--assert-targets", help="Exit with code 1 when a target is missed.")]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the raw numbers to this file.")]
JsonFiles = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write the raw numbers to this file, and those at ten times the tokens to FILE_n7000.json beside it.",
    ),
]
Replace = Annotated[bool, typer.Option("--replace", help="With --save: also replace a fuller or quieter record.")]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """What the options of a benchmark say is measured."""

    setting: str
    tokens: int | None
    heads: str
    impl: str
    precision: str
    route: str
    threads: int
    device: Device
    rounds: int = 7
    compile_too: bool = False
    graph: bool = False
    backbone: str = "transformer_encoder"


def _timed(kind: "Kind", usual: str = "ptb", usual_tokens: int | None = None, usual_heads: str = ""):
    """The command of a kind of timed benchmark, with its default setting, tokens and heads."""

    def command(
        setting: SettingName = usual,
        tokens: Tokens = usual_tokens,
        heads: Heads = usual_heads,
        impl: Impl = "",
        precision: Precision = "fp32,bf16",
        route: RouteName = "both",
        backbone: BackboneName = "transformer_encoder",
        rounds: Rounds = 7,
        threads: Threads = 1,
        device: Device = Device.auto,
        compile_too: Compile = False,
        graph: Graph = False,
        strict: Strict = False,
        assert_targets: AssertTargets = False,
        json_file: JsonFile = None,
        save: Save = False,
        replace: Replace = False,
        results: Results = RESULTS,
    ) -> None:
        """Measure what the options name, show the times, and save them where `save` asks for it."""
        from harness.benchmarks import speed

        options = _Options(
            setting=setting, tokens=tokens, heads=heads, impl=impl, precision=precision, route=route, threads=threads,
            device=device, rounds=rounds, compile_too=compile_too, graph=graph, backbone=backbone,
        )  # fmt: skip
        if backbone != "transformer_encoder" and kind != "step":
            raise ExecutionError(f"--backbone {backbone}: only whole steps have a backbone (harness bench step)")
        compared = _comparison(options)
        _refuse_load(threads, strict)
        measured = speed.measure(kind, compared, progress)
        _refuse(measured.contended, strict)
        _show([measured], json_file, results if save else None, replace, assert_targets)

    return command


for _kind, _what in {
    "head": "Time the forward and backward pass of heads.",
    "step": "Time whole training steps: forward, loss, backward, clip, update.",
    "eval": "Time the forward pass of heads without gradients, as in evaluation.",
}.items():
    _command(_kind, help=_what, epilog=f"Example: harness bench {_kind} --heads softmax,mos10 --rounds 7")(
        _timed(_kind)
    )
_command(
    "inference",
    help="Time the forward pass with loss of a whole GPT-2 on 4 sequences of 200 tokens, as in the multi-facet poster.",
    epilog="Example: harness bench inference --impl published --precision fp32 --rounds 7",
)(_timed("inference", "gpt2-small", 800, "poster-softmax,poster-mos3,mfs-inputs"))


@_command(epilog="Example: harness bench memory --heads mos5,mos15 --impl published")
def memory(
    setting: SettingName = "ptb",
    tokens: Tokens = None,
    heads: Heads = "",
    impl: Impl = "",
    precision: Precision = "fp32,bf16",
    route: RouteName = "both",
    threads: Threads = 1,
    device: Device = Device.auto,
    assert_targets: AssertTargets = False,
    json_file: JsonFiles = None,
    save: Save = False,
    replace: Replace = False,
    results: Results = RESULTS,
) -> None:
    """Measure the peak extra memory of one step of a head, each in a new process.

    Without --tokens it is also measured at ten times the tokens.
    """
    from harness.benchmarks import memory as benchmark

    options = _Options(
        setting=setting, tokens=tokens, heads=heads, impl=impl, precision=precision, route=route, threads=threads,
        device=device,
    )  # fmt: skip
    compared = [_comparison(options)]
    if tokens is None and compared[0].device.type == "cpu":
        compared.append(_comparison(dataclasses.replace(options, tokens=10 * compared[0].setting.tokens)))
    measured = [benchmark.measure(each, progress) for each in compared]
    _show(measured, json_file, results if save else None, replace, assert_targets)


for _function, _example in bench_ours.EXAMPLES.items():
    _command(_function.__name__.replace("_", "-"), epilog=f"Example: harness bench {_example}")(_function)


@_command(epilog="Example: harness bench table")
def table(results: Results = RESULTS) -> None:
    """Write results/tables/bench_<device>.md again from the records in results/bench."""
    from harness.benchmarks import tables

    for place in tables.write(results):
        say(f"table: {place}")


def _comparison(options: _Options) -> "Comparison":
    """The comparison that the options describe. Raises ExecutionError when an option is wrong."""
    from harness.benchmarks.cells import checked_impls, checked_ways
    from harness.benchmarks.settings import component, setting_of
    from harness.benchmarks.speed import Comparison

    device = resolve_device(options.device.value)
    if options.graph and device.type != "cuda":
        raise ExecutionError("--graph: CUDA graphs need a GPU; leave out --graph")
    sizes = setting_of(options.setting, device, options.tokens, options.backbone)
    heads = listed(options.heads) or sizes.heads
    for name in heads:
        component(name)
    return Comparison(
        setting=sizes,
        device=device,
        heads=heads,
        impls=checked_impls(listed(options.impl), compile_too=options.compile_too),
        ways=checked_ways(listed(options.precision), options.route, device),
        graph=options.graph,
        rounds=options.rounds,
        threads=options.threads,
    )


def _refuse_load(threads: int, strict: bool) -> None:
    from harness.benchmarks.machine import high_load
    from harness.machine.environment import load_average

    _refuse(high_load(load_average(), threads), strict)


def _refuse(contended, strict: bool) -> None:
    if strict and contended:
        raise ExecutionError(f"--strict: the machine is contended: {'; '.join(contended)}")


def _show(
    measured: "list[Measurement]", json_file: Path | None, kept: Path | None, replace: bool, assert_targets: bool
) -> None:
    from harness.benchmarks import tables
    from harness.benchmarks.measurement import save

    for each in measured:
        say(tables.title(each))
        console.print(tables.screen(tables.rows(each)))
        for line in (*tables.derived(each), tables.provenance(each)):
            say(line)
    aims = tables.target_rows(measured)
    if len(aims) > 1:
        console.print(tables.screen(aims, texts=3))
    if json_file is not None:
        for number, each in enumerate(measured):
            save(each, json_file.with_stem(f"{json_file.stem}_n{each.tokens}") if number else json_file)
    if kept is not None:
        _keep(measured, kept, replace)
    if assert_targets and len(aims) == 1:
        raise ExecutionError("no target applies to what was measured")
    if assert_targets and any(row[-1] == "no" for row in aims[1:]):
        raise typer.Exit(1)


def _keep(measured: "list[Measurement]", results: Path, replace: bool) -> None:
    """Save all of them or none. Raises ExecutionError when a saved record has more content, unless `replace`."""
    from harness.benchmarks import tables
    from harness.benchmarks.measurement import loses, save, slug

    places = [results / "bench" / slug(each.device) / each.file_name for each in measured]
    for each, place in zip(measured, places, strict=True):
        lost = "" if replace else loses(each, place)
        if lost:
            raise ExecutionError(f"--save: {lost}; nothing was saved; use --replace to save all the same")
    for each, place in zip(measured, places, strict=True):
        save(each, place)
    for table_file in tables.write(results):
        say(f"table: {table_file}")
