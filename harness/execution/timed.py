"""Models of a suite in this process, one at a time: one step of each before a run (`harness run --dry-run`), how long
the trials would take (`harness plan --time`), and after a run the times of finished trials, alone.
"""

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from harness.code.hashes import is_outdated
from harness.containment import first_line
from harness.corpora.corpus import Corpus
from harness.errors import HarnessError
from harness.execution.executors import LOCAL, NOT_TIMED, Execution, RunOptions, executor
from harness.execution.live import Reporter
from harness.execution.planned import PlannedSuite
from harness.kernels import products
from harness.machine import environment
from harness.machine.environment import resolve_device
from harness.model import LanguageModel
from harness.plan.expansion import row_name
from harness.plan.loaded_suite import Suite, possible_trials
from harness.plan.selection import select
from harness.plan.specs import TrainSpec, TrialSpec
from harness.printable import counted, sentence
from harness.records import sidecars, store
from harness.records.record import TrialRecord
from harness.records.sidecars import Timing
from harness.training.clocks import Clock, peak_memory_mib, reset_peak_memory
from harness.training.evaluation import evaluate
from harness.training.step import Diverged, refuse_unfit
from harness.trial.setup import count_text, fetch_sources
from harness.trial.task import Task
from harness.trial.timing import BUSY_CORES, ModelTime, in_turns, model_times, training, warm

COUNTED_TOKENS = 200_000  # of the text, from its start, for an n-gram model that is tried
NOT_OF_A_STEP = {"lr", "epochs", "schedule"}  # settings of training in which rows may differ that are tried once
LOCK = "timing"  # the name of the lock of a timing pass: two passes at the same time would slow each other down
LOCK_SECONDS = 10.0  # how long to wait for the lock of one trial
RATIO_DIGITS = 3  # significant ones

Row = tuple[str, str, str]  # corpus, backbone, head; of a plan without what is tuned


def task_alone(suite: Suite, spec: TrialSpec, data: Path, device: torch.device, threads: int | None = None) -> Task:
    """The task of a trial whose model is tried in this process, and leaves nothing."""
    return Task(
        spec=spec,
        suite=suite.name,
        runs=Path(),
        data=data.resolve(),
        device=str(device),
        executor="inline",
        threads=threads or suite.resources.cpus,
        route=products.chosen_route() if device.type == "cpu" else "default",
        contents=suite.contents,
    )


def dry_run(suite: Suite, *, data: Path, options: RunOptions, reporter: Reporter) -> bool:
    """Train one batch of every row of a suite, and evaluate one, one row after the other. Of a suite with `tune` every
    point is tried, but for points that differ in the learning rate only. Nothing is written to the results folder.

    Each row is one line: the loss before and after the step and the peak memory, or what is wrong, which is a problem
    of `reporter`. The memory of a row is given back before the next one is built.

    Returns: whether every row could be trained.
    Raises: SuiteError for a wrong condition; ExecutionError when there is no such device.
    """
    on_cpu = suite.resources.gpus == 0 and options.device == "auto" and not options.gpus_per_trial
    device = torch.device("cpu") if on_cpu else resolve_device(options.device)
    rows = rows_of(suite, options.only)
    wholes, found, failed = {spec.id: spec for spec in rows}, {}, 0

    def visit(task: Task, model: LanguageModel, corpus: Corpus) -> None:
        refuse_unfit(wholes[task.id].train, task.device)
        found[task.id] = _one_step(task.spec, model, corpus)

    tasks = [task_alone(suite, _one_worker(spec), data, device, options.cpus_per_trial) for spec in rows]
    for tried, fault in in_turns(tasks, visit, rounds=1):
        first = wholes[tried[0].id]
        if not fault:
            reporter.say(f"ok    {first.id}  {first}: {found[first.id]}")
            continue
        failed += len(tried)
        who = f"{first.id}  {first}" if len(tried) == 1 else f"{first.corpus}, {counted(len(tried), 'row')}"
        reporter.problem(f"FAIL  {who}: {fault}")
    reporter.say(
        f"dry run of {counted(len(rows), 'row')} on {device}: {len(rows) - failed} ok, {failed} failed; "
        "nothing was written to the results folder"
    )
    return not failed


