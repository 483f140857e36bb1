"""Trials in this process, one after the other: for a debugger, or where Ray is not wanted. Same bits as under Ray."""

from dataclasses import replace

from harness import records
from harness.corpora.sources import fetch_corpora
from harness.environment import cpus_available, resolve_device
from harness.errors import ExecutionError, StorageError
from harness.execution.events import Claim, Event, OnEvent
from harness.plan.specs import TrialSpec
from harness.trial.run import run
from harness.trial.setting import Setting
from harness.trial.step import refuse_unfit


def execute(
    specs: list[TrialSpec], setting: Setting, claim: Claim, on_event: OnEvent, *, fail_fast: bool = False
) -> None:
    """Run every trial; each saves its record. With `fail_fast`, none after the first that fails.

    Raises: ExecutionError when the claim exceeds this machine or a trial does not fit its device, CorpusError when a
    corpus cannot be had; nothing was started then.
    """
    if claim.cpus > cpus_available():
        raise ExecutionError(f"a trial claims {claim.cpus} CPUs and this machine has {cpus_available()}")
    device = "cpu" if claim.gpus == 0 and setting.device == "auto" else str(resolve_device(setting.device))
    setting = replace(setting, device=device, threads=claim.cpus)
    for spec in specs:
        refuse_unfit(spec.train, device)
    fetch_corpora(specs, setting.data)
    replaced = records.digests(setting.runs, [spec.id for spec in specs])
    for spec in specs:
        on_event(Event(kind="started", spec=spec))
        end = _ended(spec, setting, on_event, replaced.get(spec.id))
        on_event(end)
        if fail_fast and not end.ok:
            return


def _ended(spec: TrialSpec, setting: Setting, on_event: OnEvent, replaces: str | None) -> Event:
    try:
        record = run(
            spec, setting, lambda progress: on_event(Event(kind="progress", spec=spec, progress=progress)), replaces
        )
    except StorageError as fault:  # its folder cannot be written: this trial waits, the others may go on
        return Event(kind="finished", spec=spec, message=str(fault))
    return Event(kind="finished", spec=spec, record=record)
