"""Run a suite: train what has no record yet, time the rows, write the table. `harness run` and notebooks call this.

import harness

study = harness.run_suite("suites/quickstart.yaml")
study.frame()         # one line for each trial, as a pandas DataFrame
print(study.table())
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from harness import plan
from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError, FewerTrialsError, StorageError
from harness.execution.driver import Execution, run_trials, tidy_finished, without_weights
from harness.execution.exclusive_pass import time_rows
from harness.execution.progress.reporter import Reporter
from harness.execution.resources import LOCAL, Resources
from harness.plan.specs import Suite, TrialSpec
from harness.records import store
from harness.records.record import TrialRecord
from harness.report import retraining, study
from harness.report.evidence import printed_numbers
from harness.report.evidence.printed_numbers import PrintedNumbers
from harness.report.study import Study
from harness.tracking.description import description
from harness.tracking.safe_tracker import SafeTracker
from harness.trial.setting import Setting

RESULTS = Path("results")
SHOWN = 5  # how many trials a warning names


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `harness run`.

    Args:
        overrides: changes of the suite as of --set, for example ('train.epochs=2',).
        only: conditions as of --only, for example ('head=mos,seed=1',); () runs all trials.
        executor: 'ray' runs several trials at the same time, 'inline' one after the other in this process.
        address: 'local', or the address of a Ray cluster.
        device: 'auto' uses a GPU if there is one.
        cpus_per_trial: CPU cores and torch threads of a trial; None: as the suite says.
        gpus_per_trial: GPUs of a trial, or a share of one; None: as the suite says.
        retry_failed: run failed trials again.
        force: run finished trials again.
        keep: use finished trials although their code has changed since.
        shared: other programs use this machine, so the times are marked as shared.
        fail_fast: stop at the first trial that fails.
        tracking: write to MLflow.
        timing: True: time the rows again; False: do not time them; None: as the suite says, once.
        overwrite: also replace a table that was made of more finished trials.
    """

    overrides: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    executor: Literal["ray", "inline"] = "ray"
    address: str = LOCAL
    device: Literal["auto", "cpu", "cuda"] = "auto"
    cpus_per_trial: int | None = None
    gpus_per_trial: float | None = None
    retry_failed: bool = False
    force: bool = False
    keep: bool = False
    shared: bool = False
    fail_fast: bool = False
    tracking: bool = True
    timing: bool | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.force and self.keep:
            raise ExecutionError("--force trains finished trials again and --keep keeps them: use only one of the two")


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
        suite: the path of a suite file, or a suite that was loaded with harness.plan.load.
        results: folder of records, tables and mlflow.db; None: the variable HARNESS_RESULTS, or 'results'.
        data: folder of the corpora's files; None: the variable HARNESS_DATA, or the default folder.
        options: the options of `harness run`.
        reporter: where sentences and progress are shown; None: standard output and standard error.
        changes: single fields of RunOptions, for example executor='inline'.
    Returns: the study of the whole suite.
    Raises: SuiteError when the suite is wrong; ExecutionError, CorpusError or StorageError when no trial can start;
        KeyboardInterrupt, after the table of the finished trials is written.
    """
    options = replace(options or RunOptions(), **changes)
    run = _prepare(_loaded(suite, options.overrides), _results(results), options, reporter or Reporter())
    before = run.study()
    todo = _pending(run, before.records)
    execution = _execution(run, todo, Path(data or os.environ.get("HARNESS_DATA") or DEFAULT_DATA))
    tracking = SafeTracker(run.results if options.tracking else None, run.reporter.warn)
    view = run.reporter.progress(todo)
    try:
        finished = run_trials(todo, execution, view, tracking) if todo else {}
        timed = _time(run, execution, {**before.records, **finished})
    except KeyboardInterrupt:
        _publish(run, run.study(), None)
        run.reporter.totals(view)
        raise
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
    """Whether every trial of the study, or every one that `only` selects, has a record with the status 'ok'."""
    records = found.records
    return all(spec.id in records and records[spec.id].status == "ok" for spec in plan.select(found.suite.trials, only))


def results_option(results: Path) -> list[str]:
    """The option that names the results folder in a command; nothing for the default folder."""
    return [] if results == RESULTS else ["--results", str(results)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One call of run_suite.

    Args:
        trials: those that the options select.
        printed: the printed numbers of the suite.
    """

    suite: Suite
    trials: tuple[TrialSpec, ...]
    printed: PrintedNumbers
    results: Path
    options: RunOptions
    reporter: Reporter

    @property
    def runs(self) -> Path:
        return store.runs_folder(self.results, self.suite.name)

    def study(self) -> Study:
        """Read the records as they are now."""
        return study.load(self.suite, self.results, warn=self.reporter.warn, printed=self.printed)


