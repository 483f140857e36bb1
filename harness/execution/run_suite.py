"""Run a suite: train what has no record yet, time the rows, write the table. `harness run` and notebooks call this.

import harness

study = harness.run_suite("suites/quickstart.yaml")
study.frame()         # one line for each trial, as a pandas DataFrame
print(study.table())
"""

import os
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import plan
from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError, Interruption, StorageError
from harness.execution.executors import (
    Execution,
    Resources,
    RunOptions,
    check_folder,
    repeated,
    run_trials,
    tidy_finished,
)
from harness.execution.live import LiveView, Reporter
from harness.execution.timed import time_rows
from harness.extensions import provided
from harness.machine import locks
from harness.plan.reader import RESULTS
from harness.plan.selection import chosen_rows, chosen_trials, chosen_tuning
from harness.plan.specs import TrialSpec
from harness.plan.suite import Suite
from harness.plan.suite_file import MeasureSpec
from harness.plan.tuning import Choice, point_text
from harness.printable import counted
from harness.records import choices, store
from harness.records.choices import Records
from harness.records.record import MENDED, TrialRecord
from harness.report import printed_numbers, retraining, study
from harness.report.evidence import gather
from harness.report.printed_numbers import PrintedNumbers
from harness.report.study import Study
from harness.trial.task import Task

SHOWN = 5  # how many trials a warning names
ADVICE = {  # how trials ended that are not as they should be -> what helps
    "failed": "--retry-failed runs such trials again",
    "invalid": f"--retry-failed runs such a trial again, {MENDED} (harness docs certificates)",
    "diverged": "such trials need other settings, for example a lower learning rate",
    "not certified": "--retry-failed runs such trials again",
}


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

    Calling it again continues interrupted trials and trains nothing twice. A trial that fails has a record, too. What
    is wrong with the outcome is in `reporter.problems`.

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
        Interruption, a KeyboardInterrupt, after the table of the finished trials is written.
    """
    options = replace(options or RunOptions(), **changes)
    suite, results = _loaded(suite, options.overrides), _results(results)
    run = _Run(
        printed=printed_numbers.load(suite),
        results=results,
        data=Path(data or os.environ.get("HARNESS_DATA") or DEFAULT_DATA),
        options=options,
        reporter=reporter or Reporter(),
    )
    records = choices.read(suite, results, run.reporter.warn)
    tracker = provided("harness.tracking.sync:Tracker", None) if options.tracking else None
    tracking = tracker and tracker(results, run.reporter.warn)
    try:
        after, tried = _train(run, records, tracking)
        timed = _time(run, after)
    except KeyboardInterrupt as stop:
        raise _interruption(run, suite) from stop
    found = run.study(after)
    _publish(run, found, tracking if tried or timed else None)
    return found


def load_study(suite: str | Path | Suite, *, results: str | Path | None = None, overrides: Iterable[str] = ()) -> Study:
    """Read the records of a suite; nothing is trained or written.

    Args:
        overrides: changes of the suite as of --set, for example ['train.epochs=2'].
    Raises: SuiteError when the suite is wrong.
    """
    return study.load(_loaded(suite, tuple(overrides)), _results(results), warn=Reporter().warn)


def all_ok(found: Study, only: tuple[str, ...] = ()) -> bool:
    """Whether every trial of the study, or every one that `only` selects, has a record with the status 'ok'.

    Of a suite with `tune`, a point must be chosen for each of these rows. A tuning trial may diverge, and not fail in
    another way.
    """
    suite, records, tuned = found.suite, found.records, found.evidence.tuning
    all_chosen = all(row.trials for row in chosen_rows(suite, only))
    statuses = {tuned[spec.id].status for spec in chosen_tuning(suite, only) if spec.id in tuned}
    table = all(spec.id in records and records[spec.id].status == "ok" for spec in chosen_trials(suite, only))
    return all_chosen and table and statuses <= set(choices.EXPECTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    printed: PrintedNumbers
    results: Path
    data: Path
    options: RunOptions
    reporter: Reporter

    def study(self, records: Records) -> Study:
        return Study(evidence=gather(records, self.reporter.warn, self.printed), results=self.results)


def _loaded(suite: str | Path | Suite, overrides: tuple[str, ...]) -> Suite:
    if not isinstance(suite, Suite):
        return plan.load(suite, tuple(overrides))
    if overrides:
        raise ExecutionError("overrides cannot be applied to a loaded suite: give them to harness.plan.load")
    return suite


def _results(given: str | Path | None) -> Path:
    return Path(given or os.environ.get("HARNESS_RESULTS") or RESULTS)


def due(records: Records, options: RunOptions, tried: Collection[str] = ()) -> list[TrialSpec]:
    """The selected trials that can run now: those that tuning asks for; the trials of the table when it asks for none.

    A trial runs if it has no record; with `retry_failed` also if it failed or has no certificate,
    with `force` in any case; and once: not if it is among the ids in `tried`.

    Raises: SuiteError for a wrong condition.
    """

    def again(trial: TrialSpec) -> bool:
        record = records.found.get(trial.id)
        if trial.id in tried:
            return False
        if options.force or record is None:
            return True
        return options.retry_failed and (record.status != "ok" or bool(record.uncertified))

    suite, asked = records.suite, []
    for row in chosen_rows(suite, options.only):
        trials = [trial for trial in row.tuning_trials if trial.id in records.tuning and not again(trial)]
        step = row.next({trial.id: choices.perplexity(records.tuning[trial.id]) for trial in trials})
        asked += [] if isinstance(step, Choice) else filter(again, step)
    return asked or [trial for trial in chosen_trials(suite, options.only) if again(trial)]


def _train(run: _Run, records: Records, tracking: Any) -> tuple[Records, set[str]]:
    """Run the trials that are due, until none is: first those that tuning asks for, then those of the table.

    Returns: the records as they are then, and the ids of the trials that were run.
    """
    options, reporter, tried = run.options, run.reporter, set()
    outdated = _report_outdated(run, records)
    rows = chosen_rows(records.suite, options.only)
    records = choices.keep(records, rows)
    todo = due(records, options)
    tidy_finished(records.runs, records.found.keys() - {spec.id for spec in todo})
    if todo:
        check_folder(records.runs, reporter.warn)
    while todo:
        if todo[0] in records.suite.tuning_trials:
            of_rows = counted(len(chosen_tuning(records.suite, options.only)), "trial")
            reporter.say(f"tuning: {len(todo)} of {of_rows} to run, then the trials of the table")
        for waiting in _held_elsewhere(records.runs, todo):
            reporter.say(waiting)
        with LiveView(todo, reporter.output, _names(records.suite)) as view:
            made = run_trials(_execution(run, records, todo, fresh=options.force), view, tracking)
        now = {spec.id for spec in todo}
        tried |= now
        records = choices.keep(records.having(made, now), rows)
        reporter.say(view.totals())
        stopped = options.fail_fast and len(made) < len(todo)
        todo = [] if stopped else due(records, options, tried)
    _report(run, records, tried, outdated=outdated)
    return records, tried


def _names(suite: Suite) -> Callable[[str, TrialSpec], str]:
    """What progress calls a trial's head, backbone or corpus: the head of a tuning trial has its point behind it."""
    tuning = {trial.id for trial in suite.tuning_trials}

    def name(kind: str, trial: TrialSpec) -> str:
        called = getattr(suite.row_of(trial), kind).name
        if kind == "head" and trial.id in tuning:
            return f"{called} ({point_text(suite.candidate_of(trial).point)})"
        return called

    return name


