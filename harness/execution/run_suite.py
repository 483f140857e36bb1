"""Run a suite: train what has no record yet, time the rows, write the table. `harness run` and notebooks call this.

import harness

study = harness.run_suite("suites/quickstart.yaml")
study.frame()         # one line for each trial, as a pandas DataFrame
print(study.table())
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness import plan
from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError, FewerTrialsError, Interruption, StorageError
from harness.execution import smaller_table
from harness.execution.driver import run_trials
from harness.execution.exclusive_pass import time_rows
from harness.execution.options import RunOptions
from harness.execution.progress.reporter import Reporter
from harness.execution.stage import Stage, pending, report
from harness.execution.tuning_stage import tune
from harness.plan.loaded_suite import Suite
from harness.plan.reader import RESULTS
from harness.plan.selection import chosen_rows, chosen_trials
from harness.printable import counted
from harness.records import choices
from harness.records.record import TrialRecord
from harness.report import study
from harness.report.evidence import printed_numbers
from harness.report.evidence.printed_numbers import PrintedNumbers
from harness.report.study import Study
from harness.tracking.description import description
from harness.tracking.safe_tracker import SafeTracker


def run_suite(
    suite: str | Path | Suite,
    *,
    results: str | Path | None = None,
    data: str | Path | None = None,
    options: RunOptions | None = None,
    reporter: Reporter | None = None,
    **changes,
) -> Study:
    """Train the trials of a suite that have no record yet, time its rows, and write its table.

    Calling it again continues interrupted trials and trains nothing twice. A trial that fails has a record with its
    status and message, and the other trials run. What is wrong with the outcome is in `reporter.problems`.

    Args:
        suite: the path of a suite file, the name of one in ./suites, or a suite that was loaded with
            harness.plan.load.
        results: folder of records, tables and mlflow.db; None: the variable HARNESS_RESULTS, or 'results'.
        data: folder of the corpora's files; None: the variable HARNESS_DATA, or the default folder.
        options: the options of `harness run`.
        reporter: where sentences and progress are shown; None: standard output and standard error.
        changes: single fields of RunOptions, for example executor='inline'.
    Returns: the study of the whole suite.
    Raises: SuiteError when the suite is wrong; ExecutionError, CorpusError or StorageError when no trial can start;
        FewerTrialsError when the table that is there would not be replaced even if all trials succeed;
        Interruption, a KeyboardInterrupt, after the table of the finished trials is written.
    """
    options = replace(options or RunOptions(), **changes)
    folders = _results(results), Path(data or os.environ.get("HARNESS_DATA") or DEFAULT_DATA)
    run = _prepare(_loaded(suite, options.overrides), *folders, options, reporter or Reporter())
    smaller_table.refuse(run)
    tracking = SafeTracker(run.results if options.tracking else None, run.reporter.warn)
    run = _tuned(run, tracking)
    before = run.study()
    found = pending(run, before.records)
    report(run, found)
    view = run.reporter.progress(todo := found.todo)
    try:
        finished = run_trials(run.execution(todo, fresh=options.force), view, tracking) if todo else {}
        timed = _time(run, {**before.records, **finished})
    except KeyboardInterrupt as stop:
        raise _interruption(run) from stop
    changed = bool(todo or timed)
    after = run.study() if changed else before
    _publish(run, after, tracking if changed else None)
    run.reporter.totals(view)
    return after


def load_study(suite: str | Path | Suite, *, results: str | Path | None = None, overrides: Iterable[str] = ()) -> Study:
    """Read the records of a suite; nothing is trained or written.

    Args:
        suite: as for run_suite.
        results: as for run_suite.
        overrides: changes of the suite as of --set, for example ['train.epochs=2'].
    Raises: SuiteError when the suite is wrong.
    """
    return study.load(_loaded(suite, tuple(overrides)), _results(results), warn=Reporter().warn)


def all_ok(found: Study, only: tuple[str, ...] = ()) -> bool:
    """Whether every trial of the study, or every one that `only` selects, has a record with the status 'ok'.

    Of a suite with `tune`, a point must be chosen for each of these rows. A tuning trial may diverge, and not fail in
    another way.
    """
    suite, records = found.suite, found.records
    return _all_tuned(found, only) and all(
        spec.id in records and records[spec.id].status == "ok" for spec in chosen_trials(suite, only)
    )


def _all_tuned(found: Study, only: tuple[str, ...]) -> bool:
    tuning, records = found.suite.tuning, found.evidence.tuning
    rows = [] if tuning is None else chosen_rows(found.suite, only)
    statuses = {
        records[spec.id].status for row in rows for spec in tuning.rows[row].tuning_trials if spec.id in records
    }
    return all(tuning.of_table(row) for row in rows) and statuses <= set(choices.EXPECTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run(Stage):
    """One call of run_suite: the stage of the suite's table.

    Args:
        printed: the printed numbers of the suite.
    """

    printed: PrintedNumbers

    def study(self) -> Study:
        """Read the records as they are now."""
        return study.load(self.suite, self.results, warn=self.reporter.warn, printed=self.printed)


def _loaded(suite: str | Path | Suite, overrides: tuple[str, ...]) -> Suite:
    if not isinstance(suite, Suite):
        return plan.load(suite, tuple(overrides))
    if overrides:
        raise ExecutionError("overrides cannot be applied to a loaded suite: give them to harness.plan.load")
    return suite


def _results(given: str | Path | None) -> Path:
    return Path(given or os.environ.get("HARNESS_RESULTS") or RESULTS)


def _prepare(suite: Suite, results: Path, data: Path, options: RunOptions, reporter: Reporter) -> _Run:
    return _Run(
        suite=suite,
        trials=chosen_trials(suite, tuple(options.only)),
        printed=printed_numbers.load(suite),
        results=results,
        data=data,
        options=options,
        reporter=reporter,
    )


def _tuned(run: _Run, tracking: SafeTracker) -> _Run:
    """The run with the trials of the suite's table, after the tuning trials of a suite with `tune` were run."""
    if run.suite.tuning is None:
        return run
    try:
        goes_on = tune(run, tracking)
    except KeyboardInterrupt as stop:
        raise _interruption(run) from stop
    suite = choices.completed(run.suite, run.results, run.reporter.warn)
    return replace(run, suite=suite, trials=chosen_trials(suite, tuple(run.options.only)) if goes_on else ())


