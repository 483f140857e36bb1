"""What Ray will find when it starts: who may connect, a place for its token, addresses of clusters. Ray not imported.

Ray listens on all interfaces, and whoever connects can run code; its token, on by default, is what keeps others out.
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
TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")  # a token of the user's own; else Ray keeps one in the home folder
TOKEN_FILE = ".ray/auth_token"
ADDRESS_FILE = "ray/ray_current_cluster"
AUTO = "auto"  # the address of the cluster that Ray finds on this machine
ANSWER_SECONDS, JOIN_SECONDS = 1.0, 5.0
GREETING = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
)  # of a client of gRPC; its server answers at once


# Read by Ray when it is imported. Without them one failing trial prints over a hundred lines, Tune swallows Ctrl-C, and
# Ray Train looks after its workers every other second and gives up starting them on a busy machine.
RAY_SETTINGS = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_FUNCTION_THREAD_TIMEOUT_S": "300",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


def set_environment() -> None:
    """To be called before Ray is imported; what the user has set stays."""
    for name, value in RAY_SETTINGS.items():
        os.environ.setdefault(name, value)


def refuse_open_ray() -> None:
    """Raises ExecutionError when the environment switches Ray's token off, so that others could run code here."""
    if (mode := os.environ.get(AUTH_MODE, "token")).lower() != "token":
        raise ExecutionError(
            f"{AUTH_MODE}={mode}: whoever reaches this machine could run code under Ray; unset it, or use "
            "--executor inline"
        )


def show_token() -> None:
    """To be called before Ray is imported: a cluster that is joined by its address is shown Ray's token, too. Left to
    itself, Ray shows it only to clusters that it finds by itself, and the others turn it away.
    """
    os.environ.setdefault(AUTH_MODE, "token")


def refuse_homeless_ray() -> None:
    """Raises ExecutionError when Ray could not keep its token: it does not start then."""
    if any(os.environ.get(name) for name in TOKENS):
        return
    home = Path.home()
    if not (home / TOKEN_FILE).is_file() and (fault := write_fault((home / TOKEN_FILE).parent)):
        raise ExecutionError(
            f"the home folder {home} cannot be written ({fault}) and Ray keeps its token there; set HOME to another "
            "folder, or use --executor inline"
        )


def refuse_silent(address: str) -> None:
    """Raises ExecutionError when no cluster can be joined at an address: Ray itself would ask for a quarter of an hour.

    Args:
        address: 'HOST:PORT', or 'auto'.
    """
    named = address if address != AUTO else os.environ.get("RAY_ADDRESS") or _noted()
    if address == AUTO and not named:
        return  # Ray looks for processes of its own, which is quick
    host, _, port = named.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) > 65535:
        raise ExecutionError(
            f"'{named}' is no address of a Ray cluster: that is HOST:PORT, as `ray start --head` shows it"
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=JOIN_SECONDS) as line:
            line.sendall(GREETING)
            answer = os.environ.get("RAY_USE_TLS") == "1" or line.recv(1)
    except (OSError, UnicodeError) as cause:
        reason = getattr(cause, "strerror", None) or cause
        raise ExecutionError(f"no Ray cluster answers at {named} ({reason}); is its head node up?") from cause
    if not answer:
        raise ExecutionError(f"what listens at {named} is no Ray cluster; is the port that of `ray start --head`?")


@contextmanager
def no_mutter() -> Iterator[None]:
    """For the length of a block the process writes nothing to stderr: Ray's C++ tells of each attempt to connect."""
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


def _noted() -> str:
    """The cluster that was last started on this machine, dead or alive; '' when none is noted."""
    try:
        return _address_file().read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def stale_address() -> str:
    """The file that names a local cluster which does not answer; '' when there is none. Ours never joins by it."""
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
    """Ray's token file, when other users of this machine can read it; else ''. Ray makes it with the usual rights."""
    place = Path.home() / TOKEN_FILE
    reachable = all(each.exists() and each.stat().st_mode & 0o001 for each in (place.parent, Path.home()))
    return str(place) if reachable and place.is_file() and place.stat().st_mode & 0o004 else ""
