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
from typing import Any

import torch

RECENT = 21  # batches of a running median
WARMUP_BATCHES = 5  # first calls import lazily, allocate and tune: up to 40 times the median


class Clock:
    """Durations of the batches of one kind. On a GPU they are measured by events in its stream, which are read after
    the stream has reached them: timing a batch does not wait for the GPU.

    Args:
        beat: called after each batch, outside of the measured time.
    """

    def __init__(self, device: torch.device, beat: Callable[[], None] = lambda: None):
        self.device, self.beat = device, beat
        self.milliseconds: list[float] = []  # of the batches of this process that were read
        self.earlier: list[float] = []  # of the batches of earlier processes, without their warm-up
        self._pending: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()

    @contextmanager
    def lap(self) -> Iterator[None]:
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

    def recent(self) -> float | None:
        """The median milliseconds of the last batches that have ended, without waiting; None before the first has. The
        last batch of an epoch may be short, and the first ones are slow: neither counts once there are others.
        """
        self._read(wait=False)
        last = self.milliseconds[WARMUP_BATCHES:][-RECENT:] or self.milliseconds[-1:]
        return statistics.median(last) if last else None

    def settle(self) -> None:
        """Wait for the batches that have not ended."""
        self._read(wait=True)

    def measured(self) -> list[float]:
        """Milliseconds of all batches after warm-up, those of earlier processes first."""
        self.settle()
        return self.earlier + self.milliseconds[WARMUP_BATCHES:]

    def resume(self, earlier: list[float]) -> None:
        """Start anew after what `measured` gave in an earlier process."""
        self.earlier, self.milliseconds = earlier, []
        self._pending.clear()

    def summary(self, name: str) -> dict[str, float]:
        """Median and interquartile range in ms after warm-up; {} when fewer than 2 batches are left."""
        return quartiles(name, self.measured())

    def _read(self, *, wait: bool) -> None:
        while self._pending and (wait or self._pending[0][1].query()):
            start, end = self._pending.popleft()
            end.synchronize()
            self.milliseconds.append(start.elapsed_time(end))


class Clocks:
    """The clocks of a trial: of training steps and of evaluation. A part of training (harness/training/parts.py)."""

    def __init__(self, device: torch.device, beat: Callable[[], None] = lambda: None):
        self.train, self.eval = Clock(device, beat), Clock(device, beat)

    def summary(self) -> dict[str, float]:
        return {**self.train.summary("train"), **self.eval.summary("eval")}

    def state_dict(self) -> dict[str, Any]:
        clocks = {"train": self.train, "eval": self.eval}
        return {name: torch.tensor(clock.measured(), dtype=torch.float64) for name, clock in clocks.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.train.resume(state["train"].tolist())
        self.eval.resume(state["eval"].tolist())


def quartiles(name: str, milliseconds: list[float]) -> dict[str, float]:
    """Median and interquartile range as metrics; {} for fewer than 2 batches."""
    if len(milliseconds) < 2:
        return {}
    low, median, high = statistics.quantiles(milliseconds, n=4)
    return {f"{name}_ms_per_batch": median, f"{name}_ms_per_batch_iqr": high - low}


def reset_peak_memory(device: torch.device) -> None:
    """Reset the peak: that of the device's allocations, or on Linux that of this process' resident memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif (counter := Path("/proc/self/clear_refs")).exists():
        with contextlib.suppress(PermissionError):  # in some containers: the peak is then since the process began
            counter.write_text("5", encoding="ascii")


def peak_memory_mib(device: torch.device) -> float:
    """MiB at the peak: allocated on the GPU, or resident in this process, with Python and torch."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    status = Path("/proc/self/status")
    if status.exists():
        high_water = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM"))
        return int(high_water.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 1024)
