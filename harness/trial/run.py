"""One trial from its task to its record. The one function to read first is `run`.

What ends a trial early is a status of its record, if the trial itself is the cause. A data-parallel
trial is one trial: its first worker has the lock, the log, the checkpoints and the record; the
others train along and write nothing.
"""

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness.containment import contained, first_line, guarded
from harness.errors import CorpusError, StorageError
from harness.extensions import provided
from harness.kernels.choice import using
from harness.machine.stop_request import StopRequest
from harness.model import components
from harness.plan.suite_file import TimeoutSpec
from harness.printable import sentence
from harness.records import store
from harness.records.record import Status, TrialRecord
from harness.training.checkpoint import Checkpoints
from harness.training.loop import Progress
from harness.training.step import Diverged
from harness.trial import sessions, stages
from harness.trial.log import trial_log
from harness.trial.reading import noted
from harness.trial.sessions import MAX_DEATHS, History
from harness.trial.setup import conditions, is_out_of_memory, with_exact_route
from harness.trial.stages import Outcome, Trial
from harness.trial.task import Task
from harness.trial.watch import SILENT, TimedOut, Watch
from harness.trial.workers import LostWorker, Workers

# Statuses of trials that a later run may resume: their checkpoints stay.
RESUMABLE = ("timeout", "oom")
LOCK_SECONDS = 10.0  # that a driver waits for the trial's lock

Listener = Callable[[Progress], None]


class WorkerDied(Exception):
    """Several workers died in a trial, at the same position."""


class Failed(Exception):
    """A further worker failed: what the trial's record is to say, and the traceback. The first one
    does not know it.
    """

    def __init__(self, status: Status, message: str, trace: str):
        super().__init__(status, message, trace)
        self.status, self.message, self.trace = status, message, trace


class Ended(Exception):
    """The first worker has ended before the others, which are to be ended, too."""


def run(
    task: Task,
    listener: Listener = lambda progress: None,
    workers: Workers | None = None,
    stop: StopRequest | None = None,
) -> TrialRecord:
    """Run one trial, from its newest checkpoint if it has one. Returns its record, which is saved.
    A trial that fails has a record, too; the traceback is in its log. While another process runs
    the trial, this waits for its record.

    Args:
        workers: of which this is the first; the others run `follow`.
        stop: whether training is to stop after the step under way, by default when this process
            gets a signal.
    Raises: StorageError when the folder cannot be written, CorpusError without the corpus,
        LostWorker when another worker has ended, KeyboardInterrupt when the trial was asked to
        stop: it can be resumed later.
    """
    with store.writing(task.runs, task.id):  # the trial's lock
        # Another command may have finished the trial while this one waited for the lock.
        if (finished := _other_record(task)) is not None:
            tidy(task.folder, finished.status)
            return finished
        store.set_aside(task.runs, task.id)
        with trial_log(task.folder) as log:
            trial = begin(task, log, workers or Workers(), listener, stop or StopRequest())
            with failure_as_status(trial):
                refuse_hopeless(trial)
                # So early that the imports of its process are done when training is.
                provided("harness.integrity.certifier:begin", lambda task: None)(task)
                # The others refuse to go on from another checkpoint: weights would be mixed.
                trial.workers.from_first(*trial.history.position)
                work(trial)
            record = record_of(trial.task, trial.history, trial.outcome)
            log.info("%s %s", record.status, record.metrics)
        store.save(record, task.runs)
        tidy(task.folder, record.status)
        return record


