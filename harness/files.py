"""Files that are there whole or not at all."""

import os
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
