"""One trial from its spec to its record. The one function to read first is `run`."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from harness.containment.calls import contained
from harness.kernels.choice import Choice, using
from harness.machine.stop_request import StopRequest
from harness.model import components
from harness.records import store
from harness.records.record import Status, TrialRecord
from harness.training.checkpoint import Checkpoint, Checkpoints, Position
from harness.training.data_parallel import Workers
from harness.training.loop import Progress
from harness.trial import attempt, behaviour, stages
from harness.trial.conditions import conditions, with_exact_route
from harness.trial.context import TrialContext
from harness.trial.failures import failure_as_status, refuse_hopeless
from harness.trial.log import trial_log
from harness.trial.session import Session
from harness.trial.task import Task
from harness.trial.watch import Watch

RESUMABLE = ("timeout", "oom")  # statuses of trials that a later run may resume: their checkpoints stay


def run(
    task: Task,
    report: Callable[[Progress], None] = lambda progress: None,
    workers: Workers | None = None,
    stop: StopRequest | None = None,
) -> TrialRecord:
    """Run one trial, from its newest checkpoint if it has one. Returns its record, which is saved. A trial that fails
    has a record, too; the traceback is in its log. While another process runs the trial, this waits for its record.

    Args:
        report: receives the progress.
        workers: of which this is the first; the others run harness.trial.follow.follow.
        stop: whether training is to stop after the step under way, by default when this process gets a signal.
    Raises: StorageError when the folder cannot be written, CorpusError without the corpus, LostWorker when another
        worker has ended, KeyboardInterrupt when the trial was asked to stop: it can be resumed later.
    """
    folder = task.folder
    with store.writing(task.runs, task.id):  # the trial's lock
        if (finished := _other_record(task)) is not None:
            tidy(folder, finished.status)
            return finished
        store.set_aside(task.runs, task.id)
        with trial_log(folder) as log:
            trial = begin(task, report, workers or Workers(), log, stop or StopRequest())
            with failure_as_status(trial):
                refuse_hopeless(trial)
                trial.workers.from_first(*trial.attempt.position)
                with trial.watch, contained(components(task.spec), log.warning):
                    built = stages.build(trial)
                    with conditions(trial.task), using(trial.session.choice):
                        stages.fit(trial, built)
                        directions = stages.evaluate(trial, built)
                        stages.time(trial, built)
                        stages.check(trial, built, directions)
                    stages.complete(trial, built, directions)
                    trial.outcome.behaviour = behaviour.of_trial(task.spec)
            record = record_of(trial)
        store.save(record, task.runs)
        tidy(folder, record.status)
        return record


def begin(
    task: Task,
    report: Callable[[Progress], None],
    workers: Workers,
    log: logging.Logger,
    stop: StopRequest,
) -> TrialContext:
    """Find the checkpoint to resume from, note the attempt in the trial's folder, and begin a session."""
    log.info("trial %s: %s", task.id, task.spec)
    folder = task.folder
    again = attempt.follows(folder, task.driver)
    checkpoints = Checkpoints(folder, log.warning)
    resumed = _resumed(checkpoints, task.id, log, fresh=task.fresh and not again)
    task = with_exact_route(task, resumed)
    stuck = attempt.stuck(folder) if again and not attempt.last(folder).trying else ""  # what was tried is left out now
    this = attempt.begin(folder, task.driver, resumed.position if resumed is not None else Position())
    choice = Choice(attempt.left_out(this), trying=partial(attempt.trying, folder), log=log.warning)
    session = Session(task, resumed, choice)
    return TrialContext(
        task=task,
        session=session,
        log=log,
        workers=workers,
        watch=Watch(task, session.elapsed),
        checkpoints=checkpoints,
        report=report,
        resumed=resumed,
        attempt=this,
        stop=stop,
        stuck=stuck,
    )


def record_of(trial: TrialContext) -> TrialRecord:
    """The record of a trial that has ended."""
    task, outcome = trial.task, trial.outcome
    retries = task.retries + trial.attempt.retries
    record = TrialRecord(
        suite=task.suite,
        spec=task.spec,
        status=outcome.status,
        metrics=outcome.metrics,
        curve=tuple(outcome.fitted.curve),
        environment=trial.session.environment(graphed=outcome.fitted.graphed, retries=retries),
        message=outcome.message,
        weights_sha256=outcome.weights_sha256,
        contents=task.contents_read,
        certificate=outcome.certificate,
        code=trial.session.code,
        behaviour=outcome.behaviour,
        tuning=task.tuning,
    )
    record = store.measured(record)
    trial.log.info("%s %s", record.status, record.metrics)
    return record


def tidy(folder: Path, status: Status) -> None:
    """Remove the files that a finished trial does not need. `attempt.json` goes last: it marks what is not tidied."""
    if status not in RESUMABLE:
        Checkpoints(folder).remove()
    attempt.end(folder)


def _other_record(task: Task) -> TrialRecord | None:
    """The trial's record, unless it is the one to be replaced."""
    known, _ = store.load_all(task.runs, [task.id])
    return known[task.id] if task.id in known and store.digest(known[task.id]) != task.replaces else None


def _resumed(checkpoints: Checkpoints, trial: str, log: logging.Logger, *, fresh: bool) -> Checkpoint | None:
    """The checkpoint to resume from. When there is none, or with `fresh`, all checkpoints are removed: by their names
    they would count as newer than those to come.
    """
    found = None if fresh else checkpoints.newest(trial)
    if found is None:
        checkpoints.remove()
        return None
    log.info("goes on from its checkpoint: epoch %d, %d steps done", *found.position)
    return found
