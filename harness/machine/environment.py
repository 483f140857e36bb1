"""The machine, versions and commit that a number was measured with."""

import os
import platform
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import psutil
import torch

import harness
from harness.errors import ExecutionError

# git sets these in a hook: they would name the hook's repository in place of that of the folder
ANOTHER_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")


def resolve_device(wanted: str) -> torch.device:
    """Return the device for 'cpu', 'cuda' or 'auto', which is cuda if available, else cpu.

    Raises: ExecutionError when cuda is asked for and not available.
    """
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ExecutionError("a GPU was requested, but torch finds none; use --device cpu or auto")
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(wanted)


def device_name(device: torch.device) -> str:
    """Return the name of a GPU, as 'NVIDIA H200', or of the processor; 'a GPU' for cuda if torch finds no GPU."""
    if device.type == "cuda" and not torch.cuda.is_available():
        return "a GPU"
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def commit() -> str:
    """Return the git commit of the harness, with '+' if files differ from it; 'unknown' outside of a checkout."""
    root = Path(harness.__file__).parent.parent
    if not (root / ".git").exists():  # an environment within another project's checkout is not ours
        return "unknown"
    try:
        head = _git(root, "rev-parse", "--short=12", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}+" if changed else head


def now() -> str:
    """The time in UTC, to the second, in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def load_average() -> float:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


class OtherWork:
    """How many of the cores that this process may use do work of others, since it was made.

    Busy seconds of these cores, less the seconds of this process and of those that it started, divided by the time
    that has passed.
    """

    def __init__(self):
        self._started, self._before = time.monotonic(), self._seconds()

    def cores(self) -> float:
        """The mean since then; 0 right after it."""
        seconds = time.monotonic() - self._started
        return max((self._seconds() - self._before) / seconds, 0.0) if seconds > 0 else 0.0

    @staticmethod
    def _seconds() -> float:
        every = psutil.cpu_times(percpu=True)
        ours = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(every))
        known = [every[core] for core in ours if core < len(every)] or every
        idle = sum(core.idle + getattr(core, "iowait", 0.0) for core in known)
        guests = sum(getattr(core, "guest", 0.0) + getattr(core, "guest_nice", 0.0) for core in known)  # in user, too
        return sum(map(sum, known)) - idle - guests - _own_seconds()


def _own_seconds() -> float:
    """Processor seconds of this process and of those that it started, those that have ended included."""
    process, seconds = psutil.Process(), 0.0
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has ended: its seconds are among those of its parent
            used = each.cpu_times()
            seconds += used.user + used.system + used.children_user + used.children_system
    return seconds


def _git(root: Path, *arguments: str) -> str:
    ours = {name: value for name, value in os.environ.items() if name not in ANOTHER_REPOSITORY}
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=True, env=ours)
    return done.stdout.decode("utf-8", "replace").strip()  # the names of files are in any encoding


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Set the number of torch's threads within the block. More threads than cores can be 20 times slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def deterministic_algorithms(wanted: str) -> Iterator[None]:
    """Set torch's use of deterministic algorithms within the block. An operation that has none raises an error where
    `wanted` is 'true', and warns where it is 'warn'; 'false' changes nothing. cuBLAS reads its variable when CUDA
    starts.
    """
    if wanted == "false":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=wanted == "warn")
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
