"""What Ray needs before it starts: settings, its token, and the address of a cluster that answers. Ray is not imported.

Ray listens on all network interfaces, and a program that can connect to it can run code. Ray's token, on by default,
keeps other users out.
"""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import ExecutionError
from harness.machine.files import write_fault

AUTH_MODE = "RAY_AUTH_MODE"
TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")  # a token that the user set; otherwise Ray keeps one in the home
TOKEN_FILE = ".ray/auth_token"
ADDRESS_FILE = "ray/ray_current_cluster"
AUTO = "auto"  # the address that lets Ray find a cluster on this machine
ANSWER_SECONDS, JOIN_SECONDS = 1.0, 5.0
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # of a gRPC client; a gRPC server answers it


STOP_SECONDS = 20  # that a worker has to save its trial when the run ends; SLURM's default leaves a run 30 seconds

# Ray reads these when it is imported.
RAY_SETTINGS = {
    "RAY_AIR_NEW_OUTPUT": "0",  # otherwise Tune prints its own tables
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # a suite's relative paths are of the folder of the command
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",  # 30 by default, too few on a busy machine
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # no files of progress beside ours
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # otherwise Ctrl-C ends trials and not the command
    "TUNE_FORCE_TRIAL_CLEANUP_S": str(STOP_SECONDS),
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # otherwise a worker that dies prints over a hundred lines
}


def set_environment() -> None:
    """Set Ray's settings, except those that the user has set. To be called before Ray is imported."""
    for name, value in RAY_SETTINGS.items():
        os.environ.setdefault(name, value)


def refuse_open_ray() -> None:
    """Raises ExecutionError when the environment switches Ray's token off, so that others could run code here."""
    if (mode := os.environ.get(AUTH_MODE, "token")).lower() != "token":
        raise ExecutionError(
            f"{AUTH_MODE}={mode}: anyone who can reach this machine could run code under Ray; unset {AUTH_MODE}, or "
            "use --executor inline"
        )


def show_token() -> None:
    """Let Ray send its token to a cluster that is joined by its address. By default Ray sends it only to clusters that
    it finds without an address, and other clusters reject the connection. To be called before Ray is imported.
    """
    os.environ.setdefault(AUTH_MODE, "token")


def refuse_homeless_ray() -> None:
    """Raises ExecutionError when Ray cannot write its token to the home folder: it does not start then."""
    if any(os.environ.get(name) for name in TOKENS):
        return
    home = Path.home()
    if not (home / TOKEN_FILE).is_file() and (fault := write_fault((home / TOKEN_FILE).parent)):
        raise ExecutionError(
            f"the home folder {home} cannot be written ({fault}) and Ray keeps its token there; set HOME to another "
            "folder, or use --executor inline"
        )


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


@contextmanager
def quiet_stderr() -> Iterator[None]:
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


def _address_file() -> Path:
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    return Path(folder) / ADDRESS_FILE


def _last_started() -> str:
    """The address of the cluster that was last started on this machine, running or not; '' when there is none."""
    try:
        return _address_file().read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def stale_address() -> str:
    """The file that names a local cluster which does not answer; '' when there is none. `harness run` ignores it."""
    place = _address_file()
    try:
        host, _, port = place.read_text(encoding="utf-8").strip().rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS):
            return ""
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return str(place)


def exposed_token() -> str:
    """Ray's token file when other users of this machine can read it, else ''. Ray creates it with default rights."""
    place = Path.home() / TOKEN_FILE
    reachable = all(each.exists() and each.stat().st_mode & 0o001 for each in (place.parent, Path.home()))
    return str(place) if reachable and place.is_file() and place.stat().st_mode & 0o004 else ""
