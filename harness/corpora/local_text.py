"""Local text: the novel that is part of the package, and any text file or folder of the user."""

import hashlib
import io
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

from harness.corpora.corpus import SPLITS, Corpus, CorpusFacts
from harness.corpora.subwords import TokenizerSpec, check_tokenizer, counting, fetch_tokenizer, pieces, vocab_size
from harness.corpora.token_files import Recipe, tokenized
from harness.corpora.vocabulary import (
    COUNTING,
    Boundary,
    WordCodec,
    character_corpus,
    encode_splits,
    line_tokens,
    vocabulary,
)
from harness.errors import CorpusError
from harness.machine.files import read_bounded
from harness.registry import CORPORA

_NOVEL = Path(__file__).with_name("pride_and_prejudice.txt")
_WORD_OR_MARK = re.compile(r"[a-z]+(?:'[a-z]+)?|[0-9]+|[^\sa-z0-9]")
MAX_BYTES = 2 * 1024**3
MAX_NAMES = 5  # of a folder's files, in a message
VALID_FROM, TEST_FROM = 0.8, 0.9  # fractions at which a text of one file is split


class _LocalCorpus(ABC):
    """A corpus from local files. Its facts are computed from the text.

    `_read` returns the SHA-256 of the content and the units of each split. The units are parts of the text that
    together make up the split; at word level each unit is a line, which ends with <eos>.
    """

    counting: str
    level: Literal["word", "char"]
    tokenizer: TokenizerSpec | None
    boundary: Boundary = "eos"
    min_count: int = 1
    words: Callable[[str], list[str]]

    @abstractmethod
    def _read(self) -> tuple[str, dict[str, Sequence[str]]]: ...

    @cached_property
    def _content_and_units(self) -> tuple[str, dict[str, Sequence[str]]]:
        return self._read()

    @cached_property
    def _untokenized(self) -> Corpus:
        if self.level == "char":
            return character_corpus(self._texts(), min_count=self.min_count, where=str(self))
        units = self._content_and_units[1]
        splits = {name: line_tokens(map(self.words, units[name]), self.boundary) for name in SPLITS}
        symbols = vocabulary(splits["train"], min_count=self.min_count, unknown=True)
        codec = WordCodec(symbols, boundary=self.boundary, words=self.words)
        return encode_splits(splits, symbols, where=str(self), codec=codec)

    def _texts(self) -> dict[str, str]:
        return {name: "".join(units) for name, units in self._content_and_units[1].items()}

    def facts(self) -> CorpusFacts:
        """Facts of the text. With a tokenizer the text is only hashed, and the number of tokens is not known."""
        content = self._content_and_units[0]
        if self.tokenizer is not None:
            size, num_tokens = vocab_size(self.tokenizer), None
        else:
            size = self._untokenized.vocab_size
            num_tokens = {name: len(getattr(self._untokenized, name)) for name in SPLITS}
        return CorpusFacts(vocab_size=size, num_tokens=num_tokens, content=content, counting=self.counting)

    def fetch(self, data: Path) -> None:
        """Download the tokenizer's files and tokenise the text. Without a tokenizer there is nothing to do."""
        if self.tokenizer is not None:
            fetch_tokenizer(self.tokenizer, data)
            self.load(data)

    def load(self, data: Path) -> Corpus:
        """Return the encoded text."""
        if self.tokenizer is None:
            return self._untokenized
        return tokenized(
            Recipe(
                content=self._content_and_units[0],
                tokenizer=self.tokenizer,
                texts=lambda: ((name, pieces(text)) for name, text in self._texts().items()),
                options=self._options(),
                where=str(self),
            ),
            data,
        )

    def _options(self) -> dict[str, object]:
        return {"corpus": "text"}


@CORPORA.register("embedded")
class Embedded(_LocalCorpus):
    """Jane Austen, Pride and Prejudice (1813, public domain), part of the package: 147,864 tokens, V = 2,764.

    In lower case, with words and punctuation marks as separate tokens; a paragraph is a line. Words that are seen less
    than 3 times in the training split become <unk>. The first 80 % of the paragraphs are the training split, the next
    10 % the validation split, the last 10 % the test split.

    Args:
        level: 'word', or 'char': every character of the printed text is a token, with line ends; V = 76.
        tokenizer: 'gpt2', {bpe: V} or {wordpiece: V}. The tokens are those of the printed text. The last two are
            trained on the training split.
    Raises: CorpusError when the text is too small for the tokenizer's V; ValueError when a tokenizer is asked for at
        character level.
    """

    def __init__(self, *, level: Literal["word", "char"] = "word", tokenizer: TokenizerSpec | None = None):
        _check(tokenizer, level=(level, "word"))
        self.level, self.tokenizer = level, tokenizer
        self.min_count = 3 if level == "word" else 1
        self.words = _words_and_marks
        self.counting = _counting(level, tokenizer, f"{COUNTING['eos']} (a paragraph is a line)")

    def __str__(self) -> str:
        return "embedded"

    def _read(self) -> tuple[str, dict[str, Sequence[str]]]:
        text = _NOVEL.read_text(encoding="utf-8")
        parts = re.split(r"(\n\s*\n)", text)
        paragraphs = ["".join(parts[start : start + 2]) for start in range(0, len(parts), 2)]
        return hashlib.sha256(text.encode()).hexdigest(), _by_position(paragraphs)

    def _options(self) -> dict[str, object]:
        return {"corpus": "embedded"}


