"""How the scripts of this folder measure: calls that take turns, peaks of memory in new processes, a table of medians.

Times are compared within one run only: every call runs once in each round, so a disturbance of the machine meets all.
"""

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

from harness.errors import ExecutionError, HarnessError
from harness.machine import environment
from harness.machine.environment import OtherWork
from harness.training.clocks import peak_memory_mib, reset_peak_memory

GPU_REPEATS = 10  # calls between two events: a single one would measure mostly its launch
# glibc's malloc keeps freed blocks of up to 32 MiB by default. With this, resident memory is that of tensors.
BLOCKS_GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}
Call = Callable[[], Any]


def parser(about: str) -> argparse.ArgumentParser:
    """The options of every script."""
    made = argparse.ArgumentParser(description=about.partition("\n\n")[0])
    made.add_argument("--device", type=environment.resolve_device, default="auto", help="auto, cpu or cuda")
    made.add_argument("--threads", type=int, default=1, help="of torch, on a CPU")
    made.add_argument("--rounds", type=int, default=7, help="timed rounds, after one of warm-up")
    return made


def run(main: Callable[[], None]) -> None:
    """Run a script; a mistake in its options is one sentence and exit code 2."""
    try:
        main()
    except HarnessError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


def names(text: str) -> list[str]:
    """The value of an option: names separated by commas."""
    return [name for name in text.split(",") if name]


def interleaved(calls: Mapping[Any, Call], rounds: int, device: torch.device) -> dict[Any, list[float]]:
    """The milliseconds of every call in every round, after a round of warm-up.

    On a CPU each call is made twice, of which the second is timed: one that follows a call of another size pays for
    memory that the other has given back.
    """
    taken: dict[Any, list[float]] = {key: [] for key in calls}
    for number in range(rounds + 1):
        for key, call in calls.items():
            if device.type == "cuda":
                milliseconds = _on_gpu(call)
            else:
                call()
                began = time.perf_counter()
                call()
                milliseconds = (time.perf_counter() - began) * 1e3
            if number:
                taken[key].append(milliseconds)
    return taken


def _on_gpu(call: Call) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(GPU_REPEATS):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / GPU_REPEATS


def in_new_process(call: Callable[..., float], *given: Any, threads: int = 1) -> float:
    """What a function returns in a process of its own, whose malloc gives freed blocks back."""
    before = {name: os.environ.get(name) for name in BLOCKS_GIVEN_BACK}
    os.environ.update(BLOCKS_GIVEN_BACK)
    try:
        start = {"mp_context": get_context("spawn"), "initializer": torch.set_num_threads, "initargs": (threads,)}
        with ProcessPoolExecutor(1, **start) as pool:
            return pool.submit(call, *given).result()
    finally:
        for name, value in before.items():
            del os.environ[name]
            os.environ.update({} if value is None else {name: value})


def extra_mib(call: Call, device: torch.device) -> float:
    """The peak of a call above the memory before it, in MiB: resident memory of this process, which must be a new one,
    or what torch has allocated on a GPU. Raises ExecutionError where the system does not reset the peak of a process.
    """
    gc.collect()
    reset_peak_memory(device)
    before = torch.cuda.memory_allocated(device) / 2**20 if device.type == "cuda" else _resident_mib()
    if peak_memory_mib(device) > 1.01 * before + 1:
        raise ExecutionError("this system does not reset a process' peak of memory (/proc/self/clear_refs)")
    call()
    return max(0.0, peak_memory_mib(device) - before)


def _resident_mib() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def median(values: Sequence[float]) -> str:
    """'12.3 (11.9 to 12.8)': the median with the smallest and the largest value."""
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def against(milliseconds: Sequence[float], base: Sequence[float] | None) -> str:
    """The median over rounds of the ratio to another call in the same round; '' without one."""
    if base is None:
        return ""
    return f"{statistics.median(a / b for a, b in zip(milliseconds, base, strict=True)):.2f}"


def show(title: str, rows: Sequence[Mapping[str, str]], options: argparse.Namespace, work: OtherWork) -> None:
    """Print a table in Markdown, with the machine, versions and load below it."""
    print(f"# {title}\n\n{tabulate(rows, headers='keys', tablefmt='pipe', disable_numparse=True)}\n")
    machine = f"{environment.device_name(options.device)}, {options.threads} thread(s)"
    load = f"load {environment.load_average():.1f}, other work used {work.cores():.1f} cores"
    versions = f"torch {torch.__version__}, harness at {environment.commit()}, {environment.now()}"
    print(f"{machine}; medians of {options.rounds} interleaved rounds; {load}; {versions}")
