"""The inline executor: trials run in this process, one after the other, for example under a debugger.

The results are the same bits as under Ray.
"""

from collections.abc import Mapping

import torch

from harness.errors import CorpusError, ExecutionError, StorageError
from harness.execution.executors import Event, Execution, GuardedListener, OnEvent, placed
from harness.machine.limits import cpus_available
from harness.records.record import TrialRecord
from harness.records.sidecars import Timing
from harness.training.loop import Progress
from harness.trial.run import run
from harness.trial.task import Task
from harness.trial.timing import exclusive_pass


def execute(execution: Execution, on_event: OnEvent) -> None:
    """See Executor. Raises ExecutionError also for a trial of several workers."""
    report = GuardedListener(on_event)
    for task in _prepare(execution):
        report(Event(kind="started", spec=task.spec))
        end = _run_one(task, report)
        report(end)
        if execution.fail_fast and not end.ok:
            return


def time_rows(execution: Execution, records: Mapping[str, TrialRecord]) -> tuple[list[Timing], list[str]]:
    """See Executor."""
    return exclusive_pass(_prepare(execution), records)


def _prepare(execution: Execution) -> list[Task]:
    """The trials as they run on this machine, which has been checked; what they read is there."""
    workers = max(task.spec.train.data_parallel for task in execution.tasks)
    if workers > 1:
        raise ExecutionError(f"trials of {workers} workers (train.data_parallel) need Ray: leave out --executor inline")
    here = {"CPU": cpus_available(), "GPU": torch.cuda.device_count()}
    return placed(execution, [here], local=True, most=1)[0]


def _run_one(task: Task, on_event: OnEvent) -> Event:
    def report(progress: Progress) -> None:
        on_event(Event(kind="progress", spec=task.spec, progress=progress))

    try:
        record = run(task, report)
    except (StorageError, CorpusError) as fault:  # not the trial's fault: it has no record, and the others may run
        return Event(kind="finished", spec=task.spec, message=str(fault))
    return Event(kind="finished", spec=task.spec, record=record)
