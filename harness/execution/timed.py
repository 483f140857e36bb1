"""When rows are timed, and what follows: before a suite is run (`harness plan --time`), how long it would take and the
ratios for `match.time`; after it, one trial of each row, alone.
"""

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from harness.corpora.corpus import Corpus
from harness.errors import HarnessError
from harness.execution.executors import LOCAL, Execution, executor
from harness.execution.live import Reporter
from harness.execution.planned import PlannedSuite, PlannedTrial
from harness.kernels import products
from harness.machine import environment
from harness.model import LanguageModel
from harness.plan.expansion import row_name
from harness.plan.loaded_suite import Suite
from harness.plan.specs import TrialSpec
from harness.printable import counted, sentence
from harness.records import sidecars, store
from harness.records.record import TrialRecord
from harness.records.sidecars import Timing
from harness.training.evaluation import scored_segments
from harness.training.step import segments_of, steps_of
from harness.trial.behaviour import is_outdated
from harness.trial.setup import fetch_sources
from harness.trial.task import Task
from harness.trial.turns import BUSY_CORES, Taken, turns

LOCK = "timing"  # the name of the lock of a timing pass: two passes at the same time would slow each other down
LOCK_SECONDS = 10.0  # how long to wait for the lock of one trial
RATIO_DIGITS = 3  # significant ones

Key = tuple[str, str, str]  # corpus, backbone, head, without what is tuned
Row = tuple[str, str, str]  # corpus, backbone, head


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTime:
    """How long a model takes, by the medians of its timed batches.

    Args:
        train_ms: milliseconds of a training step; 0 for a model that is not trained.
        eval_ms: milliseconds of a batch of evaluation.
        steps: training steps of an epoch.
        valid_batches, test_batches: batches of an evaluation of these splits.
    """

    train_ms: float
    eval_ms: float
    steps: int
    valid_batches: int
    test_batches: int

    def minutes(self, epochs: float) -> float:
        """Of a whole trial: its steps, a validation after each epoch, and two tests (of the last and of the best
        weights). Starting a process and reading the corpus are not included.
        """
        last = math.ceil(epochs)
        steps = sum(steps_of(epoch, epochs, self.steps) for epoch in range(1, last + 1))
        evaluations = max(last, 1) * self.valid_batches + 2 * self.test_batches
        return (steps * self.train_ms + evaluations * self.eval_ms) / 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTime:
    """How long the trials of a row take.

    Args:
        epochs: of a trial of the table.
        time: None where the model could not be timed.
        ratio: the time of a training step divided by that of the reference (`reference`), on the same corpus and
            backbone; None without one.
        to_tune: the epochs of each tuning trial that has no record.
        to_run: the epochs of each trial of the table that has no record, those without an id included.
    """

    corpus: str
    backbone: str
    head: str
    epochs: float
    time: ModelTime | None
    ratio: float | None
    to_tune: tuple[float, ...]
    to_run: tuple[float, ...]

    @property
    def minutes_to_tune(self) -> float:
        """The minutes of the tuning trials to run, one after the other; 0 where the model could not be timed."""
        return self._minutes(self.to_tune)

    @property
    def minutes_to_run(self) -> float:
        """The same of the trials of the table."""
        return self._minutes(self.to_run)

    def _minutes(self, epochs: tuple[float, ...]) -> float:
        return 0.0 if self.time is None else sum(map(self.time.minutes, epochs))

    def as_json(self) -> dict[str, Any]:
        """The content of an entry of `times` in `harness plan --json`."""
        measured = None if self.time is None else {**asdict(self.time), "minutes": self.time.minutes(self.epochs)}
        about = {"corpus": self.corpus, "backbone": self.backbone, "head": self.head, "epochs": self.epochs}
        to_run = {"minutes_to_tune": self.minutes_to_tune, "minutes_to_run": self.minutes_to_run}
        return {**about, "time": measured, "step_ratio": self.ratio, **to_run}


@dataclass(frozen=True, slots=True)
class SuiteTimes:
    """How long the models of a suite take on this machine.

    Args:
        of_rows: of the rows that could be timed.
        ratios: the time of a row's training step divided by that of the reference (`reference`), on the same corpus and
            backbone; of the rows that have one.
        busy: processor cores that other work used meanwhile.
    """

    of_rows: dict[Key, ModelTime]
    ratios: dict[Key, float]
    busy: float


