"""Documents of files: a text file is one document, and .jsonl and .parquet files have one in each row.

Files are read row by row, so only one row (of .parquet, a few rows) is in memory. Messages never quote the content of a
file: the path may be wrong, or come from a suite of another person.
"""

import hashlib
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from harness.errors import CorpusError
from harness.machine.files import opened_bounded, read_bounded

ROWS = (".jsonl", ".parquet")  # of which each row is a document
SUFFIXES = (".txt", *ROWS)
MAX_BYTES = 2 * 1024**3  # of a text file
MAX_TABLE_BYTES = 64 * 1024**3  # of a .jsonl or .parquet file
MAX_LINE = 256 * 1024**2
BLOCK = 2**20
FEW_ROWS = 64


def has_rows(path: Path) -> bool:
    """Return whether each row of a file is a document."""
    return path.suffix.lower() in ROWS


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file. Raises CorpusError when it cannot be read."""
    digest = hashlib.sha256()
    with _opened(path) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def count(path: Path) -> int:
    """Return the number of documents in a file. Raises CorpusError when it cannot be read."""
    if not has_rows(path):
        return 1
    with _opened(path) as file:
        if path.suffix.lower() == ".jsonl":
            return sum(bool(line.strip()) for _, line in _lines(path, file))
        return _table(path, file).metadata.num_rows


def documents(path: Path, column: str) -> Iterator[str]:
    """Yield the documents of a file in their order.

    Raises: CorpusError when a file cannot be read, is not what its name says, or has a row without a text.
    """
    if not has_rows(path):
        yield read_text(path)
        return
    with _opened(path) as file:
        yield from _of_json(path, file, column) if path.suffix.lower() == ".jsonl" else _of_parquet(path, file, column)


def read_text(path: Path) -> str:
    """Return a text file with universal line ends."""
    try:
        content = read_bounded(path, MAX_BYTES)  # guard: text-size read_bounded(path, MAX_BYTES) -> path.read_bytes()
        return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8").read()
    except UnicodeDecodeError as cause:
        raise CorpusError(f"{path}: cannot be read as UTF-8 text (byte {cause.start + 1})") from None
    except OSError as cause:
        raise _unreadable(path, cause) from cause


def _of_json(path: Path, file: BinaryIO, column: str) -> Iterator[str]:
    for number, line in _lines(path, file):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise CorpusError(f"{path}: line {number} is not JSON") from None
        yield _text(row.get(column) if isinstance(row, dict) else None, f"{path}: line {number}", column)


def _lines(path: Path, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:  # guard: line-size
            raise CorpusError(f"{path}: line {number} has more than {MAX_LINE:,} bytes")
        yield number, line


def _of_parquet(path: Path, file: BinaryIO, column: str) -> Iterator[str]:
    table, number = _table(path, file), 0
    known = table.schema_arrow.names
    if column not in known:
        raise CorpusError(f"{path}: has no column '{column}' (has: {', '.join(known[:20])})")
    batches = table.iter_batches(batch_size=FEW_ROWS, columns=[column])
    while True:
        try:
            batch = next(batches, None)
        except (ValueError, OSError):  # ArrowInvalid is a ValueError
            raise CorpusError(f"{path}: is damaged after row {number}") from None
        if batch is None:
            return
        for value in batch.column(0):
            number += 1
            yield _text(value.as_py(), f"{path}: row {number}", column)


def _table(path: Path, file: BinaryIO) -> Any:
    from pyarrow import parquet  # here: it takes a tenth of a second

    try:
        return parquet.ParquetFile(file, buffer_size=BLOCK)
    except (ValueError, OSError):
        raise CorpusError(f"{path}: is not a parquet file") from None


def _text(value: Any, where: str, column: str) -> str:
    if not isinstance(value, str):
        raise CorpusError(f"{where} has no text in '{column}'")
    try:
        value.isascii() or value.encode()
    except UnicodeEncodeError:
        raise CorpusError(f"{where} has half a character (a surrogate) in '{column}'") from None
    return value


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with opened_bounded(path, MAX_TABLE_BYTES if has_rows(path) else MAX_BYTES) as file:
            yield file
    except OSError as cause:
        raise _unreadable(path, cause) from cause


def _unreadable(path: Path, cause: OSError) -> CorpusError:
    reason = "no such file or folder" if isinstance(cause, FileNotFoundError) else f"cannot be read ({cause.strerror})"
    return CorpusError(f"{path}: {reason}")
