"""Files that are there whole or not at all."""

import os
import tempfile
from pathlib import Path


def write_atomically(place: Path, content: bytes) -> None:
    """Temp file in the same folder, fsync, rename, fsync of the folder: the place holds the old or the new, whole."""
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)
    descriptor = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def existing(folder: Path) -> Path:
    """The folder, or the nearest above it that is there."""
    return next(each for each in (folder.resolve(), *folder.resolve().parents) if each.exists())


def write_fault(folder: Path) -> str:
    """Why nothing can be written to a folder, or to where it would be made; '' when it can. Leaves nothing behind."""
    try:
        with tempfile.TemporaryFile(dir=existing(folder)) as file:
            file.write(b"0")
            file.flush()
    except OSError as fault:
        return fault.strerror or str(fault)
    return ""
