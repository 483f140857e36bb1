"""What Ray will find when it starts: who may connect, a place for its token, addresses of clusters. Ray not imported.

Ray listens on all interfaces, and whoever connects can run code; its token, on by default, is what keeps others out.
"""

import os
import socket
from pathlib import Path

from harness.errors import ExecutionError
from harness.files import write_fault

AUTH_MODE = "RAY_AUTH_MODE"
TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")  # a token of the user's own; else Ray keeps one in the home folder
TOKEN_FILE = ".ray/auth_token"
ADDRESS_FILE = "ray/ray_current_cluster"
ANSWER_SECONDS = 1.0


def refuse_open_ray() -> None:
    """Raises ExecutionError when the environment switches Ray's token off, so that others could run code here."""
    if (mode := os.environ.get(AUTH_MODE, "token")).lower() != "token":
        raise ExecutionError(
            f"{AUTH_MODE}={mode}: whoever reaches this machine could run code under Ray; unset it, or use "
            "--executor inline"
        )


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


def stale_address() -> str:
    """The file that names a local cluster which does not answer; '' when there is none. Ours never joins by it."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    place = Path(folder) / ADDRESS_FILE
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
