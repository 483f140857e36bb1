"""`harness plan`: what a suite would run."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from harness import plan as planning
from harness.cli import plan_tables, screen
from harness.cli.options import (
    RESULTS,
    Data,
    Device,
    Json,
    Only,
    Results,
    Set,
    SuitePath,
    console,
    say,
    warn,
)
from harness.corpora.download import DEFAULT_DATA
from harness.execution.options import RunOptions, repeated
from harness.execution.planned import PlannedSuite, planned, suite_disk, with_memory
from harness.execution.timed import RowTime, match_text, reference, suite_times
from harness.machine.environment import resolve_device
from harness.plan.loaded_suite import possible_trials

WORKER_SECONDS = 5  # of a CPU, to start one under Ray (docs/cluster.md)


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
        bool, typer.Option("--time", help="Time some training steps of each row: the minutes of a trial here.")
    ] = False,
    device: Annotated[
        Device, typer.Option(help="The device of --memory and --time; auto: a GPU if there is one.")
    ] = Device.auto,
    as_json: Json = False,
) -> None:
    """Show what would run: trial ids, parameter counts, and what is finished.

    Nothing is downloaded or trained, but by --time.
    """
    read = planning.load(suite, tuple(overrides))
    found = planned(read, results, tuple(only), warn, *repeated(RunOptions(), results, data))
    measured = suite_times(found, data, resolve_device(device.value), warn) if time else None
    if memory:
        found = with_memory(found, resolve_device(device.value), warn)
    times = None if measured is None else measured.rows
    disk = suite_disk(found, results)
    if as_json:
        of_rows = {} if times is None else {"times": [row.as_json() for row in times]}
        print(json.dumps({**found.as_json(memory=memory), "disk": asdict(disk), **of_rows}, indent=1))
        return
    _show_trials(found)
    _say_all(plan_tables.disk(disk, str(results / "runs" / read.name)))
    _say_all(plan_tables.conditions(possible_trials(read), console.width if console.is_terminal else None))
    if memory:
        _show(plan_tables.step_memory(found.models, str(resolve_device(device.value))))
    if times is not None:
        matched = read.match is not None and read.match.time is not None
        _show(plan_tables.times(times, reference(read), str(resolve_device(device.value)), matched=matched))
        say(_minutes_to_run(times, tuned=read.tuning is not None))
        _say_all(_shorter_inline(times))
        if not only and (text := match_text(found.suite, measured, resolve_device(device.value))) is not None:
            say(f"for the same training time for every head, in the suite file:\n{text}")


def _show_trials(found: PlannedSuite) -> None:
    if found.suite.tuning is not None:
        _show(plan_tables.trials(found.tuning, title="stage 1: tuning"))
    _show(plan_tables.trials(found.trials, found.later, "stage 2: the table" if found.tuning else None))
    say(str(found))
    _say_all(found.outdated)
    if (match := found.suite.match) is not None:
        say(f"{match.kind} matched: {match}")


def _minutes_to_run(times: list[RowTime], *, tuned: bool) -> str:
    tuning = sum(row.minutes_to_tune for row in times)
    table = sum(row.minutes_to_run for row in times)
    stages = f" (stage 1, tuning: {screen.span(tuning)}; stage 2, the table: {screen.span(table)})" if tuned else ""
    return f"to run, one trial after the other: {screen.span(tuning + table)}{stages}"


def _shorter_inline(times: list[RowTime]) -> Iterable[str]:
    """A sentence if the trials to run take less time than Ray needs to start their workers."""
    trials = sum(len(row.to_tune) + len(row.to_run) for row in times)
    minutes = sum(row.minutes_to_tune + row.minutes_to_run for row in times)
    if all(row.time is not None for row in times) and 60 * minutes < WORKER_SECONDS * trials:
        yield (
            f"under Ray most of the CPU time would go into starting workers, some {WORKER_SECONDS} seconds for each "
            "trial: `harness run --executor inline` spares it, and runs one trial after the other"
        )


def _show(parts: Iterable[Text | Table]) -> None:
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text))


def _say_all(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        say(sentence)
