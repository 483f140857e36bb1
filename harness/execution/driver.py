"""The driver's part of a run: check the place, hand what is pending to an executor, log each record to MLflow."""

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from harness.errors import ExecutionError, StorageError
from harness.execution.events import Claim, Event
from harness.execution.progress.live import LiveView
from harness.kernels import probe
from harness.plan.specs import TrialSpec
from harness.records import store
from harness.records.record import TrialRecord
from harness.tracking.safe_tracker import SafeTracker
from harness.training.checkpoint import BEST, ends_with_seal
from harness.trial import attempt
from harness.trial.log import LOG_NAME
from harness.trial.run import tidy
from harness.trial.setting import Setting


def run_trials(
    todo: list[TrialSpec],
    setting: Setting,
    claim: Claim,
    address: str,
    view: LiveView,
    tracking: SafeTracker,
    *,
    fail_fast: bool = False,
) -> None:
    """Run trials by the setting's executor; each record is logged to MLflow as it comes in.

    Raises: ExecutionError when the runs' folder cannot be written or the claim fits no machine; CorpusError when a
    corpus cannot be had. Nothing was started then.
    """
    _refuse_unwritable(setting.runs)
    if not on_gpu(setting, claim):
        setting = with_route(setting)  # once, here: trials of one run multiply alike

    def on_event(event: Event) -> None:
        view(event)
        if event.record is not None:
            tracking.call(lambda tracker: tracker.log(event.record))

    if setting.executor == "inline":
        from harness.execution import inline

        with view:
            inline.execute(todo, setting, claim, on_event, fail_fast=fail_fast)
    else:
        from harness.execution.ray import schedule

        with view:
            schedule.execute(todo, setting, claim, on_event, address, fail_fast=fail_fast)


def tidy_finished(runs: Path, finished: Iterable[str]) -> None:
    """Remove what workers left that were killed between saving the record of a trial and tidying up. A trial that
    another process has is left to it.
    """
    for trial in finished:
        folder = store.folder(runs, trial)
        if not attempt.ended(folder):
            with contextlib.suppress(StorageError), store.writing(runs, trial, wait=0):
                known, _ = store.load_all(runs, [trial])  # once more: another may have set it aside meanwhile
                if trial in known:
                    tidy(folder, known[trial].status)


def without_weights(runs: Path, known: Mapping[str, TrialRecord]) -> list[str]:
    """The trials that ended well here and whose best.pt is missing or cut off. A trial was trained here where its log
    is: imported and committed records come without log and weights.
    """
    ok = [store.folder(runs, trial) for trial, record in known.items() if record.status == "ok"]
    return [folder.name for folder in sorted(ok) if (folder / LOG_NAME).exists() and not ends_with_seal(folder / BEST)]


def on_gpu(setting: Setting, claim: Claim) -> bool:
    """Where the trials will run, as far as this machine tells."""
    return setting.device == "cuda" or (setting.device == "auto" and claim.gpus != 0 and torch.cuda.is_available())


def with_route(setting: Setting) -> Setting:
    """With the route of float32 products that this machine's probe chose."""
    return replace(setting, route=probe.chosen_route())


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
