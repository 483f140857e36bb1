"""Local text: the novel that is part of the package, and any text file or folder of the user."""

import hashlib
import io
import json
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import ClassVar, Literal

from harness.corpora.corpus import SPLITS, Corpus, CorpusFacts, Part, TextFacts
from harness.corpora.documents import (
    MAX_BYTES,
    Scanned,
    documents,
    has_rows,
    read_text,
    scan,
)
from harness.corpora.overlap import compared, lines_in_train
from harness.corpora.pieces import joined, pieces
from harness.corpora.progress import followed
from harness.corpora.split_files import WHOLE, files_in, refuse_empty
from harness.corpora.subwords import TokenizerSpec, check_tokenizer, counting
from harness.corpora.token_files import TextSource, stored
from harness.corpora.vocabulary import (
    COUNTING,
    Boundary,
    WordCodec,
    character_corpus,
    encode_splits,
    line_tokens,
    vocabulary,
    words_and_marks,
)
from harness.errors import CorpusError
from harness.printable import counted
from harness.registry import CORPORA

_NOVEL = Path(__file__).with_name("pride_and_prejudice.txt")
VALID_FROM, TEST_FROM = 0.8, 0.9  # fractions at which a text of one file is split
SPLIT = "split 80 / 10 / 10"
TABLES = (".json", ".csv", ".tsv")
_SPACE = re.compile(r"\s")


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

    @abstractmethod
    def _shape(self) -> tuple[str, Part, int]:
        """Return how the splits are made, in words; what the text consists of, and of how many."""

    def facts(self) -> CorpusFacts:
        """Facts of the text, with what was read of it to find them."""
        facts = super().facts()
        splits, part, number = self._shape()
        corpus = self._corpus if self.tokenizer is None else stored(self)
        characters = self._num_characters
        lines = self._lines_in_train
        text = TextFacts(part=part, number=number, characters=characters, splits=splits, lines_in_train=lines)
        return compared(facts, text, corpus, str(self))

    def load(self, data: Path) -> Corpus:
        """Read the tokens, and compare the lines of the splits."""
        return replace(super().load(data), lines_in_train=self._lines_in_train)

    @cached_property
    def _lines_in_train(self) -> dict[str, float]:
        """{} where the text is read only when it is tokenised."""
        return {} if self._num_characters is None else lines_in_train(self._content_and_units[1])

    @property
    def _num_characters(self) -> int | None:
        return sum(len(each) for strings in self._strings() for each in strings)

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
        found = self._content_and_units[1]
        return {name: units if isinstance(units, str) else "".join(units) for name, units in found.items()}

    def _strings(self) -> list[Sequence[str]]:
        """Return each split as strings that make up its text; at character level as one."""
        found = self._content_and_units[1].values()
        return [[units] if isinstance(units, str) else units for units in found]

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
        characters: read only the paragraphs that begin within so many characters of the printed text, and split these.
    Raises: CorpusError when the text is too small for the tokenizer's V, or the folder has no readable tokenizer;
        ValueError when a tokenizer is asked for at character level, or characters < 1.
    """

    options: ClassVar = {"corpus": "embedded"}

    def __init__(
        self,
        *,
        level: Literal["word", "char"] = "word",
        tokenizer: TokenizerSpec | None = None,
        characters: int | None = None,
    ):
        if characters is not None and characters < 1:
            raise ValueError(f"characters must be at least 1, got {characters}")
        _check(tokenizer, level=(level, "word"))
        self.level, self.tokenizer, self.characters = level, tokenizer, characters
        self.min_count = 3 if level == "word" else 1
        self.words = words_and_marks
        self.counting = _counting(level, tokenizer, f"{COUNTING['eos']} (a paragraph is a line)")

    def __str__(self) -> str:
        return "embedded"

    def _read(self) -> tuple[str, dict[str, Sequence[str]]]:
        text = _NOVEL.read_text(encoding="utf-8")
        parts = re.split(r"(\n\s*\n)", text)
        paragraphs = ["".join(parts[start : start + 2]) for start in range(0, len(parts), 2)]
        if self.characters is not None:
            begins = accumulate(map(len, paragraphs), initial=0)
            paragraphs = [each for each, begin in zip(paragraphs, begins, strict=False) if begin < self.characters]
            text = "".join(paragraphs)
        return hashlib.sha256(text.encode()).hexdigest(), _by_position(paragraphs)

    def _shape(self) -> tuple[str, Part, int]:
        paragraphs = sum(map(len, self._content_and_units[1].values()))
        return f"{SPLIT} by paragraphs", "paragraph", paragraphs


@CORPORA.register("text")
class Text(_LocalText):
    """Any UTF-8 text: one file, which is split 80 / 10 / 10 by position, or a folder with files for each split.

    One file is split at line ends, or at other white space if it has too few lines. At word level each split ends
    with <eos>, also where no line ends. A mark of byte order (BOM) is not part of the text, and CRLF is a line end.

    A .jsonl or .parquet file has a document in each row. Then the text is split by documents and not by lines, and with
    a tokenizer there is an end-of-text token between documents, which has no text. Without one, documents end with a
    line end. A folder in which no file is named after the validation or test split is one text: the documents of all
    its .txt, .jsonl and .parquet files, in the order of their names, where a .txt file is one document.

    Args:
        path: the file or folder; a text file may have at most 2 GiB. A relative path is relative to the suite file and
            must stay in the folder that contains the suite's folder. In a folder with a file for each split, each name
            has one of the words 'train' and 'training', 'valid', 'validation', 'val' and 'dev', or 'test', in small or
            capital letters: 'wiki.valid.tokens', 'Dev-1.jsonl'. A split may have several .jsonl or .parquet files.
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
        found = files_in(self.path) if os.path.isdir(self.path) else {WHOLE: [self.path]}
        for files in found.values():
            refuse_empty(files)
        return found

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
            return hashlib.sha256(text.encode()).hexdigest(), self._split(text)
        texts = {name: read_text(file) for name, (file,) in self._files.items()}
        content = hashlib.sha256("\0".join(texts.values()).encode()).hexdigest()
        return content, {name: self._units(text) for name, text in texts.items()}

    def content(self) -> str:
        """Return the SHA-256 of the text, or of the files with its documents."""
        return self._hash_of_files if self._has_documents else super().content()

    @cached_property
    def _scanned(self) -> dict[str, list[Scanned]]:
        """The files with documents, each read once."""
        return {name: [scan(file) for file in files] for name, files in self._files.items()}

    @cached_property
    def _hash_of_files(self) -> str:
        hashes = {name: [file.sha256 for file in files] for name, files in self._scanned.items()}
        return hashlib.sha256(json.dumps(["documents", self.column, hashes]).encode()).hexdigest()

    def pieces(self, data: Path) -> Iterator[tuple[str, Iterable[str]]]:
        """Yield the splits in their order, each in pieces for a tokenizer."""
        if not self._has_documents:
            return super().pieces(data)
        return (
            (name, joined(each.lower() if self.lowercase else each for each in found))
            for name, found in self._documents()
        )

    @property
    def _num_documents(self) -> dict[str, int]:
        return {name: sum(file.documents for file in files) for name, files in self._scanned.items()}

    def _shape(self) -> tuple[str, Part, int]:
        files = self._files.get(WHOLE, [])
        if self._has_documents:
            number = sum(self._num_documents.values())
            splits = f"{counted(len(files), 'file')}, {SPLIT} by documents"
        else:
            splits = self._strings()
            number = sum(map(_num_lines, [list(chain(*splits))] if files else splits))
            splits = f"{SPLIT} by {self._unit(number)}"
        if not files:
            splits = "; ".join(f"{name}: {_named(each)}" for name, each in self._files.items())
        return splits + self._plain(), "document" if self._has_documents else "line", number

    def _unit(self, lines: int) -> str:
        """What a text file of so many lines is split by."""
        if self.level == "char":
            return "characters"
        enough = all(_by_position(range(lines)).values())
        return "lines" if enough else "characters, at white space, because it has too few lines"

    def _plain(self) -> str:
        """What to say of files that people may expect to be read as tables."""
        files = [file for each in self._files.values() for file in each]
        tables = [file.suffix for file in files if file.suffix.lower() in TABLES]
        return f" ({tables[0]} is read as plain text; rows are read of .jsonl and .parquet)" if tables else ""

    @property
    def _num_characters(self) -> int | None:
        is_read = self.tokenizer is None or not self._has_documents
        return super()._num_characters if is_read else None

    def _documents(self) -> Iterator[tuple[str, Iterator[str]]]:
        """Yield the splits with their documents. Each split must be read to its end before the next."""
        counts = self._num_documents
        stream = (each for files in self._files.values() for file in files for each in documents(file, self.column))
        stream = followed(stream, str(self), sum(counts.values()), lambda _: 1)
        if WHOLE in counts:
            splits = _by_position(range(counts[WHOLE]))
            counts = {name: len(part) for name, part in splits.items()}
            if not all(counts.values()):
                number = counted(sum(counts.values()), "document")
                raise CorpusError(
                    f"{self}: {number}, too few to split them 80 / 10 / 10; give a folder with a "
                    "file for each split, or a text file, which is split by lines"
                )
        for name, number in counts.items():
            yield name, islice(stream, number)

    def _split(self, text: str) -> dict[str, Sequence[str]]:
        """Split a text by its lines or characters; by characters, at white space, if it has too few lines for that."""
        splits = _by_position(self._units(text))
        if not all(splits.values()):
            if self.level == "word" and self.tokenizer is None and len(text.split()) == 1:
                raise CorpusError(f"{self}: has no white space, so it is one word; set `level: char` or a tokenizer")
            if self.path.suffix.lower() == ".json":
                raise CorpusError(f"{self}: is no text; write its documents as .jsonl, an object in each line")
            places = [int(share * len(text)) for share in (VALID_FROM, TEST_FROM)]
            if len(text.split()) > 1:  # not within a word; a language may be written without white space
                places = [_after_word(text, place) for place in places]
            valid_from, test_from = places
            parts = text[:valid_from], text[valid_from:test_from], text[test_from:]
            if not all(map(str.strip, parts)):
                raise CorpusError(
                    f"{self}: too few words to split them 80 / 10 / 10; give a longer text, or a folder with a file "
                    "for each split"
                )
            splits = dict(zip(SPLITS, map(self._units, parts), strict=True))
        return splits

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


