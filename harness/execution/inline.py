"""Trials in this process, one after the other: for a debugger, or where Ray is not wanted. Same bits as under Ray."""

from dataclasses import replace

from harness.errors import CorpusError, ExecutionError, StorageError
from harness.execution.events import Claim, Event, Guarded, OnEvent
from harness.execution.resources import refuse_contradiction
from harness.machine.environment import cpus_available, resolve_device
from harness.plan.specs import TrialSpec
from harness.records.record import TrialRecord
from harness.records.timings import Timing
from harness.training.progress import Progress
from harness.training.step import refuse_unfit
from harness.trial.exclusive_times import timed
from harness.trial.run import run
from harness.trial.setting import Setting
from harness.trial.sources import fetch_sources


def execute(
    specs: list[TrialSpec], setting: Setting, claim: Claim, on_event: OnEvent, *, fail_fast: bool = False
) -> None:
    """Run every trial; each saves its record. With `fail_fast`, none after the first that fails.

    Raises: ExecutionError when the claim exceeds this machine or a trial does not fit its device or has several
        workers, CorpusError when a corpus cannot be had; nothing was started then.
    """
    setting = _ready(specs, setting, claim)
    tell = Guarded(on_event)
    for spec in specs:
        tell(Event(kind="started", spec=spec))
        end = _ended(spec, setting, tell)
        tell(end)
        if fail_fast and not end.ok:
            return


def time_rows(found: list[TrialRecord], setting: Setting, claim: Claim) -> tuple[list[Timing], list[str]]:
    """An exclusive pass over finished trials, as harness.trial.exclusive_times.timed. Raises as `execute`."""
    return timed(found, _ready([record.spec for record in found], setting, claim))


def _ready(specs: list[TrialSpec], setting: Setting, claim: Claim) -> Setting:
    """The setting as this machine has it, where the trials can run here and what they read is there."""
    workers = max((spec.train.data_parallel for spec in specs), default=1)
    if workers > 1:
        raise ExecutionError(f"trials of {workers} workers (train.data_parallel) need Ray: leave out --executor inline")
    refuse_contradiction(specs, claim)
    if claim.cpus > cpus_available():
        raise ExecutionError(f"a trial claims {claim.cpus} CPUs and this machine has {cpus_available()}")
    device = "cpu" if claim.gpus == 0 and setting.device == "auto" else str(resolve_device(setting.device))
    for spec in specs:
        refuse_unfit(spec.train, device)
    fetch_sources(specs, setting.data)
    return replace(setting, device=device, threads=claim.cpus)


def _ended(spec: TrialSpec, setting: Setting, tell: OnEvent) -> Event:
    def report(progress: Progress) -> None:
        tell(Event(kind="progress", spec=spec, progress=progress))

    try:
        record = run(spec, setting, report, setting.replaces.get(spec.id))
    except (StorageError, CorpusError) as fault:  # none of the trial's own: it waits, the others may go on
        return Event(kind="finished", spec=spec, message=str(fault))
    return Event(kind="finished", spec=spec, record=record)
