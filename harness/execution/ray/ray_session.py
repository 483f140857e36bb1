"""A Ray session: started on this machine or joined on a cluster, and ended together with the run."""

import logging
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from harness.errors import ExecutionError
from harness.execution.ray import cluster, folders
from harness.execution.resources import LOCAL
from harness.machine.environment import cpus_available

QUIET = {"log_to_driver": False, "logging_level": logging.CRITICAL}
FAULTS = (ConnectionError, ValueError, OSError, RuntimeError, ray.exceptions.RayError)


@contextmanager
def ray_session(address: str) -> Iterator[list[Any]]:
    """Ray for the length of a block; the handling of SIGTERM stays as it was.

    The block gets a list, to which it adds failures. The folder of a local Ray is removed when there were none. When
    there were failures, the next run removes it, because Ray's logs are in it.

    Args:
        address: 'local' starts Ray on this machine; anything else is the address of a cluster to join.
    Raises: ExecutionError when Ray does not start or the cluster cannot be joined.
    """
    cluster.refuse_open_ray()
    cluster.refuse_homeless_ray()
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    with _same_sigterm():
        folder = _start() if address == LOCAL else _join(address)
    failures: list[Any] = []
    try:
        yield failures
    except Exception as fault:
        failures.append(fault)
        raise
    finally:
        ray.shutdown()
        if folder is not None and not failures:
            folders.remove(folder)


@contextmanager
def _same_sigterm() -> Iterator[None]:
    """Ray replaces the handler of SIGTERM when it starts; put the earlier one back. Only a main thread can do this, and
    in other threads Ray leaves the handler alone.
    """
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _start() -> Path:
    """Start Ray on this machine; returns the folder it created. Folders that dead drivers left are removed."""
    # Ray 2.60 gives the path of its workers' Python to a shell as it is: with a space in it no worker would start.
    quoted = shlex.quote(sys.executable)
    workers = {} if quoted == sys.executable else {"runtime_env": {"py_executable": quoted}}
    try:
        started = ray.init(LOCAL, num_cpus=cpus_available(), include_dashboard=False, **workers, **QUIET)
    except FAULTS as cause:
        raise ExecutionError(f"Ray does not start: {_short(cause)}") from cause
    folder = Path(started.address_info["session_dir"])
    folders.mark(folder)
    folders.remove_abandoned(folder.parent)
    return folder


def _join(address: str) -> None:
    cluster.refuse_silent(address)
    try:
        with cluster.quiet_stderr():
            ray.init(address, **QUIET)
    except FAULTS as cause:
        raise ExecutionError(
            f"the Ray cluster at '{address}' cannot be joined: {_short(cause)}; this machine must be one of its nodes, "
            "with the same versions of Ray and Python and the same Ray token (harness docs cluster)"
        ) from cause


def _short(cause: Exception) -> str:
    return " ".join(str(cause).split())[:300]
