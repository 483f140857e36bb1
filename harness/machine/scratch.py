"""The names of scratch folders, and a search for those whose process has ended."""

import socket
from pathlib import Path

import psutil

PREFIX = ".harness-tune-"


def scratch_prefix() -> str:
    """Return the beginning of the names of this host's scratch folders. The process id and a unique part follow."""
    return f"{PREFIX}{socket.gethostname()}-"


def abandoned_scratch(parent: Path) -> list[Path]:
    """Return the scratch folders of this host whose process has ended."""
    found = {each: each.name.removeprefix(scratch_prefix()).partition("-")[0] for each in parent.glob(f"{PREFIX}*")}
    return sorted(each for each, pid in found.items() if pid.isdecimal() and not psutil.pid_exists(int(pid)))
