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
from harness.errors import ExecutionError, HarnessError
from harness.execution.executors import LOCAL, NOT_TIMED, Execution, RunOptions, executor
from harness.execution.live import Reporter
from harness.execution.planned import PlannedSuite
from harness.extensions import provided
from harness.machine import environment
from harness.machine.environment import resolve_device
from harness.model import LanguageModel
from harness.plan.match import row_name
from harness.plan.selection import select
from harness.plan.specs import NGRAM_BACKBONE, TrainSpec, TrialSpec
from harness.plan.suite import Row, Suite
from harness.printable import counted, sentence
from harness.records import sidecars, store
from harness.records.record import TrialRecord
from harness.records.sidecars import Timing
from harness.training.clocks import Clock, peak_memory_mib, reset_peak_memory
from harness.training.evaluation import evaluate
from harness.training.step import Diverged, refuse_unfit
from harness.trial import routes
from harness.trial.setup import count_text
from harness.trial.task import Task
from harness.trial.timing import BUSY_CORES, ModelTime, in_turns, model_times, training, warm

COUNTED_TOKENS = 200_000  # of the text, from its start, for an n-gram model that is tried
NOT_OF_A_STEP = {"lr", "epochs", "schedule"}  # settings of training in which rows may differ that are tried once
LOCK = "timing"  # the name of the lock of a timing pass: two passes at the same time would slow each other down
LOCK_SECONDS = 10.0  # how long to wait for the lock of one trial
RATIO_DIGITS = 3  # significant ones


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
        route=routes.chosen_route() if device.type == "cpu" else "default",
        contents=suite.contents_of(spec),
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
    wholes, number_failed = {spec.id: spec for spec in rows}, 0

    def visit(task: Task, model: LanguageModel, corpus: Corpus) -> None:
        refuse_unfit(wholes[task.id].train, task.device)
        reporter.say(f"ok    {task.id}  {wholes[task.id]}: {_one_step(task.spec, model, corpus)}")

    def failed(without: list[Task], fault: str) -> None:
        nonlocal number_failed
        number_failed += len(without)
        first = wholes[without[0].id]
        who = f"{first.id}  {first}" if len(without) == 1 else f"{first.corpus}, {counted(len(without), 'row')}"
        reporter.problem(f"FAIL  {who}: {fault}")

    tasks = []
    for spec in rows:  # of a data-parallel trial one worker
        train = spec.train
        alone = {"data_parallel": 1, "batch_size": train.batch_size // train.data_parallel}
        spec = spec.model_copy(update={"train": train.model_copy(update=alone)})
        tasks.append(task_alone(suite, spec, data, device, options.cpus_per_trial))
    in_turns(tasks, visit, failed, rounds=1)
    reporter.say(
        f"dry run of {counted(len(rows), 'row')} on {device}: {len(rows) - number_failed} ok, {number_failed} failed; "
        "nothing was written to the results folder"
    )
    return not number_failed


def rows_of(suite: Suite, only: Iterable[str]) -> list[TrialSpec]:
    """The first trial of each row that conditions select: of each corpus, backbone, head and way of training."""
    found: dict[tuple[str, ...], TrialSpec] = {}
    for spec in select(suite.possible_trials, tuple(only), suite):
        train = spec.train.model_dump_json(exclude=NOT_OF_A_STEP)
        found.setdefault((str(spec.corpus), str(spec.backbone), str(spec.head), train), spec)
    return list(found.values())


def _one_step(spec: TrialSpec, model: LanguageModel, corpus: Corpus) -> str:
    """Evaluate a batch, train one step, and evaluate the batch again; then time some more steps. Returns the losses, in
    nats a token, the peak of the memory until the second loss, and the median time. Raises Diverged when a loss is not
    finite; ExecutionError when probabilities do not sum to 1; what the trial would raise.
    """
    train, device = spec.train, next(model.parameters()).device
    count_text(model, corpus, COUNTED_TOKENS)
    reset_peak_memory(device)
    require_sums = provided("harness.integrity.certify:require_sums", lambda *given: None)
    before = _loss(model, corpus, train, "before the first step")
    if not train.epochs:
        require_sums(spec, model, corpus)
        return f"loss {before:.3f}, not trained"
    steps = training(model, corpus, spec, lr=train.lr)
    steps(1)
    after = _loss(model, corpus, train, "after one step")
    memory = f"peak memory {peak_memory_mib(device):,.0f} MiB"
    require_sums(spec, model, corpus)
    if model.taken_over:
        raise ExecutionError(model.taken_over)
    model.train()  # after the evaluation
    return f"loss {before:.3f} -> {after:.3f}, {memory}, {statistics.median(warm(steps)):.1f} ms a step"


def _loss(model: LanguageModel, corpus: Corpus, train: TrainSpec, when: str) -> float:
    spec = train.evaluation.model_copy(update={"eval_batches": 1})
    score, _ = evaluate(model, corpus, "valid", spec, clock=Clock(next(model.parameters()).device))
    if not math.isfinite(score.mean_nll):
        raise Diverged(f"the validation loss {when} is {score.mean_nll}")
    return score.mean_nll


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTime:
    """How long a trial of a row takes.

    Args:
        epochs: of a trial of the table.
        time: None when the model could not be timed.
        ratio: the time of a training step divided by that of the reference (`reference`), on the same corpus and
            backbone; None without one.
    """

    row: Row
    epochs: float
    time: ModelTime | None
    ratio: float | None

    @property
    def minutes(self) -> float | None:
        return None if self.time is None else self.time.minutes(self.epochs)

    def as_json(self) -> dict[str, Any]:
        corpus, backbone, head = self.row.key  # without what is tuned
        about = {"corpus": corpus, "backbone": backbone, "head": head, "epochs": self.epochs}
        time = None if self.time is None else asdict(self.time)
        return {**about, "time": time, "ratio": self.ratio, "minutes": self.minutes}


def suite_times(
    planned: PlannedSuite, data: Path, device: torch.device, warn: Callable[[str], None]
) -> tuple[list[RowTime], float, float]:
    """Time some batches of each row's model, alone and in turns. Corpora are read, and downloaded where they are
    missing.

    Returns: the times of all rows but those of n-grams and of data-parallel trials; the minutes of all trials that have
        no record, one after the other; and the processor cores that other work used meanwhile.
    """
    suite = planned.suite
    firsts: dict[Row, TrialSpec] = {}
    for spec in planned.models:
        if not spec.is_ngram and spec.train.data_parallel == 1:
            firsts.setdefault(suite.row_of(spec), spec)
    other_work = environment.OtherWork()
    found = model_times([task_alone(suite, spec, data, device) for spec in firsts.values()], warn)
    if (busy := round(other_work.cores(), 2)) >= BUSY_CORES:
        warn(f"other programs used {busy:.1f} cores of this machine: times are longer than on a quiet one")
    finals = {}  # tuning trial -> a trial of the table with its settings
    for row in suite.tuned_rows:
        finals |= {each.longest.id: each.trials[0] for each in row.candidates}
    minutes = 0.0
    for spec, tuning in planned.to_run():
        first = firsts.get(suite.row_of(spec))
        if first is not None and first.id in found:
            # a trial of the table without an id is given as the one that tunes
            trial = spec if tuning else finals.get(spec.id, spec)
            minutes += found[first.id].minutes(trial.train.most_epochs)
    bases = _step_of_reference(firsts, found, reference(suite))
    times = []
    for row, first in firsts.items():
        epochs = finals.get(first.id, first).train.most_epochs
        time, base = found.get(first.id), bases.get(row.key[:2])
        ratio = time.train_ms / base if time is not None and base else None
        times.append(RowTime(row=row, epochs=epochs, time=time, ratio=ratio))
    return times, minutes, busy


def reference(suite: Suite) -> str | None:
    """The head of ratio 1: that of `match.time`, or the baseline; None without both."""
    return suite.match.time if suite.match is not None and suite.match.time is not None else suite.table.baseline


def match_text(suite: Suite, times: list[RowTime], busy: float, device: torch.device) -> str | None:
    """The key `match` to paste into the suite, so that every head gets the training time of the reference; None if the
    suite has no reference or matches something else, a row was not timed, or other work used BUSY_CORES cores or more.
    """
    rows = [row.key for row in suite.rows if row.backbone.spec.name != NGRAM_BACKBONE]
    ratios = {each.row.key: each.ratio for each in times if each.ratio}
    matches_else = suite.match is not None and suite.match.time is None
    if matches_else or not ratios.keys() >= set(rows) or busy >= BUSY_CORES:
        return None
    several = len({row[:2] for row in rows}) > 1
    where = (
        f"{environment.device_name(device)}, {counted(suite.resources.cpus, 'thread')}, torch {torch.__version__}, "
        f"harness at {environment.commit()}, {environment.now()}; other work used {busy:.1f} cores"
    )
    lines = ["match:", f"  time: {json.dumps(reference(suite))}", f"  measured: {json.dumps(where)}", "  ratios:"]
    for row in dict.fromkeys(rows):
        lines.append(f"    {json.dumps(row_name(*row) if several else row[2])}: {ratios[row]:.{RATIO_DIGITS}g}")
    return "\n".join(lines)


def _step_of_reference(
    firsts: dict[Row, TrialSpec], found: dict[str, ModelTime], name: str | None
) -> dict[tuple[str, str], float]:
    """Milliseconds of a step of the head `name` by corpus and backbone. The head that the plan prints so comes before
    others whose class has this name.
    """
    bases: dict[tuple[str, str], float] = {}
    exact = any(row.head.written == name for row in firsts)
    for row, spec in firsts.items():
        if spec.id in found and name == (row.head.written if exact else spec.head.name):
            bases.setdefault(row.key[:2], found[spec.id].train_ms)
    return bases


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
        with store.writing(execution.tasks[0].runs, LOCK):
            return _time(to_time, execution, reporter)
    except Exception as error:
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
    if not all(task.id in records for task in tasks):
        return [], []
    rows: dict[Row, list[TrialRecord]] = {}
    for task in tasks:
        record, spec = records[task.id], task.spec
        if record.status == "ok" and not is_outdated(record):  # the code that belongs to outdated weights is gone
            rows.setdefault((str(spec.corpus), str(spec.backbone), str(spec.head)), []).append(record)
    local = execution.address == LOCAL
    here = environment.device_name(torch.device("cuda" if execution.on_gpu else "cpu"))
    to_time, notes = [], {}
    for row in rows.values():
        device = row[0].environment.device
        if row[0].spec.train.data_parallel > 1:
            notes["data-parallel trials are not timed alone: their times are those of their training"] = None
        elif local and device != here:
            notes[f"models trained on {device} are not timed, because this device is {here}"] = None
        else:
            to_time.append(row)
    timed_before = not tasks[0].fresh and _have_timings(tasks[0].runs, to_time, here if local else None)
    return [] if timed_before else [row[0] for row in to_time], list(notes)


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
