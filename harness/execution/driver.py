"""The driver of a run: it starts the executor, and logs each new record to MLflow."""

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from harness.errors import ExecutionError, StorageError
from harness.execution.events import Event
from harness.execution.progress.live import LiveView
from harness.execution.resources import LOCAL, Resources
from harness.kernels import probe
from harness.records import store
from harness.records.record import TrialRecord
from harness.tracking.safe_tracker import SafeTracker
from harness.training.checkpoint import BEST, ends_with_seal
from harness.trial import attempt
from harness.trial.log import LOG_NAME
from harness.trial.run import tidy
from harness.trial.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How the trials of one command are executed.

    Args:
        tasks: the trials, all for the same executor and device.
        address: 'local', or the address of a Ray cluster.
        fail_fast: stop at the first trial that fails.
    """

    tasks: list[Task]
    resources: Resources
    address: str = LOCAL
    fail_fast: bool = False

    @property
    def on_gpu(self) -> bool:
        """Whether the trials will run on a GPU, as far as this machine can know."""
        device = self.tasks[0].device
        return device == "cuda" or (device == "auto" and self.resources.gpus != 0 and torch.cuda.is_available())

    def with_route(self) -> "Execution":
        """The same execution with the route of float32 products that this machine has chosen for trials on the CPU. It
        is chosen here, once, so that all trials of a run multiply in the same way.
        """
        if self.on_gpu:
            return self
        route = probe.chosen_route()
        return replace(self, tasks=[replace(task, route=route) for task in self.tasks])


def run_trials(execution: Execution, view: LiveView, tracking: SafeTracker) -> dict[str, TrialRecord]:
    """Run trials with their executor, and log each record to MLflow when it arrives.

    Returns: trial id -> its new record, for the trials that have one.
    Raises: ExecutionError when the folder of the records cannot be written, or no machine has what a trial needs;
        CorpusError when a corpus cannot be read or downloaded. No trial was started in these cases.
    """
    _check_writable(execution.tasks[0].runs)
    execution = execution.with_route()
    tasks, resources, fail_fast = execution.tasks, execution.resources, execution.fail_fast
    records: dict[str, TrialRecord] = {}

    def on_event(event: Event) -> None:
        if event.record is not None:
            records[event.spec.id] = event.record
        view(event)
        if event.record is not None:
            tracking.call(lambda tracker: tracker.log(event.record))

    if tasks[0].executor == "inline":
        from harness.execution import inline

        with view:
            inline.execute(tasks, resources, on_event, fail_fast=fail_fast)
    else:
        from harness.execution.ray import schedule

        with view:
            schedule.execute(tasks, resources, on_event, execution.address, fail_fast=fail_fast)
    return records


def tidy_finished(runs: Path, finished: Iterable[str]) -> None:
    """Remove the temporary files of finished trials whose worker was killed before it could do so. A trial that another
    process is working on is left alone.
    """
    for trial in finished:
        folder = store.folder(runs, trial)
        if not attempt.ended(folder):
            with contextlib.suppress(StorageError), store.writing(runs, trial, wait=0):
                found, _ = store.load_all(runs, [trial])  # read again: another process may have moved it meanwhile
                if trial in found:
                    tidy(folder, found[trial].status)


def without_weights(runs: Path, records: Mapping[str, TrialRecord]) -> list[str]:
    """The ids of trials that ended 'ok' on this machine and whose best.pt is missing or cut off. A trial was trained
    on this machine when its log exists: imported and committed records have no log and no weights.
    """
    ok = [store.folder(runs, trial) for trial, record in records.items() if record.status == "ok"]
    return [folder.name for folder in sorted(ok) if (folder / LOG_NAME).exists() and not ends_with_seal(folder / BEST)]


def _check_writable(runs: Path) -> None:
    probe_file = runs / f".probe-{os.getpid()}"
    try:
        runs.mkdir(parents=True, exist_ok=True)
        probe_file.write_bytes(b"")
        probe_file.unlink()
    except OSError as cause:
        raise ExecutionError(
            f"{runs} cannot be written ({cause.strerror}); name another folder with --results"
        ) from cause
