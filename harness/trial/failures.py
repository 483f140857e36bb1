"""What a trial's failure is: a status of its record, and when a further attempt has no hope."""

import logging

import torch

from harness.records.record import Status
from harness.training.loop import Diverged
from harness.trial.attempt import MAX_DEATHS, Attempt
from harness.trial.watch import SILENT, TimedOut

NO_MEMORY = ("can't allocate memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")


class WorkerDied(Exception):
    """A trial that took its worker with it, again."""


def status_of(error: Exception) -> Status:
    """What a failure is in a record."""
    if isinstance(error, Diverged):
        return "diverged"
    if isinstance(error, TimedOut):
        return "timeout"
    no_memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or any(each in str(error) for each in NO_MEMORY)
    return "oom" if no_memory else "error"


def refuse_hopeless(this: Attempt, traces: str, log: logging.Logger) -> None:
    """Raises TimedOut when the attempt before was silent, WorkerDied when too many workers died at this position."""
    if traces:
        log.error("the attempt before gave no sign of life, and was ended here:\n%s", traces)
        raise TimedOut(SILENT)
    if this.deaths >= MAX_DEATHS:
        epoch, step = this.position
        raise WorkerDied(f"the worker died {this.deaths} times after {step} steps of epoch {epoch}")
