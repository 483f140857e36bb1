"""Trials in this process, one after the other: for a debugger, or where Ray is not wanted. Same bits as under Ray."""

from dataclasses import replace

from harness import records
from harness.corpora.sources import fetch_corpora
from harness.environment import cpus_available, resolve_device
from harness.errors import ExecutionError
from harness.execution.events import Claim, Event, OnEvent
from harness.plan.specs import TrialSpec
from harness.trial.run import Setting, run
from harness.trial.step import refuse_unfit


def execute(specs: list[TrialSpec], setting: Setting, claim: Claim, on_event: OnEvent) -> None:
    """Run every trial and save its record. Raises ExecutionError when the claim exceeds this machine or a trial does
    not fit its device, CorpusError when a corpus cannot be had; nothing was started then.
    """
    if claim.cpus > cpus_available():
        raise ExecutionError(f"a trial claims {claim.cpus} CPUs and this machine has {cpus_available()}")
    device = "cpu" if claim.gpus == 0 and setting.device == "auto" else str(resolve_device(setting.device))
    setting = replace(setting, device=device, threads=claim.cpus)
    for spec in specs:
        refuse_unfit(spec.train, device)
    fetch_corpora(specs, setting.data)
    for spec in specs:
        on_event(Event(kind="started", spec=spec))
        try:
            on_event(Event(kind="finished", spec=spec, record=_run_and_save(spec, setting, on_event)))
        except OSError as fault:  # its folder cannot be written: this trial is lost, the others may not be
            on_event(Event(kind="finished", spec=spec, message=f"{type(fault).__name__}: {fault}"))


def _run_and_save(spec: TrialSpec, setting: Setting, on_event: OnEvent) -> records.TrialRecord:
    record = run(spec, setting, lambda progress: on_event(Event(kind="progress", spec=spec, progress=progress)))
    records.save(record, setting.runs)
    return record
