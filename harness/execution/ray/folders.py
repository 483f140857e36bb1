"""The folders that Ray creates for local runs, <RAY_TMPDIR, TMPDIR or /tmp>/ray/session_*, and how they are removed.

Ray never removes them. A folder of this program has a file that names its driver process, and only such folders are
removed: when the driver ends, or later when it no longer runs. When a trial failed, the driver keeps its folder until
the next run, because it contains Ray's logs. Ray is not imported.
"""

import contextlib
import os
import shutil
import time
from pathlib import Path

from harness.machine import processes
from harness.machine.files import read_bounded

SESSIONS = "session_*"
LATEST = "session_latest"  # Ray's link to the newest folder
DRIVER = "harness-driver"  # the file that names the driver process, in the form of harness.machine.processes
MAX_BYTES = 1024
TRIES, PAUSE_SECONDS = 5, 0.2  # Ray's processes may write files while they end


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