def _held_elsewhere(runs: Path, trials: Sequence[TrialSpec]) -> list[str]:
    """A sentence for each of some trials that another process is working on, which this command waits for."""
    places = {trial.id: store.lock_of(runs, trial.id) for trial in trials}
    held = [(trial, place) for trial, place in places.items() if locks.is_held(place)][:SHOWN]
    return [f"trial {trial} is waited for: its folder is {locks.held_by(place)}" for trial, place in held]


def _execution(run: _Run, records: Records, trials: Sequence[TrialSpec], *, fresh: bool) -> Execution:
    """How trials are executed, or timed. Tuning trials measure nothing in addition.

    Args:
        fresh: train them from the beginning, or time them although they have timings.
    """
    suite, options, runs = records.suite, run.options, records.runs
    gpus = suite.resources.gpus if options.gpus_per_trial is None else options.gpus_per_trial
    tuning = bool(trials) and trials[0] in suite.tuning_trials
    common = {
        "suite": suite.name,
        "runs": runs,
        "data": run.data.resolve(),
        "device": "cuda" if options.gpus_per_trial and options.device == "auto" else options.device,
        "executor": options.executor,
        "shared": options.shared,
        "checkpoint": suite.checkpoint,
        "timeout": suite.timeout,
        "measure": MeasureSpec(token_nll=False, exclusive=False) if tuning else suite.measure,
        "memory_gib": suite.resources.memory_gib,
        "fresh": fresh,
        "driver": uuid.uuid4().hex,
        "tuning": tuning,
    }
    replaced = {spec.id: store.digest(old) for spec in trials if (old := records.verified.get(spec.id)) is not None}
    return Execution(
        tasks=[
            Task(spec=spec, replaces=replaced.get(spec.id), contents=suite.contents_of(spec), **common)
            for spec in trials
        ],
        resources=Resources(cpus=options.cpus_per_trial or suite.resources.cpus, gpus=gpus),
        address=options.address,
        slurm=options.slurm,
        fail_fast=options.fail_fast,
    )


