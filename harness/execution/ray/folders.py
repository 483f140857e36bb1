"""The folders that Ray makes for local runs, <RAY_TMPDIR, TMPDIR or /tmp>/ray/session_*: whose they are, and their end.

Ray itself leaves them for ever. One of ours holds a file that names its driver; only those are ever removed, when their
driver ends or is gone. Where a trial failed, a driver leaves its own to the next run: Ray's logs are in it. Ray is not
imported.
"""

import contextlib
import os
import shutil
import time
from pathlib import Path

from harness.machine import processes
from harness.machine.files import read_bounded

SESSIONS = "session_*"
LATEST = "session_latest"  # Ray's link to the newest
DRIVER = "harness-driver"  # in a folder of ours: who made it, as harness.machine.processes has it
MAX_BYTES = 1024
TRIES, PAUSE_SECONDS = 5, 0.2  # for processes of Ray's that still write while they end


def mark(session: Path) -> None:
    """Note that a folder is this process'."""
    with contextlib.suppress(OSError):  # it is not removed then
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
    """Remove those of this user's drivers of ours on this machine that are gone. All others stay."""
    for session in parent.glob(SESSIONS):
        if _abandoned(session):
            remove(session)


def _abandoned(session: Path) -> bool:
    try:
        ours = not session.is_symlink() and session.stat().st_uid == os.getuid()
        return ours and processes.has_ended(read_bounded(session / DRIVER, MAX_BYTES).decode())
    except (OSError, ValueError):
        return False  # not one of ours, or not to be read
