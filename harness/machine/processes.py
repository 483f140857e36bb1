"""Whether the process that wrote a file, or made a scratch folder, has ended.

The writer of a file is one line of text: host, process id and start time.
The start time is part of it because a process id may be used again by another process. Processes of another host cannot
be seen, so they count as running.
"""

import socket
from pathlib import Path

import psutil

CLOCK_SECONDS = 2  # a process' start time may seem to change by this much when the system's clock is set
PREFIX = ".harness-tune-"  # begins the names of scratch folders


def current_process() -> str:
    process = psutil.Process()
    return f"{socket.gethostname()} {process.pid} {process.create_time():.2f}"


def has_ended(writer: str) -> bool:
    """Return whether a process of this host has ended; False for another host's, and for a text that is no such
    line.
    """
    try:
        host, pid, started = writer.rsplit(" ", 2)
        if host != socket.gethostname():
            return False
        process = psutil.Process(int(pid))
        reused = abs(process.create_time() - float(started)) > CLOCK_SECONDS
        return reused or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except (ValueError, psutil.AccessDenied):
        return False


def scratch_prefix() -> str:
    """Return the beginning of the names of this host's scratch folders. The process id and a unique part follow."""
    return f"{PREFIX}{socket.gethostname()}-"


def abandoned_scratch(parent: Path) -> list[Path]:
    """Return the scratch folders of this host whose process has ended."""
    found = {each: each.name.removeprefix(scratch_prefix()).partition("-")[0] for each in parent.glob(f"{PREFIX}*")}
    return sorted(each for each, pid in found.items() if pid.isdecimal() and not psutil.pid_exists(int(pid)))
