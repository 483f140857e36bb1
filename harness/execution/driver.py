"""The driver's part of a run: check the place, hand what is pending to an executor, log each record to MLflow."""

import os
from dataclasses import replace
from pathlib import Path

import torch

from harness.errors import ExecutionError
from harness.execution.events import Claim, Event
from harness.execution.live import LiveView
from harness.execution.tracked import Tracking
from harness.kernels import probe
from harness.plan.specs import TrialSpec
from harness.trial.setting import Setting


def run_trials(
    todo: list[TrialSpec],
    setting: Setting,
    claim: Claim,
    address: str,
    view: LiveView,
    tracking: Tracking,
    *,
    fail_fast: bool = False,
) -> None:
    """Run trials by the setting's executor; each record is logged to MLflow as it comes in.

    Raises: ExecutionError when the runs' folder cannot be written or the claim fits no machine; CorpusError when a
    corpus cannot be had. Nothing was started then.
    """
    _refuse_unwritable(setting.runs)
    if not _on_gpu(setting, claim):
        setting = replace(setting, route=probe.chosen_route())  # once, here: trials of one run multiply alike

    def on_event(event: Event) -> None:
        view(event)
        if event.record is not None:
            tracking.call(lambda tracker: tracker.log(event.record))

    if setting.executor == "inline":
        from harness.execution import inline

        with view:
            inline.execute(todo, setting, claim, on_event, fail_fast=fail_fast)
    else:
        from harness.execution import schedule

        with view:
            schedule.execute(todo, setting, claim, on_event, address, fail_fast=fail_fast)


def _on_gpu(setting: Setting, claim: Claim) -> bool:
    """Where the trials will run, as far as this machine tells."""
    return setting.device == "cuda" or (setting.device == "auto" and claim.gpus != 0 and torch.cuda.is_available())


def _refuse_unwritable(runs: Path) -> None:
    probe = runs / f".probe-{os.getpid()}"
    try:
        runs.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as cause:
        raise ExecutionError(
            f"{runs} cannot be written ({cause.strerror}); name another folder with --results"
        ) from cause
