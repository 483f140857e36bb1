"""Files that are written whole or not at all, and read only where they are files, and not larger than expected."""

import errno
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from harness.errors import StorageError


@contextmanager
def atomically(place: Path) -> Iterator[BinaryIO]:
    """An open file that becomes `place` when the block ends well: temp file in the same folder, fsync, rename, fsync of
    the folder. The place holds the old content or the new one, whole. Raises StorageError when it cannot be written.
    """
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(place.parent)
    except OSError as cause:
        raise StorageError(f"{place} cannot be written ({cause.strerror or cause})") from cause


def read_bounded(place: Path, max_bytes: int) -> bytes:
    """A regular file's content. One that is larger than it says is refused too: the files of /proc are, and no bound
    would hold for them.

    Raises: OSError with the reason as its strerror.
    """
    with opened_bounded(place, max_bytes) as file:
        about = os.fstat(file.fileno())
        content = file.read(about.st_size + 1)
        if len(content) != about.st_size:
            raise OSError(errno.EIO, "its size is not what it says", str(place))
        return content


@contextmanager
def opened_bounded(place: Path, max_bytes: int) -> Iterator[BinaryIO]:
    """A regular file, open for reading. A FIFO, device, socket or folder is refused without waiting for it, and so is
    what is larger than expected.

    Raises: OSError with the reason as its strerror.
    """
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(place))
        if about.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"larger than {max_bytes:,} bytes", str(place))
        with open(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def read_end(place: Path, max_bytes: int) -> bytes:
    """The last bytes of a regular file, however large it is. Raises OSError as `read_bounded` does."""
    with opened_bounded(place, sys.maxsize) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - max_bytes))
        return file.read(max_bytes)


def write_atomically(place: Path, content: bytes) -> None:
    """Write a file as `atomically` does."""
    with atomically(place) as file:
        file.write(content)


def remove_stale(folder: Path) -> None:
    """Remove what a writer that was killed left half-written. The caller holds the folder's lock."""
    for left in folder.glob(".*.tmp"):
        left.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
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
