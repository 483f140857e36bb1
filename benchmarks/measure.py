"""How benchmarks measure: times of calls that take turns, and peaks of memory in new processes."""

import gc
import os
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch

from harness.errors import ExecutionError
from harness.training.clocks import peak_memory_mib, reset_peak_memory

GPU_REPEATS = 10  # calls per round: a single call would measure mostly its launch
# glibc's malloc keeps freed blocks of up to 32 MiB by default. With this, resident memory is that of tensors.
BLOCKS_GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}
Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")
Report = Callable[[str], None]
Call = Callable[[], Any]


def silent(line: str) -> None:
    """Report nothing."""


def interleaved(
    calls: Mapping[Key, Call],
    rounds: int,
    device: torch.device,
    report: Report = silent,
    *,
    measure: Callable[[Call], float] | None = None,
    twice: bool = False,
) -> dict[Key, tuple[float, ...]]:
    """The milliseconds of every call in every round. There is an additional first round as warm-up, unless calls are
    made twice.

    Every call runs once in each round, so disturbances of the machine affect all calls equally.

    Args:
        measure: runs a call and returns its number, if not its milliseconds by the clock.
        twice: make every call twice and time the second one. For calls of very different sizes: a small one pays for
            the memory that a large one before it has given back.
    """
    measure = measure or (_on_gpu if device.type == "cuda" else on_cpu)
    taken: dict[Key, list[float]] = {key: [] for key in calls}
    for number in range(1 if twice else 0, rounds + 1):
        report(f"round {number} of {rounds}" if number else "warm-up")
        for key, call in calls.items():
            if twice:
                call()
            milliseconds = measure(call)
            if number:
                taken[key].append(milliseconds)
    return {key: tuple(values) for key, values in taken.items()}


def on_cpu(call: Call, clock: Callable[[], float] = time.perf_counter) -> float:
    """The milliseconds of a call by a clock."""
    start = clock()
    call()
    return (clock() - start) * 1e3


def _on_gpu(call: Call) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(GPU_REPEATS):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / GPU_REPEATS


def in_new_process(
    call: Callable[..., Result], *given, threads: int = 1, variables: Mapping[str, str] | None = None
) -> Result:
    """What a function returns in a process of its own, with some environment variables. Raises what the function
    raises; BrokenProcessPool if its process is killed.
    """
    before = {name: os.environ.get(name) for name in variables or {}}
    os.environ.update(variables or {})
    try:
        start = {"mp_context": get_context("spawn"), "initializer": torch.set_num_threads, "initargs": (threads,)}
        with ProcessPoolExecutor(1, **start) as pool:
            return pool.submit(call, *given).result()
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({} if value is None else {name: value})


def extra_mib(call: Call, device: torch.device) -> float:
    """The peak memory of a call above the memory before it, in MiB, in this process, which must be a new one: resident
    memory, or what torch has allocated on a GPU. Raises ExecutionError if the system cannot reset the counter of the
    peak.
    """
    gc.collect()
    reset_peak_memory(device)
    before = torch.cuda.memory_allocated(device) / 2**20 if device.type == "cuda" else resident_mib()
    if before is None or peak_memory_mib(device) > 1.01 * before + 1:
        raise ExecutionError("this system does not reset a process' peak of memory (/proc/self/clear_refs)")
    call()
    return max(0.0, peak_memory_mib(device) - before)


def resident_mib() -> float | None:
    """Return the resident memory of this process, in the same units and from the same source as its peak; None where
    the system does not report it there.
    """
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), None)