def suite_times(planned: PlannedSuite, data: Path, device: torch.device, warn: Callable[[str], None]) -> SuiteTimes:
    """Time some batches of each row's model, alone and in turns. Corpora are read, and downloaded where they are
    missing. Data-parallel trials and n-grams are left out.

    Args:
        data: folder of the corpora's files.
        warn: called with a sentence for each model that cannot be timed.
    Raises: CorpusError when a corpus cannot be read or downloaded.
    """
    specs = _firsts(planned)
    fetch_sources(specs.values(), data)
    other_work = environment.OtherWork()
    found = model_times([task_alone(planned.suite, spec, data, device) for spec in specs.values()], warn)
    if (busy := round(other_work.cores(), 2)) >= BUSY_CORES:
        warn(f"other programs used {busy:.1f} cores of this machine: times are longer than on a quiet one")
    of_rows = {key: found[spec.id] for key, spec in specs.items() if spec.id in found}
    return SuiteTimes(of_rows, _ratios(specs, of_rows, reference(planned.suite)), busy)


def model_times(tasks: list[Task], warn: Callable[[str], None]) -> dict[str, ModelTime]:
    """Time some batches of each trial's model, with its initial weights. Returns trial id -> its time.

    Args:
        tasks: one trial of each row, with its device.
        warn: called with a sentence for each model that cannot be timed.
    """
    taken, counts = {task.id: Taken() for task in tasks}, {}

    def visit(task: Task, model: LanguageModel, corpus: Corpus) -> None:
        train = task.spec.train
        counts[task.id] = {
            "steps": len(segments_of(corpus, train, corpus.train.device, seed=task.spec.seed)),
            "valid_batches": sum(1 for _ in scored_segments(corpus.valid, train.evaluation)),
            "test_batches": sum(1 for _ in scored_segments(corpus.test, train.evaluation)),
        }
        taken[task.id].visit(task, model, corpus, lr=train.lr)

    for turn in turns(tasks, visit):
        if turn.fault:
            for task in turn.tasks:
                del taken[task.id]
                warn(f"{task.spec} cannot be timed: {turn.fault}")
    return {
        trial: ModelTime(
            train_ms=statistics.median(found.train) if found.train else 0.0,
            eval_ms=statistics.median(found.eval),
            **counts[trial],
        )
        for trial, found in taken.items()
    }


def row_times(planned: PlannedSuite, times: SuiteTimes) -> list[RowTime]:
    """How long the trials of each row of a plan take. The plan may be another one than that whose models were timed, of
    the same rows.
    """
    suite = planned.suite
    return [
        RowTime(
            **dict(zip(("corpus", "backbone", "head"), key, strict=True)),
            epochs=_epochs_of_table(suite, spec),
            time=times.of_rows.get(key),
            ratio=times.ratios.get(key),
            to_tune=_missing(suite, planned.tuning, key),
            to_run=(*_missing(suite, planned.trials, key), *_later(planned, key)),
        )
        for key, spec in _firsts(planned).items()
    ]


def reference(suite: Suite) -> str | None:
    """The head of ratio 1: that of `match.time`, or the baseline; None without both."""
    return suite.match.time if suite.match is not None and suite.match.time is not None else suite.table.baseline


def match_text(planned: PlannedSuite, times: SuiteTimes, device: torch.device) -> str | None:
    """The key `match` to paste into the suite, so that every head gets the training time of the reference; None if the
    suite has no reference or matches parameters, a row was not timed, or other work used BUSY_CORES cores or more.
    """
    suite = planned.suite
    rows = {_key(suite, spec): spec for spec in (*suite.tuning_trials, *suite.trials) if not spec.is_ngram}
    by_params = suite.match is not None and suite.match.time is None
    if by_params or not rows.keys() <= times.ratios.keys() or times.busy >= BUSY_CORES:
        return None
    several = len({key[:2] for key in rows}) > 1
    names = {key: row_name(*key) if several else key[2] for key in rows}
    where = (
        f"{environment.device_name(device)}, {counted(suite.resources.cpus, 'thread')}, torch {torch.__version__}, "
        f"harness at {environment.commit()}, {environment.now()}; other work used {times.busy:.1f} cores"
    )
    lines = [f"    {json.dumps(name)}: {times.ratios[key]:.{RATIO_DIGITS}g}" for key, name in names.items()]
    head = json.dumps(reference(suite))
    return "\n".join(["match:", f"  time: {head}", f"  measured: {json.dumps(where)}", "  ratios:", *lines])


