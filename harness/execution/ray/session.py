"""A Ray session: started on this machine or joined on a cluster, and ended together with the run; its folders, and what
its workers are given.

Ray never removes the folders that it creates for local runs, ray/session_* in a temporary folder. A folder of this
program has a file that names its driver process, and only such folders are removed: when the driver ends, or later when
it no longer runs. When a trial failed, the driver keeps its folder until the next run, because Ray's logs are in it.
"""

import contextlib
import logging
import os
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from harness import bundled
from harness.errors import ExecutionError
from harness.execution.executors import LOCAL
from harness.execution.ray import refuse_homeless_ray, refuse_open_ray, temporary_folder
from harness.machine import processes
from harness.machine.files import read_bounded
from harness.machine.limits import cpus_available
from harness.registry import home, use_home
from harness.trial.task import Task

AUTO = "auto"  # the address that lets Ray find a cluster on this machine
ADDRESS_FILE = "ray/ray_current_cluster"
JOIN_SECONDS = 5.0
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # of a gRPC client; a gRPC server answers it
OBJECT_STORE = 80_000_000  # bytes, about the least that Ray takes; tasks and progress are all that is in it
QUIET = {"log_to_driver": False, "logging_level": logging.CRITICAL}
SESSIONS = "session_*"
LATEST = "session_latest"  # Ray's link to the newest folder
DRIVER = "harness-driver"  # the file that names the driver process, in the form of harness.machine.processes
MAX_BYTES = 1024
TRIES, PAUSE_SECONDS = 5, 0.2  # Ray's processes may write files while they end
FAULTS = (ConnectionError, ValueError, OSError, RuntimeError, ray.exceptions.RayError)


@contextmanager
def ray_session(address: str) -> Iterator[list[Any]]:
    """Ray for the length of a block; the handling of SIGTERM stays as it was.

    The block gets a list, to which it adds failures. The folder of a local Ray is removed when there were none.

    Args:
        address: 'local' starts Ray on this machine; anything else is the address of a cluster to join.
    Raises: ExecutionError when Ray does not start or the cluster cannot be joined.
    """
    refuse_open_ray()
    refuse_homeless_ray()
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    before = signal.getsignal(signal.SIGTERM)
    try:
        folder = _start() if address == LOCAL else _join(address)
    finally:  # Ray has replaced the handler, but not in other threads, which cannot put it back
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
    failures: list[Any] = []
    try:
        yield failures
    except Exception as fault:
        failures.append(fault)
        raise
    finally:
        ray.shutdown()
        if folder is not None and not failures:
            remove(folder)


def _start() -> Path:
    """Start Ray on this machine; returns the folder it created. Folders that dead drivers left are removed."""
    place = temporary_folder() / "ray"
    # Ray 2.60 gives the path of its workers' Python to a shell as it is: with a space in it no worker would start.
    quoted = shlex.quote(sys.executable)
    workers = {} if quoted == sys.executable else {"runtime_env": {"py_executable": quoted}}
    try:
        started = ray.init(
            LOCAL,
            num_cpus=cpus_available(),
            include_dashboard=False,
            object_store_memory=OBJECT_STORE,
            _temp_dir=str(place),
            **workers,
            **QUIET,
        )
    except FAULTS as cause:
        raise ExecutionError(f"Ray does not start: {_short(cause)}") from cause
    folder = Path(started.address_info["session_dir"])
    mark(folder)
    remove_abandoned(folder.parent)
    return folder


def _join(address: str) -> None:
    refuse_silent(address)
    try:
        with _quiet_stderr():
            ray.init(address, **QUIET)
    except FAULTS as cause:
        raise ExecutionError(
            f"the Ray cluster at '{address}' cannot be joined: {_short(cause)}; this machine must be one of its nodes, "
            "with the same versions of Ray and Python and the same Ray token (harness docs cluster)"
        ) from cause


