"""The inline executor: trials run in this process, one after the other, for example under a debugger.

The results are the same bits as under Ray.
"""

from collections.abc import Mapping
from dataclasses import replace

from harness.errors import CorpusError, ExecutionError, StorageError
from harness.execution.executors import Event, Execution, GuardedListener, OnEvent, Resources, check_workers
from harness.machine.environment import cpus_available, resolve_device
from harness.records.record import TrialRecord
from harness.records.sidecars import Timing
from harness.training.loop import Progress
from harness.training.step import refuse_unfit
from harness.trial.run import run
from harness.trial.setup import fetch_sources
from harness.trial.task import Task
from harness.trial.turns import timed


def execute(execution: Execution, on_event: OnEvent) -> None:
    """See Executor. Raises ExecutionError also for a trial of several workers."""
    report = GuardedListener(on_event)
    for task in _prepare(execution.tasks, execution.resources):
        report(Event(kind="started", spec=task.spec))
        end = _run_one(task, report)
        report(end)
        if execution.fail_fast and not end.ok:  # guard: fail-fast-inline
            return


def time_rows(execution: Execution, records: Mapping[str, TrialRecord]) -> tuple[list[Timing], list[str]]:
    """See Executor."""
    return timed(_prepare(execution.tasks, execution.resources), records)


def _prepare(tasks: list[Task], resources: Resources) -> list[Task]:
    """Check that the trials can run on this machine, get what they read, and fill in their device and threads."""
    workers = max(task.spec.train.data_parallel for task in tasks)
    if workers > 1:
        raise ExecutionError(f"trials of {workers} workers (train.data_parallel) need Ray: leave out --executor inline")
    check_workers(tasks, resources)
    if resources.cpus > cpus_available():
        raise ExecutionError(
            f"a trial needs {resources.cpus} CPUs and this machine has {cpus_available()}; change resources.cpus in "
            "the suite or --cpus-per-trial"
        )
    asked = tasks[0].device
    device = "cpu" if resources.gpus == 0 and asked == "auto" else str(resolve_device(asked))
    for task in tasks:
        refuse_unfit(task.spec.train, device)
    fetch_sources([task.spec for task in tasks], tasks[0].data)
    return [replace(task, device=device, threads=resources.cpus) for task in tasks]


def _run_one(task: Task, on_event: OnEvent) -> Event:
    def report(progress: Progress) -> None:
        on_event(Event(kind="progress", spec=task.spec, progress=progress))

    try:
        record = run(task, report)
    except (StorageError, CorpusError) as fault:  # not the trial's fault: it has no record, and the others may run
        return Event(kind="finished", spec=task.spec, message=str(fault))
    return Event(kind="finished", spec=task.spec, record=record)
