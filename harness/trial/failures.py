"""A trial's failure: as a status of its record, and as a reason to make no further attempt."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.containment.calls import first_line
from harness.errors import CorpusError, StorageError
from harness.printable import sentence
from harness.records.record import Status
from harness.training.data_parallel import LostWorker
from harness.training.step import Diverged
from harness.trial.attempt import MAX_DEATHS
from harness.trial.context import TrialContext
from harness.trial.watch import SILENT, TimedOut

NO_MEMORY = ("can't allocate memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")


class WorkerDied(Exception):
    """Several workers died in a trial, at the same position."""


def status_of(error: Exception) -> Status:
    """The status of a trial that an error ended."""
    if isinstance(error, Diverged):
        return "diverged"
    if isinstance(error, TimedOut):
        return "timeout"
    no_memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or any(each in str(error) for each in NO_MEMORY)
    return "oom" if no_memory else "error"


@contextmanager
def failure_as_status(trial: TrialContext) -> Iterator[None]:
    """An error within it ends the block and becomes the trial's status and message, with a traceback in the log.

    Raises: StorageError and CorpusError as they are, and LostWorker when another worker has ended: these are no
    failures of the trial.
    """
    try:
        yield
    except (StorageError, CorpusError) as fault:
        trial.log.error("interrupted: %s", fault)
        raise
    except KeyboardInterrupt as interruption:
        fault = interruption.__context__
        if isinstance(fault, StorageError):
            trial.log.error("interrupted: the process was asked to end, and the trial is not saved: %s", fault)
            raise fault from None
        trial.log.error("interrupted: the process was asked to end")
        raise
    except Exception as error:
        if trial.workers.explains(error):
            trial.log.error("interrupted: another worker of this trial has ended")
            raise LostWorker(sentence(str(error))) from error
        outcome = trial.outcome
        outcome.status, outcome.message, outcome.certificate = status_of(error), first_line(error), None
        trial.log.error("%s\n%s", outcome.status, traceback.format_exc())


def refuse_hopeless(trial: TrialContext) -> None:
    """Raises TimedOut when the attempt before was ended for silence, WorkerDied when too many workers have died at the
    position that the trial is resumed from.
    """
    if trial.stuck:
        trial.log.error("the attempt before gave no sign of life, and was ended here:\n%s", trial.stuck)
        raise TimedOut(SILENT)
    if trial.attempt.deaths >= MAX_DEATHS:
        epoch, step = trial.attempt.position
        raise WorkerDied(f"the worker died {trial.attempt.deaths} times after {step} steps of epoch {epoch}")