@CORPORA.register("text")
class Text(_LocalCorpus):
    """Any UTF-8 text: one file, which is split 80 / 10 / 10 by position, or a folder with a file for each split.

    Args:
        path: the file or folder; a file may have at most 2 GiB. A relative path is relative to the suite file and must
            stay in the folder that contains the suite's folder. In a folder, the names of the three files contain
            'train', 'valid' and 'test'.
        level: 'word' splits lines on whitespace; with 'char' every character is a token, with line ends.
        lowercase: convert the text to lower case first.
        min_count: symbols that are seen less often in the training split become <unk>.
        boundary: 'eos' or 'sos_eos'; word level only.
        tokenizer: 'gpt2', {bpe: V} or {wordpiece: V}, instead of words or characters. The last two are trained on the
            training split. The text is tokenised once, into the cache. `<|endoftext|>` in the text is one token.
    Raises: CorpusError when a file is missing, ambiguous, not UTF-8, a split is empty, or the text is too small for the
        tokenizer's V; ValueError when min_count < 1, when a boundary is set at character level, or when level,
        min_count or boundary is set together with a tokenizer.
    """

    def __init__(
        self,
        *,
        path: Path,
        level: Literal["word", "char"] = "word",
        lowercase: bool = False,
        min_count: int = 1,
        boundary: Boundary = "eos",
        tokenizer: TokenizerSpec | None = None,
    ):
        if min_count < 1:
            raise ValueError(f"min_count must be at least 1, got {min_count}")
        _check(tokenizer, level=(level, "word"), min_count=(min_count, 1), boundary=(boundary, "eos"))
        if level == "char" and boundary != "eos":
            raise ValueError("boundary: character level has no line boundaries to mark; leave it out")
        self.path, self.level, self.lowercase = Path(path), level, lowercase
        self.min_count, self.boundary, self.tokenizer = min_count, boundary, tokenizer
        self.words = _lower_words if lowercase else str.split
        self.counting = _counting(level, tokenizer, COUNTING[boundary])

    def __str__(self) -> str:
        return str(self.path)

    def _read(self) -> tuple[str, dict[str, Sequence[str]]]:
        if os.path.isdir(self.path):
            texts = {name: _read_text(_split_file(self.path, name)) for name in SPLITS}
            content = hashlib.sha256("\0".join(texts.values()).encode()).hexdigest()
            return content, {name: self._units(text) for name, text in texts.items()}
        text = _read_text(self.path)
        return hashlib.sha256(text.encode()).hexdigest(), _by_position(self._units(text))

    def _units(self, text: str) -> Sequence[str]:
        """Return the units by which a text is split: characters, or lines with their line ends."""
        text = text.lower() if self.lowercase else text
        return text if self.level == "char" else list(io.StringIO(text, newline="\n"))

    def _options(self) -> dict[str, object]:
        return {"corpus": "text", "lowercase": self.lowercase}


def _check(tokenizer: TokenizerSpec | None, **given: tuple[object, object]) -> None:
    """Raise ValueError for parameters that have no meaning with a tokenizer: `given` has their values and defaults."""
    if tokenizer is None:
        return
    check_tokenizer(tokenizer)
    for name, (value, default) in given.items():
        if value != default:
            raise ValueError(f"{name}: has no meaning with a tokenizer, because its tokens are not words or characters")


def _counting(level: str, tokenizer: TokenizerSpec | None, at_word_level: str) -> str:
    if tokenizer is not None:
        return f"{counting(tokenizer)}, line ends included; words are whitespace-separated"
    return at_word_level if level == "word" else "characters, line ends included"


def _words_and_marks(line: str) -> list[str]:
    return _WORD_OR_MARK.findall(line.lower())


def _lower_words(line: str) -> list[str]:
    return line.lower().split()


def _by_position(units: Sequence[str]) -> dict[str, Sequence[str]]:
    valid_from, test_from = int(VALID_FROM * len(units)), int(TEST_FROM * len(units))
    return {"train": units[:valid_from], "valid": units[valid_from:test_from], "test": units[test_from:]}


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
    """Read a text file with universal line ends.

    Messages never quote the content of the file: the path may be wrong, or come from a suite of another person.
    """
    try:
        content = read_bounded(path, MAX_BYTES)  # guard: text-size read_bounded(path, MAX_BYTES) -> path.read_bytes()
        return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8").read()
    except FileNotFoundError:
        raise CorpusError(f"{path}: no such file or folder") from None
    except UnicodeDecodeError as cause:
        raise CorpusError(f"{path}: cannot be read as UTF-8 text (byte {cause.start + 1})") from None
    except OSError as cause:
        raise CorpusError(f"{path}: cannot be read ({cause.strerror})") from cause
