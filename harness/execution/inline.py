"""The inline executor: trials run in this process, one after the other, for example under a debugger.

The results are the same bits as under Ray.
"""

from dataclasses import replace

from harness.errors import CorpusError, ExecutionError, StorageError
from harness.execution.events import Event, GuardedListener, OnEvent
from harness.execution.resources import Resources, check_workers
from harness.machine.environment import cpus_available, resolve_device
from harness.plan.specs import TrialSpec
from harness.records.record import TrialRecord
from harness.records.timings import Timing
from harness.training.loop import Progress
from harness.training.step import refuse_unfit
from harness.trial.exclusive_times import timed
from harness.trial.run import run
from harness.trial.setting import Setting
from harness.trial.sources import fetch_sources


def execute(
    specs: list[TrialSpec], setting: Setting, resources: Resources, on_event: OnEvent, *, fail_fast: bool = False
) -> None:
    """Run every trial; each saves its record.

    Args:
        on_event: called with each event of each trial.
        fail_fast: stop after the first trial that fails.
    Raises: ExecutionError when this machine has fewer CPUs than a trial needs, or a trial does not fit its device or
        has several workers; CorpusError when a corpus cannot be read or downloaded. No trial was started then.
    """
    setting = _prepare(specs, setting, resources)
    report = GuardedListener(on_event)
    for spec in specs:
        report(Event(kind="started", spec=spec))
        end = _run_one(spec, setting, report)
        report(end)
        if fail_fast and not end.ok:
            return


def time_rows(records: list[TrialRecord], setting: Setting, resources: Resources) -> tuple[list[Timing], list[str]]:
    """Time finished trials, one at a time (see harness.trial.exclusive_times.timed). Raises as `execute` does."""
    return timed(records, _prepare([record.spec for record in records], setting, resources))


def _prepare(specs: list[TrialSpec], setting: Setting, resources: Resources) -> Setting:
    """Check that the trials can run on this machine, get what they read, and fill in the setting's device."""
    workers = max((spec.train.data_parallel for spec in specs), default=1)
    if workers > 1:
        raise ExecutionError(f"trials of {workers} workers (train.data_parallel) need Ray: leave out --executor inline")
    check_workers(specs, resources)
    if resources.cpus > cpus_available():
        raise ExecutionError(
            f"a trial needs {resources.cpus} CPUs and this machine has {cpus_available()}; change resources.cpus in "
            "the suite or --cpus-per-trial"
        )
    device = "cpu" if resources.gpus == 0 and setting.device == "auto" else str(resolve_device(setting.device))
    for spec in specs:
        refuse_unfit(spec.train, device)
    fetch_sources(specs, setting.data)
    return replace(setting, device=device, threads=resources.cpus)


def _run_one(spec: TrialSpec, setting: Setting, on_event: OnEvent) -> Event:
    """Run one trial; returns its last event."""

    def report(progress: Progress) -> None:
        on_event(Event(kind="progress", spec=spec, progress=progress))

    try:
        record = run(spec, setting, report, setting.replaces.get(spec.id))
    except (StorageError, CorpusError) as fault:  # not the trial's fault: it has no record, and the others may run
        return Event(kind="finished", spec=spec, message=str(fault))
    return Event(kind="finished", spec=spec, record=record)
