"""Clocks and memory. A timed region holds exactly one call; warm-up calls are kept out of the figures."""

import contextlib
import resource
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

WARMUP_BATCHES = 5  # first calls import lazily, allocate and tune: up to 40 times the median


class Clock:
    """Durations of the batches of one kind. On a GPU they are taken by events in its stream, which are read once it has
    passed them: timing a batch makes nobody wait.

    Args:
        beat: called after each batch, outside of the time taken: a sign of life.
    """

    def __init__(self, device: torch.device, beat: Callable[[], None] = lambda: None):
        self.device, self.beat = device, beat
        self.milliseconds: list[float] = []  # of the batches of this process read so far
        self.earlier: list[float] = []  # of those of earlier processes, warm-up left out
        self._pending: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()

    @contextmanager
    def lap(self) -> Iterator[None]:
        """Time one batch."""
        if self.device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            yield
            end.record()
            self._pending.append((start, end))
        else:
            began = time.perf_counter()
            yield
            self.milliseconds.append((time.perf_counter() - began) * 1e3)
        self.beat()

    def latest(self) -> float | None:
        """Milliseconds of the last batch that is through, without waiting for one; None before the first."""
        self._read(wait=False)
        return self.milliseconds[-1] if self.milliseconds else None

    def settle(self) -> None:
        """Wait for the batches under way, and read them."""
        self._read(wait=True)

    def measured(self) -> list[float]:
        """Milliseconds of all batches after warm-up, those of earlier processes first."""
        self.settle()
        return self.earlier + self.milliseconds[WARMUP_BATCHES:]

    def summary(self, name: str) -> dict[str, float]:
        """Median and interquartile range in ms after warm-up; nothing when fewer than 2 batches are left."""
        return quartiles(name, self.measured())

    def _read(self, *, wait: bool) -> None:
        while self._pending and (wait or self._pending[0][1].query()):
            start, end = self._pending.popleft()
            end.synchronize()
            self.milliseconds.append(start.elapsed_time(end))


def quartiles(name: str, milliseconds: list[float]) -> dict[str, float]:
    """Median and interquartile range as metrics; nothing of fewer than 2 batches."""
    if len(milliseconds) < 2:
        return {}
    low, median, high = statistics.quantiles(milliseconds, n=4)
    return {f"{name}_ms_per_batch": median, f"{name}_ms_per_batch_iqr": high - low}


def reset_peak_memory(device: torch.device) -> None:
    """Start counting the peak anew: the device's allocations, or on Linux this process' resident memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif (counter := Path("/proc/self/clear_refs")).exists():
        with contextlib.suppress(PermissionError):  # some containers: the peak is then that of the whole process
            counter.write_text("5", encoding="ascii")


def peak_memory_mib(device: torch.device) -> float:
    """MiB at the peak: allocated on the GPU, or resident in this process (all of it: Python and torch included)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    status = Path("/proc/self/status")
    if status.exists():
        high_water = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM"))
        return int(high_water.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 1024)
