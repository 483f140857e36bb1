"""A worker process under Ray runs one short trial after another: to start a process takes longer than such a trial.

The next trial finds the process as a new one would be, as far as that can be had: garbage is collected, free memory is
returned to the system, and a worker runs no further trial (`fault_of`) after one that did not end `ok`, once it holds
much more memory than in the beginning, or once it is some minutes old. A long trial has had its process to itself then.
"""

import ctypes
import gc
import sys
import time

import psutil
import torch

from harness.plan.specs import TrialSpec

MAX_AGE_SECONDS = 300.0
MAX_GROWTH_MIB = 256  # of memory that earlier trials have left behind, on the device of the trials
_STARTED, _AT_START = time.monotonic(), psutil.Process().memory_info().rss


class Retired(Exception):
    """This worker runs no further trial. Ray starts another one for those that wait."""


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
    if (grown := _left_behind_mib(device)) > MAX_GROWTH_MIB:
        return f"its trials left {grown:.0f} MiB of memory behind"
    return ""


def clean(device: str) -> None:
    """Give back the memory of a trial that has ended: to the allocators, and from there to the system or the GPU."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    elif sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):  # glibc has it
        trim(0)


def _left_behind_mib(device: str) -> float:
    """Memory that a new worker would not hold: allocated on the GPU, or resident in this process."""
    if device == "cuda":
        return torch.cuda.memory_allocated() / 2**20
    return (psutil.Process().memory_info().rss - _AT_START) / 2**20