def _report_outdated(run: _Run, records: Records) -> bool:
    """Report the finished trials whose code has changed since; False if there are none, or they are run again."""
    suite, options = records.suite, run.options
    if options.force or options.keep:
        return False
    chosen = (*chosen_tuning(suite, options.only), *chosen_trials(suite, options.only))
    outdated = retraining.sentences(suite, chosen, records.found, *repeated(options, run.results, run.data))
    for sentence in outdated:
        run.reporter.problem(sentence)
    return bool(outdated)


def _report(run: _Run, records: Records, tried: set[str], *, outdated: bool) -> None:
    """Say what is missing of the trials that were finished before, and which of them failed; and of tuning trials,
    which have failed; and that there was nothing to run.
    """
    suite, reporter = records.suite, run.reporter
    tuning = [trial.id for trial in chosen_tuning(suite, run.options.only) if trial.id in records.tuning]
    ends = Counter(_end(records.tuning[trial]) for trial in tuning)
    for end in ("failed", "invalid"):
        if ends[end]:
            reporter.say(f"{end}: {ends[end]} of the tuning trials; {ADVICE[end]}")
    chosen = [spec.id for spec in chosen_trials(suite, run.options.only)]
    before = {trial: records.table[trial] for trial in chosen if trial in records.table and trial not in tried}
    if chosen and tried.isdisjoint(chosen):
        what = "nothing else to run" if outdated else "nothing to run"
        have = "the trial has" if len(chosen) == 1 else f"all {len(chosen)} trials have"
        reporter.say(f"{what}: {have} a record")
    ends = Counter(map(_end, before.values()))
    for end, advice in ADVICE.items():
        if ends[end]:
            reporter.say(f"{end}: {ends[end]} of these trials; {advice}")


def _end(record: TrialRecord) -> str:
    """How a trial ended: a key of ADVICE, or 'ok'."""
    if record.uncertified:
        return "not certified"
    return record.status if record.status in ("ok", "invalid", "diverged") else "failed"


def _time(run: _Run, records: Records) -> bool:
    """Time the rows if the options or the suite ask for it; True when rows were timed."""
    options, trials = run.options, chosen_trials(records.suite, run.options.only)
    if not trials or not (records.suite.measure.exclusive if options.timing is None else options.timing):
        return False
    execution = _execution(run, records, trials, fresh=options.force or bool(options.timing))
    return time_rows(execution, records.table, run.reporter)


def _publish(run: _Run, found: Study, tracking: Any) -> None:
    run.reporter.table(found.summary, found.table)
    if not found.rows:
        return  # no row is tuned yet
    files = _write(run, found) if found.records else []
    if files:
        run.reporter.table_files(files)
    if tracking is not None:
        tracking.show_suite(found.suite.name, found.records.values())


def _write(run: _Run, found: Study) -> list[Path]:
    """Write the table and return its paths. That it cannot be written is a problem; [] then."""
    try:
        return found.write_table()
    except StorageError as fault:
        run.reporter.problem(str(fault))
        return []


def _interruption(run: _Run, suite: Suite) -> Interruption:
    """Write the table of the finished trials, without showing it. Returns what says how to go on."""
    records = choices.read(suite, run.results, run.reporter.warn)  # of what ended before Ctrl-C nothing is in hand
    again = "start the same command again to go on"
    waiting = due(records, RunOptions(only=run.options.only))
    if waiting and waiting[0] in suite.tuning_trials:
        return Interruption(f"interrupted while tuning: finished trials are kept; {again}")
    found = run.study(records)
    files = []
    if found.records:
        files = _write(run, found)
    ids = {spec.id for spec in chosen_trials(records.suite, run.options.only)}
    saved = [f"{len(ids & found.records.keys())} of {counted(len(ids), 'trial')} finished"]
    if begun := len(ids & set(found.evidence.interrupted)):
        saved.append(f"{begun} with a checkpoint")
    saved += [f"table: {files[0]}"] if files else []
    return Interruption(f"interrupted: {', '.join(saved)}; {again}")