def rows_of(suite: Suite, only: Iterable[str]) -> list[TrialSpec]:
    """The first trial of each row that conditions select: of each corpus, backbone, head and way of training."""
    found: dict[tuple[str, ...], TrialSpec] = {}
    for spec in select(possible_trials(suite), tuple(only), suite):
        train = spec.train.model_dump_json(exclude=NOT_OF_A_STEP)
        found.setdefault((str(spec.corpus), str(spec.backbone), str(spec.head), train), spec)
    return list(found.values())


def _one_worker(spec: TrialSpec) -> TrialSpec:
    train = spec.train
    rows = train.batch_size // train.data_parallel
    return spec.model_copy(update={"train": train.model_copy(update={"data_parallel": 1, "batch_size": rows})})


def _one_step(spec: TrialSpec, model: LanguageModel, corpus: Corpus) -> str:
    """Evaluate a batch, train one step, and evaluate the batch again; then time some more steps. Returns the losses, in
    nats a token, the peak of the memory until the second loss, and the median time. Raises Diverged when a loss is not
    finite; what the trial would raise.
    """
    train, device = spec.train, next(model.parameters()).device
    count_text(model, corpus, COUNTED_TOKENS)
    reset_peak_memory(device)
    before = _loss(model, corpus, train, "before the first step")
    if not train.epochs:
        return f"loss {before:.3f}, not trained"
    steps = training(model, corpus, spec, lr=train.lr)
    steps(1)
    after = _loss(model, corpus, train, "after one step")
    memory = f"peak memory {peak_memory_mib(device):,.0f} MiB"
    return f"loss {before:.3f} -> {after:.3f}, {memory}, {statistics.median(warm(steps)):.1f} ms a step"


def _loss(model: LanguageModel, corpus: Corpus, train: TrainSpec, when: str) -> float:
    spec = train.evaluation.model_copy(update={"eval_batches": 1})
    score, _ = evaluate(model, corpus, "valid", spec, clock=Clock(next(model.parameters()).device))
    if not math.isfinite(score.mean_nll):
        raise Diverged(f"the validation loss {when} is {score.mean_nll}")
    return score.mean_nll


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTime:
    """How long the trials of a row take.

    Args:
        corpus, backbone, head: without what is tuned.
        epochs: of a trial of the table.
        time: None when the model could not be timed.
        ratio: the time of a training step divided by that of the reference (`reference`), on the same corpus and
            backbone; None without one.
        minutes_to_run: all trials that have no record, one after the other; 0 where the model could not be timed.
    """

    corpus: str
    backbone: str
    head: str
    epochs: float
    time: ModelTime | None
    ratio: float | None
    minutes_to_run: float

    def as_json(self) -> dict[str, Any]:
        measured = None if self.time is None else {**asdict(self.time), "minutes": self.time.minutes(self.epochs)}
        about = {"corpus": self.corpus, "backbone": self.backbone, "head": self.head, "epochs": self.epochs}
        return {**about, "time": measured, "step_ratio": self.ratio, "minutes_to_run": self.minutes_to_run}


