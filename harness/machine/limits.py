"""How many cores and how much memory this process may use: those of the machine, or what its container leaves of them.

Containers and batch systems limit processes by Linux' control groups, version 1 or 2. A group limits what is below it,
too, so the least of this process' group and of all groups above it counts.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")  # lines 'number:controllers:path'; no controllers: version 2
NO_LIMIT = 2**60  # bytes; version 1 has a number near 2**63 where there is no limit


class Memory(NamedTuple):
    """Memory in bytes: of the machine or container, and how much of it is free. Cached files count as free."""

    total: int
    free: int


def cpus_available() -> int:
    """Return the number of cores that this process may use at the same time: whole ones, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([cores, *_quotas()])))


def memory() -> Memory:
    """Return the memory that this process may use."""
    machine = psutil.virtual_memory()
    total, free = machine.total, machine.available
    for limit, used in _memory_limits():
        total, free = min(total, limit), min(free, max(limit - used, 0))
    return Memory(total, free)


def _quotas() -> Iterator[float]:
    """The limits of the processor's time, in cores."""
    for group in _groups("cpu"):
        numbers = _words(group / "cpu.max") or _words(group / "cpu.cfs_quota_us") + _words(group / "cpu.cfs_period_us")
        if len(numbers) == 2 and numbers[0] not in ("max", "-1"):
            yield int(numbers[0]) / int(numbers[1])


def _memory_limits() -> Iterator[tuple[int, int]]:
    """The limits of memory in bytes, each with what is used of it, without files that are only cached."""
    for group in _groups("memory"):
        for names in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, used = _words(group / names[0]), _words(group / names[1])
            if limit and used and limit != ["max"] and int(limit[0]) < NO_LIMIT:
                statistics = _words(group / "memory.stat")
                cached = dict(zip(statistics[::2], statistics[1::2], strict=False)).get(names[2], "0")
                yield int(limit[0]), int(used[0]) - int(cached)


def _groups(controller: str) -> Iterator[Path]:
    """The folders of this process' group and of the groups above it, as far as they can be seen from here."""
    try:
        lines = OWN_GROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            top = GROUPS / controller if controllers else GROUPS
            own = Path(path.lstrip("/"))
            yield from (top / each for each in (own, *own.parents))


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split()
    except OSError:
        return []