def follow(task: Task, workers: Workers) -> None:
    """Train together with the first worker, from the checkpoint that it is resumed from. Returns
    when training has ended or diverged; the first worker finds the same.

    The first worker enforces the trial's limits of time; each worker enforces the limits of memory
    for itself.

    Raises: Failed with what went wrong here; LostWorker; CorpusError and StorageError, as `run`.
    """
    silent = logging.getLogger(f"{__name__}.{task.id}")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    try:
        # The first worker writes no checkpoint before all have read this one.
        expected = workers.from_first(0, 0)
        trial = begin(replace(task, timeout=TimeoutSpec()), silent, workers)  # no limit of time
        if (found := list(trial.history.position)) != expected:
            own = f"worker {workers.rank} found the checkpoint of position {found}"
            others = f"worker 0 that of {expected}"
            raise RuntimeError(f"{own}, {others}; all workers must read the same results folder")
        work(trial)
    except Diverged:
        return
    except (StorageError, CorpusError):
        raise
    except Exception as error:
        if workers.explains(error):
            raise LostWorker(sentence(str(error))) from None
        raise Failed(status_of(error), first_line(error), traceback.format_exc()) from None


def begin(
    task: Task,
    log: logging.Logger,
    workers: Workers,
    listener: Listener = lambda progress: None,
    stop: StopRequest | None = None,
) -> Trial:
    """Find the checkpoint to resume from, and begin a session. The first worker notes the attempt.

    Without a checkpoint to resume from, all are removed: by their names they would count as newer
    than those to come.
    """
    log.info("trial %s: %s", task.id, task.spec)
    checkpoints = Checkpoints(task.folder, log.warning)
    # A task that is to begin afresh does so once: after a death, the checkpoints are of this run.
    again = sessions.follows(task.folder, task.driver)
    resumed = checkpoints.newest(task.id) if again or not task.fresh else None
    if resumed is not None:
        log.info("goes on from its checkpoint: epoch %d, %d steps done", *resumed.position)
    elif not workers.rank:
        checkpoints.remove()
    task = with_exact_route(task, resumed)
    if workers.rank:
        past = History(task, resumed, sessions.last(task.folder))
    else:
        past = History.begun(task, resumed, log.warning)
    return Trial(
        task=task,
        history=past,
        watch=Watch(task, past.elapsed),
        log=log,
        workers=workers,
        checkpoints=checkpoints,
        listener=listener,
        stop=stop or StopRequest(),
    )


def work(trial: Trial) -> None:
    """The stages of a trial; of a further worker, to the end of training."""
    spec = trial.task.spec
    with trial.watch, contained(components(spec)), noted(spec) as readings:
        trial.history.readings = readings
        built = stages.build(trial)
        with conditions(trial.task), guarded(components(spec)), using(trial.history.choice):
            stages.fit(trial, built)
            if trial.workers.rank:  # what is measured, the first worker measures
                return
            counted = stages.evaluate(trial, built)
            stages.time(trial, built)
            stages.check(trial, built, counted)
        stages.complete(trial, built, counted)


def record_of(task: Task, past: History, outcome: Outcome) -> TrialRecord:
    record = TrialRecord(
        suite=task.suite,
        spec=task.spec,
        status=outcome.status,
        metrics=outcome.metrics,
        curve=tuple(outcome.fitted.curve),
        environment=past.environment(graphed=outcome.fitted.graphed),
        message=outcome.message,
        weights_sha256=outcome.weights_sha256,
        contents=task.contents,
        certificate=outcome.certificate,
        not_certified=outcome.not_certified,
        code=past.code,
        tuning=task.tuning,
    )
    return store.measured(record)


def tidy(folder: Path, status: Status) -> None:
    """Remove the files that a finished trial does not need. `attempt.json` goes last: it marks what
    is not tidied.
    """
    if status not in RESUMABLE:
        Checkpoints(folder).remove()
    sessions.end(folder)


def status_of(error: Exception) -> Status:
    if isinstance(error, Diverged):
        return "diverged"
    if isinstance(error, TimedOut):
        return "timeout"
    return "oom" if is_out_of_memory(error) else "error"


