"""Local text: the novel that is part of the package, and any text file or folder of the user."""

import hashlib
import io
import json
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

from harness.corpora.corpus import SPLITS, Corpus
from harness.corpora.documents import MAX_BYTES, SUFFIXES, count, documents, has_rows, read_text, sha256
from harness.corpora.pieces import joined, pieces
from harness.corpora.progress import followed
from harness.corpora.subwords import TokenizerSpec, check_tokenizer, counting
from harness.corpora.token_files import TextSource
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
from harness.registry import CORPORA

_NOVEL = Path(__file__).with_name("pride_and_prejudice.txt")
_WORD_OR_MARK = re.compile(r"[a-z]+(?:'[a-z]+)?|[0-9]+|[^\sa-z0-9]")
MAX_NAMES = 5  # of a folder's files, in a message
WHOLE = ""  # instead of a split's name: a text that is to be split
VALID_FROM, TEST_FROM = 0.8, 0.9  # fractions at which a text of one file is split


class _LocalText(TextSource):
    """A text from local files. Its facts are computed from it.

    `_read` returns the SHA-256 of the content and the units of each split. The units are parts of the text that
    together make up the split; at word level each unit is a line, which ends with <eos>.
    """

    level: Literal["word", "char"]
    boundary: Boundary = "eos"
    min_count: int = 1
    words: Callable[[str], list[str]]

    @abstractmethod
    def _read(self) -> tuple[str, dict[str, Sequence[str]]]: ...

    @cached_property
    def _content_and_units(self) -> tuple[str, dict[str, Sequence[str]]]:
        return self._read()

    @cached_property
    def _corpus(self) -> Corpus:
        if self.level == "char":
            return character_corpus(self._texts(), min_count=self.min_count, where=str(self))
        units = self._content_and_units[1]
        splits = {name: line_tokens(map(self.words, units[name]), self.boundary) for name in SPLITS}
        symbols = vocabulary(splits["train"], min_count=self.min_count, unknown=True)
        codec = WordCodec(symbols, boundary=self.boundary, words=self.words)
        return encode_splits(splits, symbols, where=str(self), codec=codec)

    def _texts(self) -> dict[str, str]:
        return {name: "".join(units) for name, units in self._content_and_units[1].items()}

    def content(self) -> str:
        """Return the SHA-256 of the text."""
        return self._content_and_units[0]

    def pieces(self, data: Path) -> Iterator[tuple[str, Iterable[str]]]:
        """Yield the splits in their order, each in pieces for a tokenizer."""
        texts, done = self._texts(), 0
        total = sum(map(len, texts.values()))
        for name, text in texts.items():
            yield name, followed(pieces(text), str(self), total, len, done)
            done += len(text)

    def sizes(self) -> tuple[int, dict[str, int]]:
        """Return V and the number of tokens of each split, as words or characters."""
        return self._corpus.vocab_size, {name: len(getattr(self._corpus, name)) for name in SPLITS}

    def untokenized(self, data: Path) -> Corpus:
        """Return the words or characters."""
        return self._corpus


@CORPORA.register("embedded")
class Embedded(_LocalText):
    """Jane Austen, Pride and Prejudice (1813, public domain), part of the package: 147,864 tokens, V = 2,764.

    In lower case, with words and punctuation marks as separate tokens; a paragraph is a line. Words that are seen less
    than 3 times in the training split become <unk>. The first 80 % of the paragraphs are the training split, the next
    10 % the validation split, the last 10 % the test split.

    Args:
        level: 'word', or 'char': every character of the printed text is a token, with line ends; V = 76.
        tokenizer: 'gpt2', {bpe: V}, {wordpiece: V} or {pretrained: FOLDER} (as of the corpus `text`). The tokens are
            those of the printed text. Those with a V are trained on the training split.
    Raises: CorpusError when the text is too small for the tokenizer's V, or the folder has no readable tokenizer;
        ValueError when a tokenizer is asked for at character level.
    """

    options: ClassVar = {"corpus": "embedded"}

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


