"""What a Ray worker process does: it runs one trial after another, because starting a process takes longer than a short
trial.

Each trial should find the process as a new one would be: garbage is collected and free memory is returned to the
system between trials. A worker retires (`reason_to_retire`) after a trial that did not end 'ok', when it holds much
more memory than at its start, or when it is some minutes old. A long trial thus has its process for itself.
"""

import ctypes
import gc
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from ray import tune
from ray.tune.trainable.function_trainable import wrap_function

from harness.errors import CorpusError, StorageError
from harness.execution.ray.cluster import STOP_SECONDS
from harness.machine.stop_request import StopRequest
from harness.plan.specs import TrialSpec
from harness.registry import use_home
from harness.training.clocks import peak_memory_mib, reset_peak_memory
from harness.training.loop import Progress
from harness.trial.run import run
from harness.trial.task import Task

MAX_AGE_SECONDS = 300.0
MAX_GROWTH_MIB = 256  # memory at the start of the next trial, above that of a new process
_STARTED, _MIB_AT_START = time.monotonic(), peak_memory_mib(torch.device("cpu"))
_STOP = StopRequest()  # of this process, by a signal or by Tune
_IDLE = threading.Event()  # no trial is under way
_IDLE.set()


def packed(task: Task, scratch: Path) -> dict[str, Any]:
    """What Ray gives a worker: the task as JSON, with its id, and the folder for the temporary files of the run's
    executor, which has copies of the user's heads and backbones.
    """
    return {"id": task.id, "task": task.to_json(), "scratch": str(scratch)}


class Retired(Exception):
    """This worker runs no further trial. Ray starts another worker for the trials that wait."""


def run_trial(config: dict[str, Any]) -> None:
    """Run one trial in this worker; the trial saves its record. Tune calls this again for the worker's next trial.

    Raises: Retired when this worker is to run no further trial. Tune then starts the same trial again in a new worker,
        which finds `ended` there, does nothing, and gets the next trial. After a SIGTERM the new worker continues it.
    """
    if config.get("ended"):
        return
    task, scratch = Task.from_json(config["trial"]["task"]), Path(config["trial"]["scratch"])
    use_home(scratch)
    _IDLE.clear()
    try:
        status = _run(task, scratch)
    except KeyboardInterrupt:
        raise Retired("it was asked to end; the trial is saved") from None
    finally:
        _IDLE.set()
    clean(task.device)
    if reason := reason_to_retire(task.spec, status, task.device):
        tune.report({"retired": reason})
        raise Retired(reason)


class TrialWorker(wrap_function(run_trial)):
    """The class of Ray's worker processes. Its methods run in the main thread, the trials in another one."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        """What Tune reserves for a trial. Ray Train reserves what the workers of a data-parallel trial need, all or
        none; the process that waits for them gets one byte of memory, because Tune cannot reserve nothing.
        """
        task = Task.from_json(config["trial"]["task"])
        alone = task.spec.train.data_parallel == 1
        needed = {"CPU": task.threads, "GPU": task.gpus} if alone else {"memory": 1}
        return tune.PlacementGroupFactory([needed])

    def setup(self, config: dict[str, Any]) -> None:
        """Receive signals from now on: only a main thread can."""
        _STOP.listen()
        super().setup(config)

    def cleanup(self) -> None:
        """Tune ends this worker. A trial under way learns of it when it reports its progress, and is waited for."""
        super().cleanup()
        _IDLE.wait(STOP_SECONDS)


def _report(content: dict[str, Any]) -> None:
    """Report to Tune. When Tune ends the trial, which it does by a SystemExit here, training is asked to stop."""
    try:
        tune.report(content)
    except SystemExit:
        _STOP.ask()


def _run(task: Task, scratch: Path) -> str:
    """Run a trial; returns the status of its record. When the worker cannot write or cannot read the corpus, which is
    not the trial's fault, there is no record and the status is 'lost'.
    """
    try:
        if task.spec.train.data_parallel == 1:

            def report(progress: Progress) -> None:
                _report(asdict(progress))

            return run(task, report, stop=_STOP).status
        from harness.execution.ray.worker_group import train_together  # imports Ray Train, half a second a worker

        train_together(task, scratch, _report, _STOP)
        return "ok"
    except (StorageError, CorpusError) as fault:
        tune.report({"lost": str(fault)})
        return "lost"


def reason_to_retire(spec: TrialSpec, status: str, device: str) -> str:
    """Why this worker is to run no further trial after this one; '' when it may.

    Args:
        status: of the trial's record, or 'lost' when it left none.
        device: 'cpu' or 'cuda', where the trial ran.
    """
    if status != "ok":
        return f"its trial ended as {status}"
    if spec.train.data_parallel > 1:
        return "its trial had several workers"
    if (age := time.monotonic() - _STARTED) > MAX_AGE_SECONDS:
        return f"it is {age / 60:.1f} minutes old"
    if (grown := _growth_mib(device)) > MAX_GROWTH_MIB:
        return f"its trials left {grown:.0f} MiB of memory behind"
    return ""


def clean(device: str) -> None:
    """Free the memory of a trial that has ended, and return it to the system or the GPU. The objects that stay, mostly
    modules, are not searched again by later collections, which saves a tenth of a second after each trial.
    """
    gc.collect()
    gc.freeze()
    if device == "cuda":
        torch.cuda.empty_cache()
    elif sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):  # glibc has it
        trim(0)


def _growth_mib(device: str) -> float:
    """MiB with which the next trial's peak would start here and not in a new worker: allocated on the GPU, or resident
    in this process. Where the system does not let the peak be reset, it is the peak of all its trials.
    """
    reset_peak_memory(torch.device(device))
    return peak_memory_mib(torch.device(device)) - (_MIB_AT_START if device == "cpu" else 0.0)
