"""`harness run`, `plan` and `table`: what is done with a suite."""

import json
import re
import shlex
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from harness import plan as planning
from harness.cli import plan_tables, screen
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
    say,
    say_files,
    warn,
)
from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError
from harness.execution.dry_run import dry_run
from harness.execution.options import RunOptions, results_option
from harness.execution.planned import PlannedSuite, planned, with_memory
from harness.execution.progress.reporter import Reporter
from harness.execution.run_suite import all_ok, run_suite
from harness.execution.suite_disk import suite_disk
from harness.execution.suite_times import reference, save_ratios, suite_times
from harness.machine.environment import resolve_device
from harness.plan.comparison import Shape
from harness.plan.two_stages import possible_trials
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
    dry: Annotated[
        bool,
        typer.Option("--dry-run", help="Train and evaluate one batch of every row in this process, and write nothing."),
    ] = False,
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
    if dry:
        read = planning.load(suite, tuple(overrides))
        raise typer.Exit(0 if dry_run(read, data=data, options=options, reporter=reporter) else 1)
    found = run_suite(suite, results=results, data=data, options=options, reporter=reporter)
    say(f"MLflow UI: {screen.command()} ui {shlex.join([found.suite.name, *results_option(results)])}")
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
    disk = suite_disk(found, results)
    if as_json:
        measured = {} if times is None else {"times": [row.as_json() for row in times]}
        print(json.dumps({**found.as_json(memory=memory), "disk": disk.as_json(), **measured}, indent=1))
        return
    _show_trials(found)
    _say_all(plan_tables.disk(disk, str(results / "runs" / read.name)))
    _say_all(plan_tables.conditions(possible_trials(read)))
    if memory:
        _show(plan_tables.step_memory(found.models, str(resolve_device(device.value))))
    if times is not None:
        matched = read.match is not None and read.match.time is not None and not save
        _show(plan_tables.times(times, reference(read), str(resolve_device(device.value)), matched=matched))
        minutes = sum(row.minutes_to_run for row in times)
        say(f"to run, one trial after the other: {screen.span(minutes)}")


def _show_trials(found: PlannedSuite) -> None:
    if found.suite.tuning is not None:
        _show(plan_tables.trials(found.tuning, title="stage 1: tuning"))
    _show(plan_tables.trials(found.trials, found.later, "stage 2: the table" if found.tuning else None))
    say(str(found))
    _say_all(found.outdated)
    if (match := found.suite.match) is not None:
        say(f"{match.kind} matched: {match}")


def _show(parts: Iterable[Text | Table]) -> None:
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text))


def _say_all(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        say(sentence)


def table(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    shape: Annotated[
        Shape | None, typer.Option(help="How rows are laid out; another shape than the suite's has its own files.")
    ] = None,
    form: Annotated[Form, typer.Option(help="What is printed; all three forms are written.")] = "md",
    columns: Annotated[
        str,
        typer.Option(
            metavar="NAME[,...]", help="Print these columns only: 'test ppl,vs,params', no space after a comma."
        ),
    ] = "",
    compact: Annotated[
        bool, typer.Option("--compact", help="Print a table for one column of a paper: few columns, no intervals.")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Write the table of a suite again from its records. With --only, print those rows only."""
    found = study.load(planning.load(suite, tuple(overrides)), results, warn=warn)
    names = [name for name in re.split(r",(?! )", columns) if name]  # a name may be 'test ppl, last epoch'
    say(found.table(form, shape, only, names, compact))
    files = found.write_table(overwrite, shape)
    if form == "md":  # the other forms are for programs, which read only the table
        say_files("table", files)
