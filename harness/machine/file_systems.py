"""What the file system of a folder can do: results need files that are replaced in one step, and locks."""

import tempfile
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from harness.machine.files import NOT_SUPPORTED, existing, sync


class Lacks(NamedTuple):
    """What a file system lacks, as parts of a sentence; '' for nothing.

    Args:
        needed: without it, results could be lost or mixed up.
        wanted: without it, a power failure may cost the newest files, which are made again.
    """

    needed: str = ""
    wanted: str = ""


def lacks(folder: Path) -> Lacks:
    """Try out the file system of a folder, or of its nearest parent folder that exists. Nothing is left there.

    Raises: OSError when no file can be made there at all.
    """
    with tempfile.TemporaryDirectory(dir=existing(folder), prefix=".harness-tried-") as scratch:
        old, new = Path(scratch, "old"), Path(scratch, "new")
        for place in (old, new):
            place.touch()  # empty: a full disk is another matter
        try:
            new.replace(old)
        except OSError as fault:
            return Lacks(needed=f"no file can be replaced ({fault.strerror or fault})")
        if fault := _lock_fault(Path(scratch, "lock")):
            return Lacks(needed=fault)
        try:
            sync(Path(scratch))
        except OSError as fault:
            if fault.errno not in NOT_SUPPORTED:
                raise
            return Lacks(wanted=f"a folder cannot be synced ({fault.strerror})")
    return Lacks()


def _lock_fault(place: Path) -> str:
    try:
        with FileLock(place, timeout=0), FileLock(place, timeout=0):
            return "its locks keep nobody out"
    except Timeout:
        return ""  # as it should be: the second one did not get it
    except OSError as fault:
        return f"it has no locks ({fault.strerror or fault})"
