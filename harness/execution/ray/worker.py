"""What a worker process under Ray does: it runs one short trial after another, since to start a process takes longer
than such a trial.

The next trial finds the process as a new one would be, as far as that can be had: garbage is collected, free memory is
returned to the system, and a worker runs no further trial (`fault_of`) after one that did not end `ok`, once it holds
much more memory than in the beginning, or once it is some minutes old. A long trial has had its process to itself then.
"""

import ctypes
import gc
import sys
import time
from dataclasses import asdict
from typing import Any

import torch

from harness.execution.ray import cluster

cluster.set_environment()
cluster.show_token()

from ray import tune  # noqa: E402

from harness.errors import CorpusError, StorageError  # noqa: E402
from harness.execution.ray.payload import Parcel  # noqa: E402
from harness.plan.specs import TrialSpec  # noqa: E402
from harness.training.clocks import peak_memory_mib, reset_peak_memory  # noqa: E402
from harness.trial.run import run  # noqa: E402

MAX_AGE_SECONDS = 300.0
MAX_GROWTH_MIB = 256  # of the memory at which the next trial would begin, over that of a new process
_STARTED, _MIB_AT_START = time.monotonic(), peak_memory_mib(torch.device("cpu"))


class Retired(Exception):
    """This worker runs no further trial. Ray starts another one for those that wait."""


def run_trial(config: dict[str, Any]) -> None:
    """In the worker: one trial, which saves its record; the worker's next trial is another call.

    Raises: Retired when this worker is to run no further trial; Tune tries the same trial again in a new worker, finds
        `ended` there, and gives the worker to the next one.
    """
    if config.get("ended"):
        return
    parcel = Parcel.unpack(config["trial"])
    status = _status_after(parcel)
    clean(parcel.setting.device)
    if fault := fault_of(parcel.spec, status, parcel.setting.device):
        tune.report({"retired": fault})
        raise Retired(fault)


def _status_after(parcel: Parcel) -> str:
    """Run a trial; the status of its record. What a worker cannot write is no fault of the trial: it is 'lost'."""
    try:
        if parcel.spec.train.data_parallel == 1:
            record = run(parcel.spec, parcel.setting, lambda done: tune.report(asdict(done)), parcel.replaces)
            return record.status
        from harness.execution.ray.worker_group import train_together  # Ray Train: half a second in each worker

        train_together(parcel, tune.report)
        return "ok"
    except (StorageError, CorpusError) as fault:
        tune.report({"lost": str(fault)})
        return "lost"


def fault_of(spec: TrialSpec, status: str, device: str) -> str:
    """Why this worker is to run no further trial after this one; '' when it may.

    Args:
        status: of the trial's record, or 'lost' when it left none.
        device: 'cpu' or 'cuda', where the trial ran.
    """
    if status != "ok":
        return f"its trial ended as {status}"
    if spec.train.data_parallel > 1:
        return "its trial had workers of its own"
    if (age := time.monotonic() - _STARTED) > MAX_AGE_SECONDS:
        return f"it is {age / 60:.1f} minutes old"
    if (grown := _left_mib(device)) > MAX_GROWTH_MIB:
        return f"its trials left {grown:.0f} MiB of memory behind"
    return ""


def clean(device: str) -> None:
    """Give back the memory of a trial that has ended: to the allocators, and from there to the system or the GPU. What
    is left, modules above all, is not looked through again after the next trial, which would take a tenth of a second.
    """
    gc.collect()
    gc.freeze()
    if device == "cuda":
        torch.cuda.empty_cache()
    elif sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):  # glibc has it
        trim(0)


def _left_mib(device: str) -> float:
    """MiB that the next trial's peak would begin with and a new worker's would not: allocated on the GPU, or resident
    in this process, and where the system does not let the peak be reset, that of all its trials.
    """
    reset_peak_memory(torch.device(device))
    return peak_memory_mib(torch.device(device)) - (_MIB_AT_START if device == "cpu" else 0.0)
