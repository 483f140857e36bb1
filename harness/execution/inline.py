"""Trials in this process, one after the other: for a debugger, or where Ray is not wanted. Same bits as under Ray."""

from dataclasses import replace

from harness.corpora.sources import fetch_corpora
from harness.environment import cpus_available, resolve_device
from harness.errors import CorpusError, ExecutionError, StorageError
from harness.execution.capacity import refuse_contradiction
from harness.execution.events import Claim, Event, Guarded, OnEvent
from harness.plan.specs import TrialSpec
from harness.trial.progress import Progress
from harness.trial.run import run
from harness.trial.setting import Setting
from harness.trial.step import refuse_unfit


def execute(
    specs: list[TrialSpec], setting: Setting, claim: Claim, on_event: OnEvent, *, fail_fast: bool = False
) -> None:
    """Run every trial; each saves its record. With `fail_fast`, none after the first that fails.

    Raises: ExecutionError when the claim exceeds this machine or a trial does not fit its device or has several
        workers, CorpusError when a corpus cannot be had; nothing was started then.
    """
    workers = max((spec.train.data_parallel for spec in specs), default=1)
    if workers > 1:
        raise ExecutionError(f"trials of {workers} workers (train.data_parallel) need Ray: leave out --executor inline")
    refuse_contradiction(specs, claim)
    if claim.cpus > cpus_available():
        raise ExecutionError(f"a trial claims {claim.cpus} CPUs and this machine has {cpus_available()}")
    device = "cpu" if claim.gpus == 0 and setting.device == "auto" else str(resolve_device(setting.device))
    setting = replace(setting, device=device, threads=claim.cpus)
    for spec in specs:
        refuse_unfit(spec.train, device)
    fetch_corpora(specs, setting.data)
    tell = Guarded(on_event)
    for spec in specs:
        tell(Event(kind="started", spec=spec))
        end = _ended(spec, setting, tell)
        tell(end)
        if fail_fast and not end.ok:
            return


def _ended(spec: TrialSpec, setting: Setting, tell: OnEvent) -> Event:
    def report(progress: Progress) -> None:
        tell(Event(kind="progress", spec=spec, progress=progress))

    try:
        record = run(spec, setting, report, setting.replaces.get(spec.id))
    except (StorageError, CorpusError) as fault:  # none of the trial's own: it waits, the others may go on
        return Event(kind="finished", spec=spec, message=str(fault))
    return Event(kind="finished", spec=spec, record=record)