def _lower_words(line: str) -> list[str]:
    return line.lower().split()


def _by_position(units: Sequence[str]) -> dict[str, Sequence[str]]:
    valid_from, test_from = int(VALID_FROM * len(units)), int(TEST_FROM * len(units))
    return {"train": units[:valid_from], "valid": units[valid_from:test_from], "test": units[test_from:]}


def _after_word(text: str, at: int) -> int:
    """Return the place after the next white space, or the end."""
    space = _SPACE.search(text, at)
    return len(text) if space is None else space.end()


def _num_lines(strings: Sequence[str]) -> int:
    """Return the number of lines of a text, given strings that make it up."""
    last = next(filter(None, reversed(strings)), "\n")
    return sum(each.count("\n") for each in strings) + (not last.endswith("\n"))


def _named(files: Sequence[Path]) -> str:
    return files[0].name if len(files) == 1 else f"{len(files)} files"


def _text_of(found: Iterable[str], where: object) -> str:
    """Return the text of documents, each with a line end at its end."""
    lines, characters = [], 0
    for document in found:
        lines += [document] if document.endswith("\n") else [document, "\n"]
        characters += len(document) + 1
        if characters > MAX_BYTES:
            raise CorpusError(f"{where}: a text of more than {MAX_BYTES:,} characters needs a tokenizer")
    return "".join(lines)
