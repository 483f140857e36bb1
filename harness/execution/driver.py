"""The driver's part of a run: check the place, hand what is pending to an executor, log each record to MLflow."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console

from harness.errors import ExecutionError
from harness.execution.events import Claim, Event
from harness.execution.live import LiveView
from harness.kernels import probe
from harness.plan.specs import TrialSpec
from harness.trial.setting import Setting

if TYPE_CHECKING:
    from harness.execution.tracking import Tracker


def run_trials(
    todo: list[TrialSpec],
    setting: Setting,
    claim: Claim,
    address: str,
    view: LiveView,
    tracking: "Tracking",
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


class Tracking:
    """MLflow at arm's length: opened when first needed, and whatever goes wrong is one warning, never a failed trial.

    Args:
        results: the results folder, or None to track nothing.
        console: where the warning goes.
    """

    def __init__(self, results: Path | None, console: Console):
        self.results, self.console = results, console
        self._tracker: Tracker | None = None

    def call(self, action: Callable[["Tracker"], Any]) -> None:
        """Do something with the tracker, unless tracking is off or has failed before."""
        if self.results is None:
            return
        try:
            if self._tracker is None:
                from harness.execution.tracking import Tracker

                self._tracker = Tracker(self.results)
            action(self._tracker)
        except Exception as error:  # a view of the records is not worth a trial; `harness sync` makes it good
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            self.console.print(f"warning: MLflow is off from here on ({reason}); `harness sync` rebuilds it later")
            self.results = None


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