def _loaded(suite: str | Path | Suite, overrides: tuple[str, ...]) -> Suite:
    if not isinstance(suite, Suite):
        return plan.load(Path(suite), tuple(overrides))
    if overrides:
        raise ExecutionError("overrides cannot be applied to a loaded suite: give them to harness.plan.load")
    return suite


def _results(given: str | Path | None) -> Path:
    return Path(given or os.environ.get("HARNESS_RESULTS") or RESULTS)


def _prepare(suite: Suite, results: Path, options: RunOptions, reporter: Reporter) -> _Run:
    printed = printed_numbers.load(suite)
    trials = plan.select(suite.trials, tuple(options.only))
    return _Run(suite=suite, trials=trials, printed=printed, results=results, options=options, reporter=reporter)


def _pending(run: _Run, records: Mapping[str, TrialRecord]) -> list[TrialSpec]:
    """The trials to run. Reports what is wrong with those that are finished, and removes their temporary files."""
    options, ids = run.options, [spec.id for spec in run.trials]
    found = {trial: records[trial] for trial in ids if trial in records}
    outdated = []
    if not (options.force or options.keep):
        outdated = retraining.sentences(run.suite, run.trials, found, *results_option(run.results))
    for sentence in outdated:
        run.reporter.problem(sentence)
    todo = store.pending(run.trials, found, retry_failed=options.retry_failed, force=options.force)
    finished = {trial: found[trial] for trial in found.keys() - {spec.id for spec in todo}}
    tidy_finished(run.runs, finished)
    if lost := without_weights(run.runs, finished):
        run.reporter.warn(_lost_weights(lost))
    if not todo:
        what = "nothing else to run" if outdated else "nothing to run"
        run.reporter.say(f"{what}: all {len(ids)} trials have a record")
    if failed := sum(record.status != "ok" for record in finished.values()):
        run.reporter.say(f"failed: {failed} of these trials; --retry-failed runs them again")
    return todo


def _lost_weights(trials: list[str]) -> str:
    more = f" and {len(trials) - SHOWN} more" if len(trials) > SHOWN else ""
    which = f"{len(trials)} finished trial{'s' * (len(trials) > 1)} ({', '.join(trials[:SHOWN])}{more})"
    return (
        f"the weights, best.pt, are missing or damaged of {which}. Records and tables do not need them; "
        "inspect, sample and exclusive times do. --force with --only trains such a trial again"
    )


def _execution(run: _Run, todo: list[TrialSpec], data: Path) -> Execution:
    suite, options = run.suite, run.options
    gpus = suite.resources.gpus if options.gpus_per_trial is None else options.gpus_per_trial
    setting = Setting(
        suite=suite.name,
        runs=run.runs,
        data=data.resolve(),
        device="cuda" if options.gpus_per_trial and options.device == "auto" else options.device,
        executor=options.executor,
        shared=options.shared,
        checkpoint=suite.checkpoint,
        timeout=suite.timeout,
        measure=suite.measure,
        memory_gib=suite.resources.memory_gib,
        fresh=options.force,
        replaces=store.digests(run.runs, [spec.id for spec in todo]),  # also of records that do not fit the suite
        contents=suite.contents,
    )
    return Execution(
        setting=setting,
        resources=Resources(cpus=options.cpus_per_trial or suite.resources.cpus, gpus=gpus),
        address=options.address,
        fail_fast=options.fail_fast,
    )


def _time(run: _Run, execution: Execution, records: Mapping[str, TrialRecord]) -> bool:
    """Time the rows if the options or the suite ask for it; True when rows were timed."""
    options = run.options
    if not (run.suite.measure.exclusive if options.timing is None else options.timing):
        return False
    setting = replace(execution.setting, fresh=options.force or bool(options.timing))
    return time_rows(run.trials, replace(execution, setting=setting), records, run.reporter)


def _publish(run: _Run, found: Study, tracking: SafeTracker | None) -> None:
    """Show and write the table, and describe the suite in MLflow. Files that cannot be written are problems."""
    run.reporter.say(found.table())
    try:
        table, *others = found.write_table(run.options.overwrite)
        run.reporter.say(f"table: {', '.join([str(table), *(path.suffix for path in others)])}")
    except StorageError as fault:
        run.reporter.problem(str(fault))
        return
    except FewerTrialsError as kept:
        run.reporter.problem(str(kept))
    if tracking is not None:
        name = run.suite.name
        tracking.call(lambda tracker: tracker.catch_up(name, found.records.values()))
        tracking.call(lambda tracker: tracker.describe(name, description(name, run.results)))
