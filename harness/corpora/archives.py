"""Copy one file out of a verified zip or tar archive. Paths in the archive never decide where a file is written.

The caller gives the name of the member and the place to copy it to. Other members of the archive are ignored, with any
names (`../`, absolute paths, repeated names). Links and devices have no content to copy and are refused.
"""

import contextlib
import hashlib
import lzma
import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

MAX_BYTES = 2 * 1024**3
_BLOCK = 2**20
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    RuntimeError,
)


def copy_member(archive: Path, name: str, place: Path, *, sha256: str) -> None:
    """Copy the only regular file called exactly `name`. `place` gets its complete content or is not changed.

    Raises: ValueError when the file is not an archive or is damaged, when it has no or several such regular files, or
    when the member has another SHA-256 or more than MAX_BYTES.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as target:
            with _member(archive, name) as (source, size):
                found = _copied(source, target, size)
            target.flush()
            os.fsync(descriptor)
        if found != sha256:
            raise ValueError(f"'{name}' of the archive has another sha256 than the pinned one")
        os.replace(temporary, place)
    except _DAMAGE as cause:
        # encrypted, incomplete, or of an unknown format
        raise ValueError(f"the archive cannot be read: {cause}") from cause
    finally:
        Path(temporary).unlink(missing_ok=True)


@contextlib.contextmanager
def _member(archive: Path, name: str) -> Iterator[tuple[IO[bytes], int]]:
    """Yield the opened member and the size that the archive states."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            found = _only([each for each in opened.infolist() if each.filename == name], name)
            kind = found.external_attr >> 28  # the file type of a Unix mode; 0 where the archiver gave none
            _check(found.file_size, not found.is_dir() and kind in (0, 0o10), name)
            with opened.open(found) as source:
                yield source, found.file_size
    else:
        with tarfile.open(archive) as opened:
            found = _only([each for each in opened if each.name == name], name)
            _check(found.size, found.isreg(), name)
            with opened.extractfile(found) as source:
                yield source, found.size


def _only(found: list, name: str):
    if len(found) != 1:
        raise ValueError(f"the archive has {len(found) or 'no'} files called '{name}'; one is expected")
    return found[0]


def _check(size: int, regular: bool, name: str) -> None:
    if not regular:
        raise ValueError(f"'{name}' of the archive is not a regular file")
    if size > MAX_BYTES:
        raise ValueError(f"'{name}' of the archive has more than {MAX_BYTES:,} bytes")


def _copied(source: IO[bytes], target: IO[bytes], size: int) -> str:
    """Copy at most `size` bytes, and return the SHA-256 of the copied bytes."""
    left, digest = size, hashlib.sha256()
    while left and (block := source.read(min(_BLOCK, left))):
        target.write(block)
        digest.update(block)
        left -= len(block)
    return digest.hexdigest()
