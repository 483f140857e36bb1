"""Text that is at hand: the embedded novel, and any file or folder of the user's."""

import hashlib
import io
import os
import re
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Literal

from harness.corpora.corpus import SPLITS, Corpus, CorpusFacts
from harness.corpora.vocabulary import COUNTING, Boundary, encode_splits, line_tokens, vocabulary
from harness.errors import CorpusError
from harness.files import read_bounded
from harness.registry import CORPORA

_NOVEL = Path(__file__).with_name("pride_and_prejudice.txt")
_WORD_OR_MARK = re.compile(r"[a-z]+(?:'[a-z]+)?|[0-9]+|[^\sa-z0-9]")
MAX_BYTES = 2 * 1024**3
MAX_NAMES = 5  # of a folder's files, in a message
VALID_FROM, TEST_FROM = 0.8, 0.9  # a text that comes in one piece is split by position


class _LocalCorpus(ABC):
    """A corpus whose files are here: facts are read off the text itself. `_read` gives the digest and the splits."""

    counting: str
    min_count: int

    @abstractmethod
    def _read(self) -> tuple[str, dict[str, list[str]]]: ...

    @cached_property
    def _content_and_corpus(self) -> tuple[str, Corpus]:
        content, splits = self._read()
        symbols = vocabulary(splits["train"], min_count=self.min_count, unknown=True)
        return content, encode_splits(splits, symbols, where=str(self))

    def facts(self) -> CorpusFacts:
        """Counted on the text."""
        content, corpus = self._content_and_corpus
        num_tokens = {name: len(getattr(corpus, name)) for name in SPLITS}
        return CorpusFacts(vocab_size=corpus.vocab_size, num_tokens=num_tokens, content=content, counting=self.counting)

    def fetch(self, data: Path) -> None:  # noqa: B027 - nothing to fetch is the whole truth for local text
        """Nothing to fetch."""

    def load(self, data: Path) -> Corpus:
        """The encoded text."""
        return self._content_and_corpus[1]


@CORPORA.register("embedded")
class Embedded(_LocalCorpus):
    """Jane Austen, Pride and Prejudice (1813, public domain), shipped with the package: 147,864 tokens, V = 2,764.

    Lower case, words and punctuation marks apart, one paragraph a line; words seen less than 3 times in the training
    split become <unk>. The first 80 % of the paragraphs train, the next 10 % validate, the last 10 % test.
    """

    counting = f"{COUNTING['eos']} (a paragraph is a line)"
    min_count = 3

    def __init__(self):
        pass

    def __str__(self) -> str:
        return "embedded"

    def _read(self) -> tuple[str, dict[str, list[str]]]:
        text = _NOVEL.read_text(encoding="utf-8")
        paragraphs = [_WORD_OR_MARK.findall(part) for part in re.split(r"\n\s*\n", text.lower())]
        splits = {name: line_tokens(part, "eos") for name, part in _by_position(paragraphs).items()}
        return hashlib.sha256(text.encode()).hexdigest(), splits


@CORPORA.register("text")
class Text(_LocalCorpus):
    """Any UTF-8 text: one file, split 80 / 10 / 10 by position, or a folder with one file each for train, valid, test.

    Args:
        path: the file or folder, at most 2 GiB a file; a relative path is relative to the suite file and stays in the
            folder around the suite's. In a folder the three files are those whose names hold
            'train', 'valid' and 'test'.
        level: 'word' splits lines on whitespace, 'char' takes every character, line ends too.
        lowercase: lower-case the text first.
        min_count: symbols seen less often in the training split become <unk>.
        boundary: 'eos' or 'sos_eos'; word level only.
    Raises: CorpusError when a file is missing, ambiguous, not UTF-8, or a split is empty; ValueError when min_count
        < 1, or a boundary is asked for at character level.
    """

    def __init__(
        self,
        *,
        path: Path,
        level: Literal["word", "char"] = "word",
        lowercase: bool = False,
        min_count: int = 1,
        boundary: Boundary = "eos",
    ):
        if min_count < 1:
            raise ValueError(f"min_count must be at least 1, got {min_count}")
        if level == "char" and boundary != "eos":
            raise ValueError("boundary: character level has no line boundaries to mark; leave it out")
        self.path, self.level, self.lowercase = Path(path), level, lowercase
        self.min_count, self.boundary = min_count, boundary
        self.counting = COUNTING[boundary] if level == "word" else "characters, line ends included"

    def __str__(self) -> str:
        return str(self.path)

    def _read(self) -> tuple[str, dict[str, list[str]]]:
        if os.path.isdir(self.path):
            texts = {name: _read_text(_split_file(self.path, name)) for name in SPLITS}
            content = hashlib.sha256("\0".join(texts.values()).encode()).hexdigest()
            pieces = {name: self._pieces(text) for name, text in texts.items()}
        else:
            text = _read_text(self.path)
            content = hashlib.sha256(text.encode()).hexdigest()
            pieces = _by_position(self._pieces(text))
        if self.level == "word":
            pieces = {name: line_tokens(lines, self.boundary) for name, lines in pieces.items()}
        return content, pieces

    def _pieces(self, text: str) -> list:
        """Characters, or lines of words: what a text is split into by position."""
        text = text.lower() if self.lowercase else text
        if self.level == "char":
            return list(text)
        return [line.split() for line in text.removesuffix("\n").split("\n")]


def _by_position(pieces: list) -> dict[str, list]:
    valid_from, test_from = int(VALID_FROM * len(pieces)), int(TEST_FROM * len(pieces))
    return {"train": pieces[:valid_from], "valid": pieces[valid_from:test_from], "test": pieces[test_from:]}


def _split_file(folder: Path, split: str) -> Path:
    try:
        found = sorted(path for path in folder.iterdir() if split in path.name and os.path.isfile(path))
    except OSError as cause:
        raise CorpusError(f"{folder}: cannot be read ({cause.strerror})") from cause
    if len(found) != 1:
        names = ", ".join(path.name for path in found[:MAX_NAMES]) or "none"
        raise CorpusError(f"{folder}: expected one file with '{split}' in its name, found {names}")
    return found[0]


def _read_text(path: Path) -> str:
    """Universal line ends. No message tells what a file holds: the path may be a mistake, or somebody else's idea."""
    try:
        content = read_bounded(path, MAX_BYTES)
        return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8").read()
    except FileNotFoundError:
        raise CorpusError(f"{path}: no such file or folder") from None
    except UnicodeDecodeError as cause:
        raise CorpusError(f"{path}: cannot be read as UTF-8 text (byte {cause.start + 1})") from None
    except OSError as cause:
        raise CorpusError(f"{path}: cannot be read ({cause.strerror})") from cause