def task_alone(suite: Suite, spec: TrialSpec, data: Path, device: torch.device) -> Task:
    """The task of a trial whose model is tried in this process, and leaves nothing."""
    return Task(
        spec=spec,
        suite=suite.name,
        runs=Path(),
        data=data.resolve(),
        device=str(device),
        executor="inline",
        threads=suite.resources.cpus,
        route=products.chosen_route() if device.type == "cpu" else "default",
        contents=suite.contents,
    )


def _firsts(planned: PlannedSuite) -> dict[Key, TrialSpec]:
    """The first trial of each row that can be timed."""
    timed = [each.spec for each in planned.models if not each.spec.is_ngram and each.spec.train.data_parallel == 1]
    specs: dict[Key, TrialSpec] = {}
    for spec in timed:
        specs.setdefault(_key(planned.suite, spec), spec)
    return specs


def _key(suite: Suite, spec: TrialSpec) -> Key:
    return str(spec.corpus), str(suite.compared("backbone", spec)), str(suite.compared("head", spec))


def _epochs_of_table(suite: Suite, spec: TrialSpec) -> float:
    """The epochs of a row's trials of the table; the trial may be one that tunes."""
    rows = suite.tuning.rows if suite.tuning is not None else ()
    finals = {each.trial.id: each.finals[0] for row in rows for each in row.candidates}
    return finals.get(spec.id, spec).train.epochs


def _ratios(specs: dict[Key, TrialSpec], found: dict[Key, ModelTime], name: str | None) -> dict[Key, float]:
    """The ratio of each row to the first row of the head `name` with the same corpus and backbone. The head that the
    plan prints so comes before others of this name.
    """
    times = {key: each.train_ms for key, each in found.items()}
    bases: dict[tuple[str, str], float] = {}
    exact = any(key[2] == name for key in specs)
    for key, milliseconds in times.items():
        if name == (key[2] if exact else specs[key].head.name):
            bases.setdefault(key[:2], milliseconds)
    return {key: milliseconds / bases[key[:2]] for key, milliseconds in times.items() if bases.get(key[:2])}


def _missing(suite: Suite, trials: list[PlannedTrial], key: Key) -> tuple[float, ...]:
    """The epochs of the trials of a row that have no record."""
    missing = [each.spec for each in trials if not each.finished]
    return tuple(spec.train.epochs for spec in missing if _key(suite, spec) == key)


