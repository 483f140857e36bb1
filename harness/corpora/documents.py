"""Documents of files: a text file is one document, and .jsonl and .parquet files have one in each row.

Files are read row by row, so only one row (of .parquet, a few rows) is in memory. Messages never quote the content of a
file: the path may be wrong, or come from a suite of another person.
"""

import codecs
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from harness.corpora.limited import GIB, Send, limited
from harness.errors import CorpusError
from harness.machine.files import opened_bounded, read_bounded

ROWS = (".jsonl", ".parquet")  # of which each row is a document
SUFFIXES = (".txt", *ROWS)
MAX_BYTES = 2 * 1024**3  # of a text file
MAX_TABLE_BYTES = 64 * 1024**3  # of a .jsonl or .parquet file
MAX_LINE = 256 * 1024**2
BLOCK = 2**20
FEW_ROWS = 64
MOST_UNPACKED, LEAST_UNPACKED = 1000, 2**24  # characters of a .parquet file: for each byte, and in any case
MEMORY_OF_BYTE = 100  # that reading a .parquet file may take
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Scanned(NamedTuple):
    """What one reading of a file shows: the SHA-256 of its bytes, without the mark of byte order
    of a text file, and the number of its documents.
    """

    sha256: str
    documents: int


def has_rows(path: Path) -> bool:
    """Return whether each row of a file is a document."""
    return path.suffix.lower() in ROWS


def scan(path: Path) -> Scanned:
    """Read a file once. Raises CorpusError when it cannot be read."""
    digest, number = hashlib.sha256(), 1
    with _opened(path) as file:
        if path.suffix.lower() == ".jsonl":
            number = 0
            for _, line in _lines(path, file):
                digest.update(line)
                number += bool(line.strip())
            return Scanned(digest.hexdigest(), number)
        block = file.read(BLOCK)
        digest.update(block if has_rows(path) else block.removeprefix(codecs.BOM_UTF8))
        while block := file.read(BLOCK):
            digest.update(block)
        if has_rows(path):
            number = _table(path, file).metadata.num_rows
    return Scanned(digest.hexdigest(), number)


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
    """Return the text of a file: without a mark of byte order, and with \\n for each line end."""
    try:
        content = read_bounded(path, MAX_BYTES)
    except OSError as cause:
        raise _unreadable(path, cause) from cause
    text = _decoded(content, path)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _decoded(content: bytes, path: Path, *, offset: int = 0, line: int = 1) -> str:
    """Return a part of a file as text, without a mark of byte order at its beginning.

    Args:
        offset, line: where the part begins in the file: the bytes before it, and its first line.
    """
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as cause:
        encoding = "UTF-16" if content.startswith(UTF16) else "ISO-8859-1"
        line += content.count(b"\n", 0, cause.start)
        raise CorpusError(
            f"{path}: cannot be read as UTF-8 text (byte offset {offset + cause.start:,}, "
            f"line {line:,}); unpack a compressed file, convert another one, for example: "
            f"iconv -f {encoding} -t UTF-8 OLD > NEW"
        ) from None


def _of_json(path: Path, file: BinaryIO, column: str) -> Iterator[str]:
    offset = 0
    for number, line in _lines(path, file):
        begin, offset = offset, offset + len(line)
        if not line.strip():
            continue
        text = _decoded(line, path, offset=begin, line=number)
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            raise CorpusError(
                f'{path}: line {number} is not JSON; each line must be an object as {{"{column}": "..."}}'
            ) from None
        yield _text(row.get(column) if isinstance(row, dict) else None, f"{path}: line {number}", column)


def _lines(path: Path, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise CorpusError(f"{path}: line {number} has more than {MAX_LINE:,} bytes; cut it into several")
        yield number, line


def _of_parquet(path: Path, file: BinaryIO, column: str) -> Iterator[str]:
    """Yield the texts of a column, which are read in a copy of this process: a row may unpack to any size."""
    size, characters, number = path.stat().st_size, 0, 0

    def work(send: Send) -> None:
        for texts in _batches_of_parquet(path, file, column):
            send(texts)

    for texts in limited(work, str(path), GIB + MEMORY_OF_BYTE * size):
        for text in texts:
            number, characters = number + 1, characters + len(text)
            if characters > LEAST_UNPACKED + MOST_UNPACKED * size:
                raise CorpusError(
                    f"{path}: its first {number:,} rows have {characters:,} characters, more than {MOST_UNPACKED:,} "
                    "times its size: one text over and over; give its documents once, or as .jsonl"
                )
            yield text


def _batches_of_parquet(path: Path, file: BinaryIO, column: str) -> Iterator[list[str]]:
    table, number = _table(path, file), 0
    known = table.schema_arrow.names
    if column not in known:
        raise CorpusError(f"{path}: has no column '{column}' (has: {', '.join(known[:20])}); name one by `column:`")
    batches = table.iter_batches(batch_size=FEW_ROWS, columns=[column])
    while True:
        try:
            batch = next(batches, None)
        except (ValueError, OSError):  # ArrowInvalid is a ValueError
            raise CorpusError(f"{path}: is damaged after row {number}; copy or write it again") from None
        if batch is None:
            return
        texts = []
        for value in batch.column(0):
            number += 1
            try:
                text = value.as_py()
            except UnicodeDecodeError:
                raise CorpusError(
                    f"{path}: row {number} is no UTF-8 text in '{column}'; write the column again as UTF-8"
                ) from None
            texts.append(_text(text, f"{path}: row {number}", column))
        yield texts


def _table(path: Path, file: BinaryIO) -> Any:
    from pyarrow import parquet  # here: it takes a tenth of a second

    try:
        return parquet.ParquetFile(file, buffer_size=BLOCK)
    except (ValueError, OSError):
        raise CorpusError(f"{path}: is not a parquet file; write it again, or give its documents as .jsonl") from None


def _text(value: Any, where: str, column: str) -> str:
    if not isinstance(value, str):
        raise CorpusError(f"{where} has no text in '{column}'; `column` names another one")
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
    if isinstance(cause, FileNotFoundError):
        return CorpusError(f"{path}: no such file or folder; a path in a suite begins at the suite's folder")
    return CorpusError(f"{path}: cannot be read ({cause.strerror})")
