"""`harness run`, `plan` and `table`: what is done with a suite."""

import json
import shlex
from typing import Annotated

import typer

from harness import plan as planning
from harness.cli import screen
from harness.cli.options import (
    RESULTS,
    Address,
    CpusPerTrial,
    Data,
    Device,
    Executor,
    FailFast,
    Force,
    GpusPerTrial,
    Json,
    Keep,
    NoTracking,
    Only,
    Overwrite,
    Results,
    RetryFailed,
    RunDevice,
    RunExecutor,
    Set,
    SuitePath,
    console,
    errors,
    interruptible,
    say,
    say_files,
    warn,
)
from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError
from harness.execution.options import RunOptions, results_option
from harness.execution.planned import planned, with_memory
from harness.execution.progress.reporter import Reporter
from harness.execution.progress.short_table import short_table
from harness.execution.run_suite import all_ok, run_suite
from harness.execution.suite_times import reference, save_ratios, suite_times
from harness.machine.environment import resolve_device
from harness.plan.comparison import Shape
from harness.report import study
from harness.report.table.suite_table import Form


def run(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006 - typer copies it
    only: Only = [],  # noqa: B006
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    executor: RunExecutor = Executor.ray,
    address: Address = "local",
    device: RunDevice = Device.auto,
    gpus_per_trial: GpusPerTrial = None,
    cpus_per_trial: CpusPerTrial = None,
    retry_failed: RetryFailed = False,
    force: Force = False,
    keep: Keep = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="Other programs use this machine: mark the times as shared.")
    ] = False,
    fail_fast: FailFast = False,
    no_tracking: NoTracking = False,
    timing: Annotated[
        bool | None,
        typer.Option(
            "--timing/--no-timing",
            help="After training, time one model of each row alone: again, or not. Default: as the suite says, once.",
            show_default=False,
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Train the trials of a suite that have no record yet, and write its table."""
    options = RunOptions(
        overrides=tuple(overrides),
        only=tuple(only),
        executor=executor.value,
        address=address,
        device=device.value,
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus_per_trial,
        retry_failed=retry_failed,
        force=force,
        keep=keep,
        shared=shared,
        fail_fast=fail_fast,
        tracking=not no_tracking,
        timing=timing,
        overwrite=overwrite,
    )
    reporter = Reporter(console, errors)
    with interruptible():
        found = run_suite(suite, results=results, data=data, options=options, reporter=reporter)
    where, program = results_option(results), screen.command()
    if console.is_terminal:
        changes = [part for change in overrides for part in ("--set", change)]
        say(f"plots and page: {program} report {shlex.join([str(suite), *changes, *where])}")
    say(f"MLflow UI: {program} ui {shlex.join([found.suite.name, *where])}")
    raise typer.Exit(0 if all_ok(found, options.only) and not reporter.problems else 1)


def plan(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    memory: Annotated[
        bool, typer.Option("--memory", help="Compute the peak memory of a training step; some seconds for each model.")
    ] = False,
    time: Annotated[
        bool, typer.Option("--time", help="Time 20 training steps of each row: the minutes of a trial here.")
    ] = False,
    save: Annotated[
        bool, typer.Option("--save", help="With --time: write the file of ratios that `match: {time: ...}` reads.")
    ] = False,
    device: Annotated[
        Device, typer.Option(help="The device of --memory and --time; auto: a GPU if there is one.")
    ] = Device.auto,
    as_json: Json = False,
) -> None:
    """Show what would run: trial ids, parameter counts, and what is finished.

    Nothing is downloaded or trained, but by --time.
    """
    read = planning.load(suite, tuple(overrides), equal_time=not save)
    if save and not (time and not only and read.match is not None and read.match.time is not None):
        raise ExecutionError("--save belongs to --time without --only, and to a suite with `match: {time: HEAD}`")
    found = planned(read, results, tuple(only), warn, *results_option(results))
    if memory:
        found = with_memory(found, resolve_device(device.value), warn)
    times = suite_times(found, data, resolve_device(device.value), warn) if time else None
    if save:
        save_ratios(read, times, resolve_device(device.value))
    if as_json:
        measured = {} if times is None else {"times": [row.as_json() for row in times]}
        print(json.dumps({**found.as_json(memory=memory), **measured}, indent=1))
        return
    if read.tuning is not None:
        console.print(screen.trials(found.tuning, title="stage 1: tuning"))
    console.print(screen.trials(found.trials, found.later, "stage 2: the table" if found.tuning else None))
    say(str(found))
    for sentence in found.outdated:
        say(sentence)
    if read.match is not None:
        say(f"{read.match.kind} matched: {read.match}")
    if memory:
        console.print(screen.step_memory(found.models, str(resolve_device(device.value))))
    if times is not None:
        matched = read.match is not None and read.match.time is not None and not save
        console.print(screen.times(times, reference(read), str(resolve_device(device.value)), matched=matched))
        minutes = sum(row.minutes_to_run for row in times)
        say(f"to run, one trial after the other: {screen.span(minutes)}")


def table(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    shape: Annotated[
        Shape | None, typer.Option(help="How rows are laid out; another shape than the suite's has its own files.")
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option(help="What is printed: by default a summary on a terminal, else md. All three are written."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write the table of a suite again from its records. With --only, print those rows only."""
    found = study.load(planning.load(suite, tuple(overrides)), results, warn=warn)
    short = form is None and shape is None and console.is_terminal
    if short:
        console.print(short_table(found.summary(only), console.width))
    else:
        say(found.table(form or "md", shape, only))
    files = found.write_table(overwrite, shape)
    if form in (None, "md"):  # the other forms are for programs, which read only the table
        say_files("table", files)