@CORPORA.register("text")
class Text(_LocalText):
    """Any UTF-8 text: one file, which is split 80 / 10 / 10 by position, or a folder with files for each split.

    A .jsonl or .parquet file has a document in each row. Then the text is split by documents and not by lines, and with
    a tokenizer there is an end-of-text token between documents, which has no text. Without one, documents end with a
    line end. A folder in which no file's name contains 'valid' or 'test' is one text: the documents of all its .txt,
    .jsonl and .parquet files, in the order of their names, where a .txt file is one document.

    Args:
        path: the file or folder; a text file may have at most 2 GiB. A relative path is relative to the suite file and
            must stay in the folder that contains the suite's folder. In a folder with a file for each split, the names
            of the three files contain 'train', 'valid' and 'test'; a split may have several .jsonl or .parquet files.
        column: the name of the text in the rows of .jsonl and .parquet files.
        level: 'word' splits lines on whitespace; with 'char' every character is a token, with line ends.
        lowercase: convert the text to lower case first.
        min_count: symbols that are seen less often in the training split become <unk>.
        boundary: 'eos' or 'sos_eos'; word level only.
        tokenizer: 'gpt2', {bpe: V}, {wordpiece: V} or {pretrained: FOLDER}, instead of words or
            characters. Those with a V are trained on the training split. FOLDER is that of a model,
            as transformers writes it; its tokenizer.json is read, and V is `vocab_size` in
            config.json, or without it the number of the tokenizer's tokens; a text with an id that
            is not below V is refused. No special token is put before or after a text. The text is
            tokenised once, into the cache. `<|endoftext|>` in the text is the end of a document,
            one token: `<|endoftext|>`, or if a model's tokenizer does not have it, `eos_token` in
            tokenizer_config.json, or else `eos_token_id` in generation_config.json or config.json.
    Raises: CorpusError when a file is missing, ambiguous, not UTF-8, has rows without a text, a split is empty, the
        text is too small for the tokenizer's V, or the folder of a tokenizer has no readable one; ValueError when
        min_count < 1, when a boundary is set at character level, or when level, min_count or boundary is set together
        with a tokenizer.
    """

    def __init__(
        self,
        *,
        path: Path,
        column: str = "text",
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
        self.path, self.column, self.level, self.lowercase = Path(path), column, level, lowercase
        self.min_count, self.boundary, self.tokenizer = min_count, boundary, tokenizer
        self.words = _lower_words if lowercase else str.split
        self.options = {"corpus": "text", "lowercase": lowercase}

    def __str__(self) -> str:
        return str(self.path)

    @property
    def counting(self) -> str:
        """The counting rule in words."""
        rule = _counting(self.level, self.tokenizer, COUNTING[self.boundary])
        ends = "line ends included"
        if self.tokenizer is not None and self._has_documents:
            return rule.replace(ends, f"{ends}, and one end-of-text token between documents")
        return rule

    @cached_property
    def _files(self) -> dict[str, list[Path]]:
        """The files of each split, or those of the text that is to be split: {'': [...]}."""
        return _files_in(self.path) if os.path.isdir(self.path) else {WHOLE: [self.path]}

    @property
    def _has_documents(self) -> bool:
        """Whether the text consists of documents. A single text file does not."""
        files = [file for each in self._files.values() for file in each]
        return any(map(has_rows, files)) or (WHOLE in self._files and files != [self.path])

    def _read(self) -> tuple[str, dict[str, Sequence[str]]]:
        if self._has_documents:
            return self.content(), {name: self._units(_text_of(each, self)) for name, each in self._documents()}
        if WHOLE in self._files:
            text = read_text(self.path)
            return hashlib.sha256(text.encode()).hexdigest(), _by_position(self._units(text))
        texts = {name: read_text(file) for name, (file,) in self._files.items()}
        content = hashlib.sha256("\0".join(texts.values()).encode()).hexdigest()
        return content, {name: self._units(text) for name, text in texts.items()}

    def content(self) -> str:
        """Return the SHA-256 of the text, or of the files with its documents."""
        return self._hash_of_files if self._has_documents else super().content()

    @cached_property
    def _hash_of_files(self) -> str:
        hashes = {name: [sha256(file) for file in files] for name, files in self._files.items()}
        return hashlib.sha256(json.dumps(["documents", self.column, hashes]).encode()).hexdigest()

    def pieces(self, data: Path) -> Iterator[tuple[str, Iterable[str]]]:
        """Yield the splits in their order, each in pieces for a tokenizer."""
        if not self._has_documents:
            return super().pieces(data)
        return (
            (name, joined(each.lower() if self.lowercase else each for each in found))
            for name, found in self._documents()
        )

    def _documents(self) -> Iterator[tuple[str, Iterator[str]]]:
        """Yield the splits with their documents. Each split must be read to its end before the next."""
        counts = {name: sum(map(count, files)) for name, files in self._files.items()}
        stream = (each for files in self._files.values() for file in files for each in documents(file, self.column))
        stream = followed(stream, str(self), sum(counts.values()), lambda _: 1)
        if WHOLE in counts:
            splits = _by_position(range(counts[WHOLE]))
            counts = {name: len(part) for name, part in splits.items()}
            if not all(counts.values()):
                raise CorpusError(f"{self}: {sum(counts.values())} documents are too few to split them 80 / 10 / 10")
        for name, number in counts.items():
            yield name, islice(stream, number)

    def _units(self, text: str) -> Sequence[str]:
        """Return the units by which a text is split: characters, or lines with their line ends."""
        text = text.lower() if self.lowercase else text
        return text if self.level == "char" else list(io.StringIO(text, newline="\n"))


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


def _files_in(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each split in a folder; or all files, if none is named after the validation or test split."""
    try:
        found = sorted(path for path in folder.iterdir() if os.path.isfile(path))
    except OSError as cause:
        raise CorpusError(f"{folder}: cannot be read ({cause.strerror})") from cause
    named = {split: [path for path in found if split in path.name] for split in SPLITS}
    texts = [path for path in found if path.suffix.lower() in SUFFIXES]
    if texts and not (named["valid"] or named["test"]):
        return {WHOLE: texts}
    for split, files in named.items():
        if len(files) != 1 and not (files and all(map(has_rows, files))):
            names = ", ".join(path.name for path in files[:MAX_NAMES]) or "none"
            raise CorpusError(f"{folder}: expected one file with '{split}' in its name, found {names}")
    return named


def _text_of(found: Iterable[str], where: object) -> str:
    """Return the text of documents, each with a line end at its end."""
    lines, characters = [], 0
    for document in found:
        lines += [document] if document.endswith("\n") else [document, "\n"]
        characters += len(document) + 1
        if characters > MAX_BYTES:
            raise CorpusError(f"{where}: a text of more than {MAX_BYTES:,} characters needs a tokenizer")
    return "".join(lines)