def _short(cause: Exception) -> str:
    return " ".join(str(cause).split())[:300]


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Within the block this process writes nothing to stderr: Ray's C++ code prints each attempt to connect."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def refuse_silent(address: str) -> None:
    """Raises ExecutionError when no cluster answers at an address. Ray itself would try for 15 minutes.

    Args:
        address: 'HOST:PORT', or 'auto'.
    """
    named = address if address != AUTO else os.environ.get("RAY_ADDRESS") or _last_started()
    if address == AUTO and not named:
        return  # Ray looks for its own processes on this machine, which is fast
    host, _, port = named.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) > 65535:
        raise ExecutionError(
            f"'{named}' is not the address of a Ray cluster; expected HOST:PORT, as `ray start --head` prints it"
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=JOIN_SECONDS) as line:
            line.sendall(GREETING)
            answer = os.environ.get("RAY_USE_TLS") == "1" or line.recv(1)
    except (OSError, UnicodeError) as cause:
        reason = getattr(cause, "strerror", None) or cause
        raise ExecutionError(f"no Ray cluster answers at {named} ({reason}); is its head node running?") from cause
    if not answer:
        raise ExecutionError(
            f"the program at {named} is not a Ray cluster; is the port the one that `ray start --head` prints?"
        )


def _last_started() -> str:
    """The address of the cluster that was last started on this machine, running or not; '' when there is none."""
    try:
        folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
        return (Path(folder) / ADDRESS_FILE).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def mark(session: Path) -> None:
    """Write into a folder that it belongs to this process."""
    with contextlib.suppress(OSError):  # without the mark the folder is not removed
        (session / DRIVER).write_text(processes.current_process(), encoding="utf-8")


def remove(session: Path) -> None:
    """Remove a folder, and Ray's link to it."""
    for _ in range(TRIES):
        shutil.rmtree(session, ignore_errors=True)
        if not session.exists():
            break
        time.sleep(PAUSE_SECONDS)
    latest = session.with_name(LATEST)
    with contextlib.suppress(OSError):
        if latest.is_symlink() and not latest.exists():
            latest.unlink()


def remove_abandoned(parent: Path) -> None:
    """Remove the folders of drivers of this program, user and machine that no longer run. All other folders stay."""
    for session in parent.glob(SESSIONS):
        if _abandoned(session):
            remove(session)


def _abandoned(session: Path) -> bool:
    try:
        own = not session.is_symlink() and session.stat().st_uid == os.getuid()
        return own and processes.has_ended(read_bounded(session / DRIVER, MAX_BYTES).decode())
    except (OSError, ValueError):
        return False  # the folder of another program, or it cannot be read


@contextmanager
def scratch_folder(runs: Path, address: str) -> Iterator[Path]:
    """A folder for Tune's own files: a local one, or beside the records, where all nodes of a cluster can write. The
    user's heads and backbones are copied there, for workers on all nodes. Folders of killed runs on this machine are
    removed.
    """
    parent = Path(tempfile.gettempdir()) if address == LOCAL else runs
    for left in processes.abandoned_scratch(parent):
        shutil.rmtree(left, ignore_errors=True)
    parent.mkdir(parents=True, exist_ok=True)
    name = f"{processes.scratch_prefix()}{os.getpid()}-"
    scratch = Path(tempfile.mkdtemp(prefix=name, dir=parent))  # mkdtemp: no other user may write there; Tune unpickles
    try:
        for name in ("heads", "backbones"):
            if (own := home() / name).is_dir() and not own.samefile(bundled(name)):
                shutil.copytree(own, scratch / name, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def packed(task: Task, scratch: Path) -> dict[str, str]:
    """What Ray gives a worker: the task as JSON, with its id, and the folder of `scratch_folder`."""
    return {"id": task.id, "task": task.to_json(), "scratch": str(scratch)}


def unpacked(given: dict[str, str]) -> Task:
    """The task, in a worker, which finds the user's heads and backbones from now on."""
    use_home(Path(given["scratch"]))
    return Task.from_json(given["task"])
