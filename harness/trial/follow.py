"""A data-parallel trial in its further workers: they train together with the first one and write nothing."""

import logging
import traceback
from dataclasses import replace

from harness.containment.calls import contained, first_line
from harness.errors import CorpusError, StorageError
from harness.kernels.choice import Choice, using
from harness.model import components
from harness.plan.suite_file import TimeoutSpec
from harness.printable import sentence
from harness.records import store
from harness.records.record import Status
from harness.training.checkpoint import Checkpoint, Checkpoints, NoCheckpoints, Position
from harness.training.data_parallel import LostWorker, Workers
from harness.training.step import Diverged
from harness.trial import attempt, stages
from harness.trial.conditions import conditions, with_exact_route
from harness.trial.context import TrialContext
from harness.trial.failures import status_of
from harness.trial.log import trial_log
from harness.trial.lost import give_up
from harness.trial.session import Session
from harness.trial.task import Task
from harness.trial.watch import Watch


class Failed(Exception):
    """A further worker failed: what the trial's record is to say, and the traceback. The first one does not know it."""

    def __init__(self, status: Status, message: str, trace: str):
        super().__init__(status, message, trace)
        self.status, self.message, self.trace = status, message, trace


class Ended(Exception):
    """The first worker has ended before the others, which are to be ended, too."""


def follow(task: Task, workers: Workers) -> None:
    """Train together with the first worker, from the checkpoint that it is resumed from. Returns when training has
    ended or diverged; the first worker finds the same.

    The first worker enforces the trial's limits of time; each worker enforces the limits of memory for itself.

    Raises: Failed with what went wrong here; LostWorker; CorpusError and StorageError, as harness.trial.run.run.
    """
    try:
        trial = _begin(task, workers)
        with trial.watch, contained(components(task.spec)):
            built = stages.build(trial)
            with conditions(trial.task), using(trial.session.choice):
                stages.fit(trial, built)
    except Diverged:
        return
    except (StorageError, CorpusError):
        raise
    except Exception as error:
        if workers.explains(error):
            raise LostWorker(sentence(str(error))) from None
        raise Failed(status_of(error), first_line(error), traceback.format_exc()) from None


def _begin(task: Task, workers: Workers) -> TrialContext:
    """The context of a worker that writes nothing, neither log nor checkpoints."""
    silent = logging.getLogger(f"{__name__}.{task.id}")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    resumed = _resumed(task, workers)
    task = replace(with_exact_route(task, resumed), timeout=TimeoutSpec())
    return TrialContext(
        task=task,
        session=Session(task, resumed, Choice(attempt.left_out(attempt.last(task.folder)))),
        log=silent,
        workers=workers,
        watch=Watch(task, 0.0),
        checkpoints=NoCheckpoints(),
        report=lambda progress: None,
        resumed=resumed,
    )


def _resumed(task: Task, workers: Workers) -> Checkpoint | None:
    """The checkpoint that the first worker is resumed from; it writes none before all workers have read this one."""
    expected = workers.from_first(0, 0)
    checkpoint = Checkpoints(task.folder).newest(task.id)
    found = list(checkpoint.position if checkpoint is not None else Position())
    if found != expected:
        raise RuntimeError(
            f"worker {workers.rank} found the checkpoint of position {found}, worker 0 that of {expected}; "
            "all workers must read the same results folder"
        )
    return checkpoint


def settle(task: Task, failures: dict[int, BaseException]) -> None:
    """After a trial's workers were ended: save a record of the worker that failed, unless the first one saved its own.

    Args:
        failures: rank -> what was raised there, or an error that stands for its death.
    Raises: LostWorker when no worker failed, so that the trial is to be resumed; StorageError and CorpusError, as the
        first worker raised them.
    """
    known, _ = store.load_all(task.runs, [task.id])
    if task.id in known and store.digest(known[task.id]) != task.replaces:
        return
    for failure in failures.values():
        if isinstance(failure, StorageError | CorpusError):
            raise failure
    for rank, failure in failures.items():
        if isinstance(failure, Failed):
            with trial_log(task.folder) as log:
                log.error("worker %d of %d:\n%s", rank, task.spec.train.data_parallel, failure.trace)
            give_up(task, failure.status, failure.message)
            return
    said = "; ".join(f"worker {rank}: {type(each).__name__}: {each}".splitlines()[0] for rank, each in failures.items())
    raise LostWorker(said or "the workers could not be started")
