"""Token files: a text is tokenised once, into memory-mapped int32 files in the user's cache.

The folder <cache>/tokens/<key>/ has {train,valid,test}.int32, tokenizer.json and index.json, which is written last and
has the sizes and SHA-256 of the others. With the tokenizer of a model folder, test_bytes.int32 has the number of bytes
of the text of each token of the test split. The key is the hash of everything that decides the tokens: text, tokenizer,
options and version of the library. One process writes, under a lock, and others wait for it. Each file is written under
a temporary name and then renamed. So a process that is killed leaves no incomplete files, and files that other
processes have mapped do not change. Files that do not match the index are made again.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from filelock import FileLock
from pydantic import TypeAdapter, ValidationError
from tokenizers import Tokenizer
from torch import Tensor

from harness.corpora.corpus import SPLITS, Corpus, TextSize
from harness.corpora.pieces import END_OF_TEXT
from harness.corpora.pretrained_tokenizer import EncodedPiece, encode
from harness.corpora.subwords import (
    SubwordCodec,
    TokenizerSpec,
    encode_pieces,
    first_token,
    lengths_by_id,
    make_tokenizer,
    pretrained,
    tokenizer_identity,
)
from harness.corpora.vocabulary import difference, size_within, text_size
from harness.errors import CorpusError, StorageError
from harness.machine.files import atomically, cache_folder, read_bounded, remove_stale, write_atomically

FORMAT = 1
TEST_BYTES = "test_bytes.int32"
MAX_JSON_BYTES = 64 * 1024**2
_UNITS = ("words", "characters", "bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The source of token files.

    Args:
        content: the SHA-256 of the text. Together with `tokenizer` and `options` it decides every token.
        texts: returns an iterator over the splits in their order, each with the pieces of its text. It is called once
            or twice.
        options: other settings that decide the tokens: the name of the corpus and its changes to the text.
        words: the number of words of each split, one for each line end included, if words are not counted by white
            space.
        may_be_empty: splits that may have no tokens.
        where: the name of the corpus in messages.
    """

    content: str
    tokenizer: TokenizerSpec
    texts: Callable[[], Iterator[tuple[str, Iterable[str]]]]
    options: Mapping[str, object]
    where: str
    words: Mapping[str, int] | None = None
    may_be_empty: tuple[str, ...] = ()

    @property
    def identity(self) -> dict[str, object]:
        """The data of which the key is the hash."""
        return {
            "format": FORMAT,
            "content": self.content,
            "tokenizer": tokenizer_identity(self.tokenizer),
            "options": dict(self.options),
            "library": f"tokenizers {version('tokenizers')}",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """One token file: the number of tokens, the SHA-256, and the size of the text of all tokens except the first."""

    tokens: int
    sha256: str
    size: TextSize


@dataclass(frozen=True, slots=True, kw_only=True)
class _Index:
    """What is in a folder.

    Args:
        vocab_size: V, if it is not the tokenizer's number of tokens.
        test_bytes: the SHA-256 of test_bytes.int32; None if there is no such file.
    """

    identity: dict[str, object]
    tokenizer_sha256: str
    splits: dict[str, _File]
    vocab_size: int | None = None
    test_bytes: str | None = None


_INDEX = TypeAdapter(_Index)


def tokens_folder() -> Path:
    """Return the folder of token files: `tokens` in HARNESS_CACHE, or in the folder for downloaded corpora."""
    return cache_folder() / "tokens"


def tokenized(recipe: Recipe, data: Path) -> Corpus:
    """Return the corpus of a recipe. Read its token files if they are complete, else make them.

    Raises: CorpusError when the tokenizer is not available or a split has fewer than 2 tokens; StorageError when the
    files cannot be written.
    """
    identity = json.dumps(recipe.identity, sort_keys=True)
    folder = tokens_folder() / hashlib.sha256(identity.encode()).hexdigest()[:16]
    found = _opened(folder, recipe)
    if found is not None:
        return found
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            found = _opened(folder, recipe)
            if found is None:
                remove_stale(folder)
                _make(recipe, folder, data)
                found = _opened(folder, recipe)
    except OSError as cause:
        raise StorageError(
            f"the tokens of {recipe.where} cannot be written to {folder} ({cause.strerror or cause}); "
            "name another folder by the environment variable HARNESS_CACHE"
        ) from cause
    if found is None:
        raise StorageError(
            f"the files in {folder} differ from what was just written; "
            "name another folder by the environment variable HARNESS_CACHE"
        )
    return found


def _make(recipe: Recipe, folder: Path, data: Path) -> None:
    def train() -> Iterable[str]:
        return next(pieces for name, pieces in recipe.texts() if name == "train")

    source = pretrained(recipe.tokenizer)
    tokenizer = make_tokenizer(recipe.tokenizer, data, train, recipe.where) if source is None else source.tokenizer
    description = tokenizer.to_str().encode()
    write_atomically(folder / "tokenizer.json", description)
    splits, test_bytes = {}, None
    for name, pieces in recipe.texts():
        num_words = recipe.words and recipe.words[name]
        if source is None:
            encoded = (EncodedPiece(piece, ids) for piece, ids in encode_pieces(tokenizer, pieces))
        else:
            encoded = encode(source, pieces, ends=name == "test", where=recipe.where)
        if source is None or name != "test":
            splits[name] = _write(tokenizer, encoded, folder / f"{name}.int32", num_words)
            continue
        with atomically(folder / TEST_BYTES) as file:
            lengths = _Lengths(file)
            written = _write(tokenizer, lengths.kept(encoded), folder / f"{name}.int32", num_words)
        splits[name] = replace(written, size=replace(written.size, bytes=lengths.scored))
        test_bytes = lengths.sha256
    for name, file in splits.items():
        if file.tokens < 2 and not (file.tokens == 0 and name in recipe.may_be_empty):
            raise CorpusError(f"{recipe.where}: the {name} split has {file.tokens} tokens; at least 2 are needed")
    index = _Index(
        identity=recipe.identity,
        tokenizer_sha256=_sha256(description),
        splits=splits,
        vocab_size=None if source is None else source.vocab_size,
        test_bytes=test_bytes,
    )
    write_atomically(folder / "index.json", json.dumps(asdict(index), indent=1).encode())


def _write(tokenizer: Tokenizer, encoded: Iterable[EncodedPiece], place: Path, num_words: int | None) -> _File:
    """Write one split while it is read; only one batch is in memory."""
    num_tokens, digest, sizes = 0, hashlib.sha256(), []
    unscored = TextSize(words=0, characters=0, bytes=0)
    with atomically(place) as file:
        for piece, ids, ends in encoded:
            if num_tokens == 0:
                first = _first(tokenizer, piece, ends) if len(ids) else piece.encode()
                unscored = _unscored(piece, first, by_lines=num_words is not None)
            num_tokens += len(ids)
            file.write(ids.data)
            digest.update(ids.data)
            sizes.append(astuple(_size(piece)))
    whole = TextSize(**dict(zip(_UNITS, map(sum, zip(*sizes, strict=True)), strict=True))) if sizes else unscored
    whole = whole if num_words is None else replace(whole, words=num_words)
    return _File(tokens=num_tokens, sha256=digest.hexdigest(), size=difference(whole, unscored))


def _first(tokenizer: Tokenizer, piece: str, ends: np.ndarray | None) -> bytes:
    """Return the bytes of a piece up to the end of its first token."""
    if piece == END_OF_TEXT:
        return piece.encode()
    return first_token(tokenizer, piece) if ends is None else piece.encode()[: ends[0]]


class _Lengths:
    """Writes the number of bytes of each token while a split is written.

    Args:
        scored: the number of bytes of all tokens except the first.
    """

    def __init__(self, file: BinaryIO):
        self._file, self._digest = file, hashlib.sha256()
        self._waiting = np.empty(0, dtype=np.int32)  # lengths of the last piece that had tokens
        self._carried = 0  # bytes of pieces without tokens
        self._first: int | None = None
        self.scored = 0

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of what was written."""
        return self._digest.hexdigest()

    def kept(self, encoded: Iterable[EncodedPiece]) -> Iterator[EncodedPiece]:
        """Yield the pieces of a split, and write the lengths of their tokens."""
        for piece in encoded:
            if len(piece.ids):
                self._flush()
                self._waiting = np.diff(piece.ends, prepend=0).astype(np.int32)
                self._waiting[0] += self._carried
                self._carried = 0
            else:
                self._carried += len(piece.text.encode())
            yield piece
        self._waiting[-1:] += self._carried
        self._flush()

    def _flush(self) -> None:
        if self._first is None and len(self._waiting):
            self._first = int(self._waiting[0])
            self.scored -= self._first
        self.scored += int(self._waiting.sum())
        self._file.write(self._waiting.data)
        self._digest.update(self._waiting.data)


def _size(piece: str) -> TextSize:
    """Return the size of a piece. The mark between documents separates words and is not part of the text."""
    marks = piece.count(END_OF_TEXT)
    size = text_size(piece.replace(END_OF_TEXT, " "))
    return replace(size, characters=size.characters - marks, bytes=size.bytes - marks)


def _unscored(piece: str, first: bytes, *, by_lines: bool) -> TextSize:
    """Return the size of the text of the first token. With `by_lines`, a line end counts as a word, too."""
    if first == END_OF_TEXT.encode():
        return TextSize(words=0, characters=0, bytes=0)
    size = size_within(piece, first)
    return replace(size, words=size.words + first.count(b"\n")) if by_lines else size


def _opened(folder: Path, recipe: Recipe) -> Corpus | None:
    """Return the corpus in a folder; None unless every file exists with the size and SHA-256 in the index."""
    try:
        index = _INDEX.validate_json(read_bounded(folder / "index.json", MAX_JSON_BYTES))
        description = read_bounded(folder / "tokenizer.json", MAX_JSON_BYTES)
        if index.identity != recipe.identity or _sha256(description) != index.tokenizer_sha256:
            return None
        splits = index.splits
        tensors = {name: _mapped(folder / f"{name}.int32", splits[name].tokens, splits[name].sha256) for name in SPLITS}
        if index.test_bytes is not None:
            tensors["test_bytes"] = _mapped(folder / TEST_BYTES, splits["test"].tokens, index.test_bytes)
    except (OSError, ValidationError, KeyError):
        return None
    if any(tensor is None for tensor in tensors.values()):
        return None
    tokenizer = Tokenizer.from_str(description.decode())
    if (lengths_V := lengths_by_id(recipe.tokenizer, tokenizer)) is not None:
        tensors["test_bytes"] = torch.from_numpy(lengths_V)[tensors["test"].long()]
    return Corpus(
        vocab_size=index.vocab_size or tokenizer.get_vocab_size(),
        codec=SubwordCodec(tokenizer),
        test_size=splits["test"].size,
        **tensors,
    )


def _mapped(place: Path, tokens: int, sha256: str) -> Tensor | None:
    """Return (N,) int32, mapped from a file. Changes of the tensor stay in this process."""
    if place.stat().st_size != tokens * 4:
        return None
    numbers = np.memmap(place, dtype="<i4", mode="c") if tokens else np.empty(0, dtype=np.int32)
    return torch.from_numpy(numbers) if _sha256(numbers.data) == sha256 else None


def _sha256(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()