def _later(planned: PlannedSuite, key: Key) -> list[float]:
    """The epochs of the trials of a row that have no id yet."""
    firsts = {each.spec.id: each.spec for each in planned.tuning}
    return [
        _epochs_of_table(planned.suite, firsts[row.first])
        for row in planned.later
        if (row.corpus, row.backbone, row.head) == key and not row.lost
        for _ in row.seeds
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What a timing pass has to do.

    Args:
        records: the first 'ok' trial of each row; empty when nothing is to be timed.
        notes: sentences about rows that are not timed.
    """

    records: list[TrialRecord]
    notes: list[str]


def time_rows(execution: Execution, records: Mapping[str, TrialRecord], reporter: Reporter) -> bool:
    """Time one trial of each row when some row has no exclusive timing. All rows are timed then, because only the times
    of one pass can be compared. Nothing is timed before every trial has a record.

    An error is a warning, because the trials themselves are finished, and the next command tries again.

    Args:
        execution: of all trials of the table; `fresh`: time the rows again although they have timings.
        records: the trials' records.
    Returns: True when rows were timed.
    Raises: KeyboardInterrupt.
    """
    try:
        due = what_is_due(execution, records)
        for note in due.notes:
            reporter.say(note)
        if not due.records:
            return False
        runs = execution.tasks[0].runs
        with store.writing(runs, LOCK):
            latest, _ = store.load_all(runs, [task.id for task in execution.tasks])
            due = what_is_due(execution, latest)  # another command may have timed them meanwhile
            return bool(due.records) and _time(due.records, execution, reporter)
    except Exception as error:  # guard: timing-pass-fails
        reporter.warn(f"the rows are not timed: {_first_line(error)}; the same command tries again")
        return False


def what_is_due(execution: Execution, records: Mapping[str, TrialRecord]) -> Due:
    """The records to time: none while a trial has no record, and none when every row has its timing.

    A row is timed on the device that trained it. On a cluster any node may do the timing, but all rows are to be timed
    on the same device.
    """
    tasks = execution.tasks
    rows = _rows(records[task.id] for task in tasks if task.id in records)
    data_parallel = {key for key, row in rows.items() if row[0].spec.train.data_parallel > 1}
    local = execution.address == LOCAL
    here = environment.device_name(torch.device("cuda" if execution.on_gpu else "cpu"))
    elsewhere = {key for key, row in rows.items() if local and row[0].environment.device != here}
    notes = []
    if data_parallel:
        notes.append("data-parallel trials are not timed alone: their times are those of their training")
    elif elsewhere:
        devices = ", ".join(sorted({rows[key][0].environment.device for key in elsewhere}))
        notes.append(
            f"not timed: {counted(len(elsewhere), 'model')} trained on {devices}, because this device is {here}"
        )
    to_time = [row for key, row in rows.items() if key not in data_parallel | elsewhere]
    timed_before = not tasks[0].fresh and _have_timings(tasks[0].runs, to_time, here if local else None)
    all_finished = all(task.id in records for task in tasks)
    # guard: timed-in-one-pass in to_time] -> in to_time if not _have_timings(tasks[0].runs, [row], here)]
    return Due(records=[row[0] for row in to_time] if all_finished and not timed_before else [], notes=notes)


def _rows(records: Iterable[TrialRecord]) -> dict[Row, list[TrialRecord]]:
    """The 'ok' records by row. Outdated ones are left out: the code that belongs to their weights is gone."""
    rows: dict[Row, list[TrialRecord]] = {}
    for record in records:
        if record.status == "ok" and not is_outdated(record):
            spec = record.spec
            rows.setdefault((str(spec.corpus), str(spec.backbone), str(spec.head)), []).append(record)
    return rows


def _have_timings(runs: Path, rows: list[list[TrialRecord]], device: str | None) -> bool:
    """Whether each row has a timing, all of them from the same pass, and on this device if it is given."""
    devices, passes = set(), set()
    for row in rows:
        found, _ = sidecars.TIMING.load_all(runs, {record.id: record for record in row})
        if not found:
            return False
        latest = max(found.values(), key=lambda each: each.taken)
        devices, passes = devices | {latest.device}, passes | {latest.pass_id}
    return len(passes) <= 1 and len(devices | ({device} if device is not None else set())) <= 1


def _time(records: list[TrialRecord], execution: Execution, reporter: Reporter) -> bool:
    """Time these trials and save their timings. Returns True when there are timings."""
    reporter.say(f"timing {counted(len(records), 'model')}, one at a time ...")
    due = {record.id: record for record in records}
    execution = replace(execution.with_route(), tasks=[task for task in execution.tasks if task.id in due])
    found, faults = executor(execution).time_rows(execution, due)
    for fault in faults:
        reporter.warn(sentence(fault))
    for timing in found:
        _save(timing, execution.tasks[0].runs)
    reporter.say(_summary(found))
    return bool(found)


def _summary(found: list[Timing]) -> str:
    if not found:
        return "no model was timed"
    first = found[0]
    other = (
        f"; other programs use {first.busy:.1f} cores, so the times are marked as shared; --timing measures them again"
    )
    return f"timed {counted(len(found), 'model')} in {counted(first.rounds, 'round')}{other * first.shared}"


def _save(timing: Timing, runs: Path) -> None:
    with store.writing(runs, timing.trial, wait=LOCK_SECONDS):
        sidecars.save_timing(timing, runs)


def _first_line(error: Exception) -> str:
    reason = str(error) if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
    return sentence((reason.splitlines() or [type(error).__name__])[0])
