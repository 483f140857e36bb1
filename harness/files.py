"""Files that are written whole or not at all, and read only where they are files, and not larger than expected."""

import errno
import os
import stat
from pathlib import Path


def read_bounded(place: Path, max_bytes: int) -> bytes:
    """A regular file's content. A FIFO, device, socket or folder is refused without waiting for it, and so is what is
    larger than expected or than it says: the files of /proc are, and no bound would hold for them.

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
            content = file.read(about.st_size + 1)
        if len(content) != about.st_size:
            raise OSError(errno.EIO, "its size is not what it says", str(place))
        return content
    finally:
        os.close(descriptor)


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
