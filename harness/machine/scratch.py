"""Scratch folders: what they are called, and which of them belong to processes of this host that are gone."""

import socket
from pathlib import Path

import psutil

PREFIX = ".harness-tune-"


def scratch_prefix() -> str:
    """How the names of this host's scratch folders begin; the process id follows, then what makes the name unique."""
    return f"{PREFIX}{socket.gethostname()}-"


def abandoned_scratch(parent: Path) -> list[Path]:
    """The scratch folders of this host whose process is gone."""
    found = {each: each.name.removeprefix(scratch_prefix()).partition("-")[0] for each in parent.glob(f"{PREFIX}*")}
    return sorted(each for each, pid in found.items() if pid.isdecimal() and not psutil.pid_exists(int(pid)))