def suite_times(
    planned: PlannedSuite, data: Path, device: torch.device, warn: Callable[[str], None]
) -> tuple[list[RowTime], float]:
    """Time some batches of each row's model, alone and in turns. Corpora are read, and downloaded where they are
    missing.

    Returns: the times of all rows but those of n-grams and of data-parallel trials, and the processor cores that other
        work used meanwhile.
    Raises: CorpusError when a corpus cannot be read or downloaded.
    """
    suite = planned.suite
    firsts: dict[Row, TrialSpec] = {}
    for each in planned.models:
        if not each.spec.is_ngram and each.spec.train.data_parallel == 1:
            firsts.setdefault(_row(suite, each.spec), each.spec)
    fetch_sources(firsts.values(), data)
    other_work = environment.OtherWork()
    found = model_times([task_alone(suite, spec, data, device) for spec in firsts.values()], warn)
    if (busy := round(other_work.cores(), 2)) >= BUSY_CORES:
        warn(f"other programs used {busy:.1f} cores of this machine: times are longer than on a quiet one")
    rows = suite.tuning.rows if suite.tuning is not None else ()
    finals = {each.trial.id: each.finals[0] for row in rows for each in row.candidates}
    minutes = dict.fromkeys(firsts, 0.0)
    for spec, tuning in planned.to_run():
        row = _row(suite, spec)
        if row in firsts and firsts[row].id in found:
            # a trial of the table without an id is given as the one that tunes
            trial = spec if tuning else finals.get(spec.id, spec)
            minutes[row] += found[firsts[row].id].minutes(trial.train.most_epochs)
    ratios = _ratios(firsts, found, reference(suite))
    times = [
        RowTime(
            corpus=row[0],
            backbone=row[1],
            head=row[2],
            epochs=finals.get(first.id, first).train.most_epochs,
            time=found.get(first.id),
            ratio=ratios.get(row),
            minutes_to_run=minutes[row],
        )
        for row, first in firsts.items()
    ]
    return times, busy


def reference(suite: Suite) -> str | None:
    """The head of ratio 1: that of `match.time`, or the baseline; None without both."""
    return suite.match.time if suite.match is not None and suite.match.time is not None else suite.table.baseline


def match_text(suite: Suite, times: list[RowTime], busy: float, device: torch.device) -> str | None:
    """The key `match` to paste into the suite, so that every head gets the training time of the reference; None if the
    suite has no reference or matches parameters, a row was not timed, or other work used BUSY_CORES cores or more.
    """
    trials = (*suite.tuning_trials, *suite.trials)
    rows = dict.fromkeys(_row(suite, spec) for spec in trials if not spec.is_ngram)
    ratios = {(row.corpus, row.backbone, row.head): row.ratio for row in times if row.ratio}
    by_params = suite.match is not None and suite.match.time is None
    if by_params or not rows.keys() <= ratios.keys() or busy >= BUSY_CORES:
        return None
    several = len({row[:2] for row in rows}) > 1
    where = (
        f"{environment.device_name(device)}, {counted(suite.resources.cpus, 'thread')}, torch {torch.__version__}, "
        f"harness at {environment.commit()}, {environment.now()}; other work used {busy:.1f} cores"
    )
    lines = ["match:", f"  time: {json.dumps(reference(suite))}", f"  measured: {json.dumps(where)}", "  ratios:"]
    for row in rows:
        lines.append(f"    {json.dumps(row_name(*row) if several else row[2])}: {ratios[row]:.{RATIO_DIGITS}g}")
    return "\n".join(lines)


def _row(suite: Suite, spec: TrialSpec) -> Row:
    return str(spec.corpus), str(suite.compared("backbone", spec)), str(suite.compared("head", spec))


def _ratios(firsts: dict[Row, TrialSpec], found: dict[str, ModelTime], name: str | None) -> dict[Row, float]:
    """The ratio of each row to the first row of the head `name` with the same corpus and backbone. The head that the
    plan prints so comes before others of this name.
    """
    times = {row: found[spec.id].train_ms for row, spec in firsts.items() if spec.id in found}
    bases: dict[tuple[str, str], float] = {}
    exact = any(row[2] == name for row in firsts)
    for row, milliseconds in times.items():
        if name == (row[2] if exact else firsts[row].head.name):
            bases.setdefault(row[:2], milliseconds)
    return {row: milliseconds / bases[row[:2]] for row, milliseconds in times.items() if bases.get(row[:2])}


