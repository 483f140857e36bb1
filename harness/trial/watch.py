"""The watch over a trial: it ends one that takes too long, gives no sign of life, or needs too much memory."""

import contextlib
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from harness.machine import limits
from harness.plan.suite_file import TimeoutSpec
from harness.trial import sessions
from harness.trial.task import Task

BEAT_SECONDS = 1.0
GRACE_SECONDS = 10.0  # after its limit, in which a trial can end between two batches, before it is killed
GIB = 2**30
RAY_KILLS_AT = float(os.environ.get("RAY_memory_usage_threshold", "0.95"))  # noqa: SIM112 - Ray's name; of the memory
SILENT = "no sign of life, or no end, for as long as timeout allows; the trial's log says where it was"
SHORT = RAY_KILLS_AT - 0.05


class TimedOut(Exception):
    """A trial has reached one of its limits of time."""


class Watch:
    """Use as a context manager around the trial's work, and call `beat` after every batch.

    A trial that hangs cannot end itself. In a worker of Ray, faulthandler's thread, which needs no lock, writes where
    every thread is to `stuck.log` and ends the process. In the user's own process an alarm raises TimedOut as soon as
    Python code runs again.

    Args:
        elapsed: seconds of earlier processes of the trial.
    """

    def __init__(self, task: Task, elapsed: float):
        self.task, self.folder, self.limits = task, task.folder, task.timeout
        self._elapsed, self._began = elapsed, time.monotonic()
        self._due = 0.0
        self._interval = min(BEAT_SECONDS, 60 * (self.limits.silent_minutes or 1) / 4)
        self._process = psutil.Process()
        self._arm = lambda seconds: None

    def __enter__(self) -> "Watch":
        with contextlib.ExitStack() as stack:
            if self.limits != TimeoutSpec():
                guard = _alarm() if self.task.executor == "inline" else _exit_when_silent(self.folder)
                self._arm = stack.enter_context(guard)
            self.beat()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc) -> None:
        self._stack.close()

    @property
    def elapsed(self) -> float:
        return self._elapsed + time.monotonic() - self._began

    def beat(self) -> None:
        """A sign of life. Raises TimedOut when the trial has taken too long, MemoryError when it needs too much."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self._interval
        with contextlib.suppress(OSError):  # a file that cannot be touched is no reason to end the trial
            os.utime(self.folder / sessions.FILE_NAME)
        limit = self.limits.minutes
        if limit is not None and self.elapsed > 60 * limit:
            raise TimedOut(f"not finished after {limit:g} minutes (timeout.minutes)")
        self._refuse_excess()
        left = [60 * self.limits.silent_minutes] if self.limits.silent_minutes is not None else []
        left += [60 * limit - self.elapsed + GRACE_SECONDS] if limit is not None else []
        if left:
            self._arm(min(left))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within it the trial waits for the driver, without a limit of time."""
        self._arm(None)
        yield
        self._due = 0.0
        self.beat()

    def _refuse_excess(self) -> None:
        held, limit = self._process.memory_info().rss, self.task.memory_gib
        if limit is not None and held > limit * GIB:
            raise MemoryError(f"the trial's process holds {held / GIB:.2f} GiB, its limit is {limit:g} GiB")
        machine = limits.memory()
        used = 1 - machine.free / machine.total
        if used > SHORT and held > self.task.memory_share * machine.total:
            share = self.task.memory_share * machine.total / GIB
            raise MemoryError(
                f"the machine is short of memory and the trial's process holds {held / GIB:.2f} GiB, its share is "
                f"{share:.2f} GiB"
            )


@contextmanager
def _exit_when_silent(folder: Path) -> Iterator:
    """A function that sets in how many seconds the process ends; each call replaces the one before."""
    place = folder / sessions.STUCK
    with place.open("w", encoding="utf-8") as file:
        try:
            yield (
                lambda seconds: (
                    faulthandler.cancel_dump_traceback_later()
                    if seconds is None
                    else faulthandler.dump_traceback_later(max(seconds, 0.01), exit=True, file=file)
                )
            )
        finally:
            faulthandler.cancel_dump_traceback_later()
    place.unlink(missing_ok=True)


@contextmanager
def _alarm() -> Iterator:
    """A function that sets in how many seconds TimedOut is raised; without effect outside of the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda seconds: None
        return

    def ring(*_) -> None:
        raise TimedOut(SILENT)

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, 0 if seconds is None else max(seconds, 0.01))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