@contextmanager
def failure_as_status(trial: Trial) -> Iterator[None]:
    """An error within it ends the block and becomes the trial's status and message, with a
    traceback in the log.

    Raises: StorageError and CorpusError as they are, and LostWorker when another worker has ended:
    these are no failures of the trial.
    """
    try:
        yield
    except (StorageError, CorpusError) as fault:
        trial.log.error("interrupted: %s", fault)
        raise
    except KeyboardInterrupt as interruption:
        fault = interruption.__context__
        asked = "interrupted: the process was asked to end"
        if isinstance(fault, StorageError):
            trial.log.error("%s, and the trial is not saved: %s", asked, fault)
            raise fault from None
        trial.log.error(asked)
        raise
    except Exception as error:
        if trial.workers.explains(error):
            trial.log.error("interrupted: another worker of this trial has ended")
            raise LostWorker(sentence(str(error))) from error
        outcome = trial.outcome
        outcome.status = status_of(error)
        outcome.message = first_line(error)
        outcome.certificate = None  # which is of a trial that ends well
        trial.log.error("%s\n%s", outcome.status, traceback.format_exc())


def refuse_hopeless(trial: Trial) -> None:
    """Raises TimedOut after an attempt that was silent, WorkerDied after too many deaths at this
    position.
    """
    past = trial.history
    if past.stuck:
        silent = "the attempt before gave no sign of life, and was ended here"
        trial.log.error("%s:\n%s", silent, past.stuck)
        raise TimedOut(SILENT)
    if past.attempt.deaths >= MAX_DEATHS:
        epoch, step = past.position
        deaths = f"the worker died {past.attempt.deaths} times"
        raise WorkerDied(f"{deaths} after {step} steps of epoch {epoch}")


def give_up(task: Task, status: Status, message: str) -> TrialRecord:
    """Save the record of a trial whose worker died too often to make one, with the curve of its
    newest checkpoint, and return it. A record that the trial saved itself is kept and returned,
    unless it is the one to be replaced. Raises StorageError.
    """
    with store.writing(task.runs, task.id, wait=LOCK_SECONDS):
        if (own := _other_record(task)) is not None:
            return own
        store.set_aside(task.runs, task.id)
        checkpoint = Checkpoints(task.folder).newest(task.id)
        outcome = Outcome(status=status, message=sentence(message))
        if checkpoint is not None:
            outcome.fitted.load_state_dict(checkpoint.parts["fitted"])
        record = record_of(task, History(task, checkpoint, sessions.last(task.folder)), outcome)
        with trial_log(task.folder) as log:
            log.error("%s: %s", status, message)
        store.save(record, task.runs)
        sessions.end(task.folder)
        return record


def settle(task: Task, failures: dict[int, BaseException]) -> None:
    """After a trial's workers were ended: save a record of the worker that failed, unless the first
    one saved its own.

    Args:
        failures: rank -> what was raised there, or an error that stands for its death.
    Raises: LostWorker when no worker failed, so that the trial is to be resumed; StorageError and
        CorpusError, as the first worker raised them.
    """
    if _other_record(task) is not None:
        return
    # A missing corpus or a full disk is no failure of the trial, whatever else went wrong after it.
    for failure in failures.values():
        if isinstance(failure, StorageError | CorpusError):
            raise failure
    for rank, failure in failures.items():
        if isinstance(failure, Failed):
            with trial_log(task.folder) as log:
                number = task.spec.train.data_parallel
                log.error("worker %d of %d:\n%s", rank, number, failure.trace)
            give_up(task, failure.status, failure.message)
            return
    reasons = []
    for rank, failure in failures.items():
        lines = f"worker {rank}: {type(failure).__name__}: {failure}".splitlines()
        reasons.append(lines[0])
    raise LostWorker("; ".join(reasons) or "the workers could not be started")


def _other_record(task: Task) -> TrialRecord | None:
    """The trial's record, unless it is the one to be replaced."""
    known, _ = store.load_all(task.runs, [task.id])
    record = known.get(task.id)
    if record is None or store.digest(record) == task.replaces:
        return None
    return record
