"""A lock that one process holds at a time. Who waits for it says which process has it, and whether that is stopped."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from harness.machine.files import read_bounded
from harness.machine.processes import current_process
from harness.printable import sentence

PATIENCE = 3.0  # seconds of waiting before it is said
MAX_HOLDER = 2**10  # bytes


@contextmanager
def held(place: Path, *, wait: float = -1) -> Iterator[None]:
    """Hold a lock. The end of the process releases it.

    Args:
        place: the file of the lock, in a folder that exists. Beside it is written who holds it.
        wait: seconds to wait for it; negative: without limit.
    Raises: OSError, with what to do as its strerror, when it cannot be had.
    """
    lock, holder = FileLock(place), _holder(place)
    try:
        lock.acquire(timeout=PATIENCE if wait < 0 else min(wait, PATIENCE))
    except Timeout:
        if 0 <= wait <= PATIENCE:
            raise TimeoutError(None, held_by(place)) from None
        print(sentence(f"waiting for {place}, which is {held_by(place)}"), file=sys.stderr, flush=True)
        try:
            lock.acquire(timeout=-1 if wait < 0 else wait - PATIENCE)
        except Timeout:
            raise TimeoutError(None, held_by(place)) from None
    try:
        with suppress(OSError):
            holder.write_text(current_process(), encoding="utf-8")
        yield
    finally:
        try:
            with suppress(OSError):
                holder.unlink()
        finally:
            lock.release()


def is_held(place: Path) -> bool:
    """Return whether a process holds a lock."""
    if not place.exists():
        return False
    try:
        with FileLock(place, timeout=0):
            return False
    except (OSError, NotImplementedError) as fault:
        return isinstance(fault, Timeout)


def held_by(place: Path) -> str:
    """Return which process holds a lock, and what to do if it does not go on, in words."""
    try:
        host, pid, _ = read_bounded(_holder(place), MAX_HOLDER).decode().rsplit(" ", 2)
        since = datetime.fromtimestamp(_holder(place).stat().st_mtime).astimezone().isoformat(" ", "seconds")
    except (OSError, ValueError):
        return "held by another process; it is free when that ends"
    found = f"held by process {pid} on {host} since {since}"
    with suppress(psutil.Error, ValueError):
        if host == socket.gethostname() and psutil.Process(int(pid)).status() == psutil.STATUS_STOPPED:
            return f"{found}; that process is stopped: `kill -CONT {pid}` lets it go on, `kill -KILL {pid}` ends it"
    return f"{found}; it is free when that process ends"


def _holder(place: Path) -> Path:
    return place.with_name(f"{place.name}.holder")
