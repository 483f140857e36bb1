"""Write a file completely or not at all; read only regular files that are not larger than expected; keep what was
computed once on a machine.
"""

import errno
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock

from harness.errors import StorageError

MB, ROOM = 10**6, 2**27  # bytes; those of a disk that stay free
MAX_KEPT = 2**20  # bytes of what was computed once
# What some file systems answer when a folder is synced, as FUSE, SMB or 9p: the files in it are written all the same
NOT_SUPPORTED = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF}
MAX_WAIT = 300  # seconds, for another process that computes the same; it may be stopped
_SYNCED = ContextVar("_SYNCED", default=True)


@contextmanager
def unsynced() -> Iterator[None]:
    """Within it, nothing waits for the disk: for files that end with this process, so that no crash can spoil them."""
    before = _SYNCED.set(False)
    try:
        yield
    finally:
        _SYNCED.reset(before)


@contextmanager
def atomically(place: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `place` when the block ends without an exception.

    The temporary file is in the same folder. It is synced to disk and renamed, and then the folder is synced. So
    `place` has its complete old content or the complete new content at any time.

    Raises: StorageError when the file cannot be written.
    """
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.unlink(missing_ok=True)
            with temporary.open("xb") as file:  # never through a link that a stranger left under this name
                yield file
                file.flush()
                if _SYNCED.get():
                    os.fsync(file.fileno())
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)
        try:
            if _SYNCED.get():
                sync(place.parent)
        except OSError as fault:
            if fault.errno not in NOT_SUPPORTED:
                raise
    except OSError as cause:
        raise StorageError.of(place, cause) from cause


def read_bounded(place: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file of at most `max_bytes`.

    A file that has more bytes than its size says is refused, too. The files of /proc are such, and a limit on the size
    would not limit what is read from them.

    Raises: OSError with the reason as its strerror.
    """
    with opened_bounded(place, max_bytes) as file:
        about = os.fstat(file.fileno())
        content = file.read(about.st_size + 1)
        if len(content) != about.st_size:
            raise OSError(errno.EIO, "its content has another length than its size", str(place))
        return content


@contextmanager
def opened_bounded(place: Path, max_bytes: int) -> Iterator[BinaryIO]:
    """Open a regular file of at most `max_bytes` for reading.

    A FIFO, device, socket or folder is refused without waiting for it, and so is a larger file.

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
    """Return the last bytes of a regular file of any size. Raises OSError in the same cases as `read_bounded`."""
    with opened_bounded(place, sys.maxsize) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - max_bytes))
        return file.read(max_bytes)


def write_atomically(place: Path, content: bytes) -> None:
    """Write a file in one step, as described at `atomically`."""
    with atomically(place) as file:
        file.write(content)


def remove_stale(folder: Path) -> None:
    """Remove temporary files that killed processes left behind. The caller must hold the folder's lock."""
    for left in folder.glob(".*.tmp"):
        left.unlink(missing_ok=True)


def sync(folder: Path) -> None:
    """Have the names of a folder's files written to the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def existing(folder: Path) -> Path:
    """Return the folder, or the nearest parent folder that exists."""
    return next(each for each in (folder.resolve(), *folder.resolve().parents) if each.exists())


def lacks_room(folder: Path, needed: int) -> str:
    """Return why a folder cannot take so many bytes more and leave ROOM free, in words; '' if it can."""
    free = shutil.disk_usage(existing(folder)).free
    return "" if needed + ROOM <= free else f"take {needed / MB:,.1f} MB, and {folder} has {free / MB:,.1f} MB left"


def write_fault(folder: Path) -> str:
    """Return the reason why a folder, or its nearest existing parent, cannot be written; '' if it can be written."""
    try:
        with tempfile.TemporaryFile(dir=existing(folder)) as file:
            file.write(b"0")
            file.flush()
    except OSError as fault:
        return fault.strerror or str(fault)
    return ""


def cache_folder() -> Path:
    """Return the folder for what can be computed again: HARNESS_CACHE, or that of downloaded corpora."""
    import pooch  # here: it takes a tenth of a second, and few need it

    return Path(os.environ.get("HARNESS_CACHE") or pooch.os_cache("output-head-harness")).absolute()


def kept_file(kind: str, key: str) -> Path:
    return cache_folder() / kind / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def kept(
    kind: str,
    key: str,
    make: Callable[[], Any],
    read: Callable[[Any], Any] = lambda found: found,
    *,
    again: bool = False,
) -> Any:
    """Return what `make` returns, as JSON gives it back and `read` reads it; computed once on a machine for each key.

    Processes compute those of a kind one after the other, since some are measurements, and what one has computed the
    others read. A spoilt file is computed again. In a folder that cannot be written nothing is kept, and None is not
    kept either.

    Args:
        kind: the name of its folder in the cache.
        key: everything that the result depends on.
        read: raises LookupError, TypeError or ValueError for what `make` does not return.
        again: compute it in any case.
    """
    place = kept_file(kind, key)
    with suppress(OSError, LookupError, TypeError, ValueError):  # without waiting for one who makes another
        if not again:
            return read(json.loads(read_bounded(place, MAX_KEPT)))
    with ExitStack() as locked:
        with suppress(OSError, NotImplementedError):  # also filelock's Timeout, and a file system without locks
            place.parent.mkdir(parents=True, exist_ok=True)
            locked.enter_context(FileLock(place.parent / ".lock", timeout=MAX_WAIT))
        if not again:
            with suppress(OSError, LookupError, TypeError, ValueError):
                return read(json.loads(read_bounded(place, MAX_KEPT)))
        found = make()
        content = json.dumps(found)
        if found is not None:
            with suppress(StorageError):
                write_atomically(place, content.encode())
        return read(json.loads(content))
