"""Trials in this process, one after the other: for a debugger, or where Ray is not wanted. Same bits as under Ray."""

from dataclasses import replace

from harness import records
from harness.environment import cpus_available, resolve_device
from harness.errors import ExecutionError
from harness.execution.events import Claim, Event, OnEvent
from harness.plan.specs import TrialSpec
from harness.trial.run import Setting, run


def execute(specs: list[TrialSpec], setting: Setting, claim: Claim, on_event: OnEvent) -> None:
    """Run every trial and save its record. Raises ExecutionError when the claim exceeds this machine."""
    if claim.cpus > cpus_available():
        raise ExecutionError(f"a trial claims {claim.cpus} CPUs and this machine has {cpus_available()}")
    setting = replace(setting, device=str(resolve_device(setting.device)), threads=claim.cpus, shared=False)
    for spec in specs:
        on_event(Event(kind="started", spec=spec))
        record = run(
            spec, setting, lambda progress, spec=spec: on_event(Event(kind="progress", spec=spec, progress=progress))
        )
        records.save(record, setting.runs)
        on_event(Event(kind="finished", spec=spec, record=record))
