"""`harness diagnose`: what the trained heads of a suite can express."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from harness import plan as planning
from harness.cli.options import (
    RESULTS,
    Data,
    Device,
    Interrupted,
    Json,
    Only,
    Overwrite,
    Results,
    RunDevice,
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
from harness.execution.live import short_table
from harness.machine.environment import resolve_device
from harness.plan.reader import shown
from harness.plan.selection import chosen_trials
from harness.printable import counted, printable
from harness.records import store

if TYPE_CHECKING:
    from harness.diagnostics.diagnosing import Outcome, Watch
    from harness.report.diagnosed import Diagnosed
    from harness.report.study import Study

MAX_NAMED = 3  # trials that a warning names


def diagnose(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    diagnostic: Annotated[
        list[str],
        typer.Option(
            "--diagnostic",
            metavar="NAME",
            help="Only this one: spectrum, gates, gradients, jacobian, calibration, word_pairs, unargmaxable. "
            "Repeatable.",
        ),
    ] = [],  # noqa: B006
    contexts: Annotated[int, typer.Option(min=2, help="How many positions of the validation split are used.")] = 10_000,
    device: RunDevice = Device.auto,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
    overwrite: Overwrite = False,
) -> None:
    """Compute what the trained heads of a suite can express: singular values, gates, gradients, calibration.

    The results are stored beside the records, so nothing is computed twice; tables and plots are written.
    """
    from harness.diagnostics import catalogue, diagnosing
    from harness.diagnostics.diagnostic import Settings
    from harness.report import diagnosed, study
    from harness.report.diagnosed import gathered

    chosen, settings = catalogue.chosen(tuple(diagnostic)), Settings(contexts=contexts)
    found = study.load(planning.load(suite, tuple(overrides)), results, warn=warn)
    wanted = {trial.id for trial in chosen_trials(found.suite, tuple(only))}
    records = [record for trial, record in found.records.items() if trial in wanted and record.status == "ok"]
    if not records:
        raise ExecutionError(f"no trial of these is finished; `harness run {shown(found.suite.path)}` trains them")
    request = diagnosing.Request(
        runs=store.runs_folder(results, found.suite.name),
        diagnostics=chosen,
        settings=settings,
        data=data,
        device=resolve_device(device.value),
    )
    with _progress() as watch:
        outcome = diagnosing.diagnose(request, records, watch)
    _say_problems(outcome, found)
    stored = gathered(found.evidence, chosen, lambda each: settings.model_dump(include=set(each.settings)))
    if not any(of.stored for of in stored):
        raise ExecutionError(f"there is no result of {found.suite.name} to show")
    files = diagnosed.write(found.evidence, stored, results, overwrite=overwrite)
    if as_json:
        print(json.dumps(_as_json(found, stored, wanted), indent=1))
    else:
        say(f"{counted(outcome.computed, 'result')} computed, {outcome.known} known already")
        for of in stored:
            if of.results:
                _show(found, of)
                say_files("table", files[of.diagnostic.name])
            else:
                reasons = dict.fromkeys(each.refused for each in of.stored.values())
                say(f"{of.diagnostic.name}: no trial has a result: {'; '.join(reasons)}")
    if outcome.failed:
        raise typer.Exit(1)


@contextmanager
def _progress() -> "Iterator[Watch]":
    """A progress bar on standard error, if that is a terminal, and the function that moves it. Ctrl-C leaves with a
    sentence.
    """
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal, refresh_per_second=2)
    task = bar.add_task("", total=None)

    def watch(done: int, total: int, what: str) -> None:
        bar.update(task, completed=done, total=total, description=printable(what))

    try:
        with bar:
            yield watch
    except KeyboardInterrupt as stop:
        done = int(bar.tasks[0].completed)
        raise Interrupted(f"interrupted: {counted(done, 'new result')} stored; the same command goes on") from stop


def _say_problems(outcome: "Outcome", found: "Study") -> None:
    """A sentence on the trials without weights, and one for each failure."""
    for failure in outcome.failed:
        warn(failure)
    if trials := outcome.without_weights:
        more = f" and {len(trials) - MAX_NAMED} more" if len(trials) > MAX_NAMED else ""
        warn(
            f"{counted(len(trials), 'trial')} of {found.suite.name} without weights: imported, or removed "
            f"({', '.join(trials[:MAX_NAMED])}{more}); `harness run {shown(found.suite.path)} --force` trains again"
        )


def _show(found: "Study", of: "Diagnosed") -> None:
    """The table of a diagnostic: on a terminal the few columns that fit, else all as markdown."""
    from harness.report import diagnosed, table_forms

    if console.is_terminal:
        console.print(short_table(diagnosed.summary(found.evidence, of), console.width))
    else:
        say(table_forms.markdown(diagnosed.build(found.evidence, of)))


def _as_json(found: "Study", stored: "list[Diagnosed]", wanted: set[str]) -> dict[str, object]:
    trials = [trial for trial in found.suite.trials if trial.id in wanted]
    return {
        "suite": found.suite.name,
        "trials": [
            {
                "id": trial.id,
                "head": str(trial.head),
                "seed": trial.seed,
                "diagnostics": {
                    of.diagnostic.name: of.stored[trial.id].model_dump(mode="json")
                    for of in stored
                    if trial.id in of.stored
                },
            }
            for trial in trials
        ],
    }