def _time(run: _Run, records: Mapping[str, TrialRecord]) -> bool:
    """Time the rows if the options or the suite ask for it; True when rows were timed."""
    options = run.options
    if not run.trials or not (run.suite.measure.exclusive if options.timing is None else options.timing):
        return False
    execution = run.execution(run.trials, fresh=options.force or bool(options.timing))
    return time_rows(execution, records, run.reporter)


def _publish(run: _Run, found: Study, tracking: SafeTracker | None) -> None:
    """Show and write the table, and describe the suite in MLflow."""
    run.reporter.table(found)
    if not found.rows:
        return  # no row is tuned yet
    run.reporter.found(found)
    if _write(run, found, run.reporter.table_files) and tracking is not None:
        name = run.suite.name
        tracking.call(lambda tracker: tracker.catch_up(name, found.records.values()))
        tracking.call(lambda tracker: tracker.describe(name, description(name, run.results)))


def _write(run: _Run, found: Study, on_files: Callable[[list[Path]], None]) -> bool:
    """Write the table. Files that are not replaced or cannot be written are problems; False in the second case.

    Args:
        on_files: called with the paths.
    """
    try:
        on_files(found.write_table(run.options.overwrite))
    except FewerTrialsError as kept:
        run.reporter.problem(str(kept))
    except StorageError as fault:
        run.reporter.problem(str(fault))
        return False
    return True


def _interruption(run: _Run) -> Interruption:
    """Write the table of the finished trials, without showing it. Returns what says how to go on."""
    found, again = run.study(), "start the same command again to go on"
    if run.suite.tuning is not None and not run.trials:
        return Interruption(f"interrupted while tuning: finished trials are kept; {again}")
    files: list[Path] = []
    if found.records:
        _write(run, found, files.extend)
    ids = {spec.id for spec in run.trials}
    saved = [f"{len(ids & found.records.keys())} of {counted(len(ids), 'trial')} finished"]
    if begun := len(ids & set(found.evidence.interrupted)):
        saved.append(f"{begun} with a checkpoint")
    saved += [f"table: {files[0]}"] if files else []
    return Interruption(f"interrupted: {', '.join(saved)}; {again}")
