"""The source of the installed package: what is kept of it depends on all of it."""

import hashlib
import sys
from pathlib import Path

import psutil

import harness

# Files that are younger may have been edited after this process has imported what they were. The
# clock of a file system and that of the system differ by some milliseconds.
BEGUN = psutil.Process().create_time() - 1


def _folders() -> tuple[Path, Path, Path]:
    return harness.FOLDER, harness.bundled("heads"), harness.bundled("backbones")


def source_hash() -> str:
    """Return a hash of the source of the whole package and of all heads and backbones beside it; '' where a file was
    edited after this process had begun, which may have imported what it was before.
    """
    found = hashlib.sha256()
    for folder in _folders():
        for file in sorted(folder.rglob("*.py")):
            if file.stat().st_ctime > BEGUN:
                return ""
            source = file.read_bytes()
            found.update(f"{file.relative_to(folder)} {len(source)}\n".encode() + source)
    return found.hexdigest()


def is_of_package(cls: type) -> bool:
    """Return whether a class is defined in that source, whatever it is called."""
    place = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return place is not None and any(Path(place).is_relative_to(folder) for folder in _folders())