def time_rows(execution: Execution, records: Mapping[str, TrialRecord], reporter: Reporter) -> bool:
    """Time one trial of each row when some row has no exclusive timing. All rows are timed then, because only the times
    of one pass can be compared. Nothing is timed before every trial has a record.

    An error is a warning, because the trials themselves are finished, and the next command tries again.

    Args:
        execution: of all trials of the table; `fresh`: time the rows again although they have timings.
    Returns: True when rows were timed.
    Raises: KeyboardInterrupt.
    """
    try:
        to_time, notes = what_is_due(execution, records)
        for note in notes:
            reporter.say(note)
        if not to_time:
            return False
        if execution.tasks[0].executor == "slurm":
            reporter.say(f"the rows are not timed: {NOT_TIMED}")
            return False
        runs = execution.tasks[0].runs
        with store.writing(runs, LOCK):
            latest, _ = store.load_all(runs, [task.id for task in execution.tasks])
            to_time, _ = what_is_due(execution, latest)  # another command may have trained or timed them meanwhile
            return bool(to_time) and _time(to_time, execution, reporter)
    except Exception as error:  # guard: timing-pass-fails
        reason = str(error) if isinstance(error, HarnessError) else first_line(error)
        first = sentence(reason.partition("\n")[0])
        reporter.warn(f"the rows are not timed: {first}; the same command tries again")
        return False


def what_is_due(execution: Execution, records: Mapping[str, TrialRecord]) -> tuple[list[TrialRecord], list[str]]:
    """The records to time, the first 'ok' one of each row, and sentences about rows that are not timed. There are none
    to time while a trial has no record, and when every row has its timing.

    A row is timed on the device that trained it. On a cluster any node may do the timing, but all rows are to be timed
    on the same device.
    """
    tasks = execution.tasks
    rows: dict[Row, list[TrialRecord]] = {}
    for record in (records[task.id] for task in tasks if task.id in records):
        if record.status == "ok" and not is_outdated(record):  # the code that belongs to outdated weights is gone
            spec = record.spec
            rows.setdefault((str(spec.corpus), str(spec.backbone), str(spec.head)), []).append(record)
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
    return [row[0] for row in to_time] if all_finished and not timed_before else [], notes


def _have_timings(runs: Path, rows: list[list[TrialRecord]], device: str | None) -> bool:
    """Whether each row has a timing, all of them from the same pass, and on this device if it is given."""
    devices, passes = {device} - {None}, set()
    for row in rows:
        found, _ = sidecars.TIMING.load_all(runs, {record.id: record for record in row})
        if not found:
            return False
        latest = max(found.values(), key=lambda each: each.taken)
        devices, passes = devices | {latest.device}, passes | {latest.pass_id}
    return len(passes) <= 1 and len(devices) <= 1


def _time(records: list[TrialRecord], execution: Execution, reporter: Reporter) -> bool:
    """Returns True when there are timings."""
    reporter.say(f"timing {counted(len(records), 'model')}, one at a time ...")
    due = {record.id: record for record in records}
    multiplied = execution.with_route()
    execution = replace(multiplied, tasks=[task for task in multiplied.tasks if task.id in due])
    found, faults = executor(execution).time_rows(execution, due)
    for fault in faults:
        reporter.warn(sentence(fault))
    runs = execution.tasks[0].runs
    for timing in found:
        with store.writing(runs, timing.trial, wait=LOCK_SECONDS):
            sidecars.save_timing(timing, runs)
    if not found:
        reporter.say("no model was timed")
        return False
    first: Timing = found[0]
    other = (
        f"; other programs use {first.busy:.1f} cores, so the times are marked as shared; --timing measures them again"
    )
    reporter.say(f"timed {counted(len(found), 'model')} in {counted(first.rounds, 'round')}{other * first.shared}")
    return True
