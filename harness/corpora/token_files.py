"""Token files: a text is tokenised once, into memory-mapped int32 files in the user's cache.

The folder <cache>/tokens/<key>/ has {train,valid,test}.int32, tokenizer.json and index.json, which is written last and
has the sizes and SHA-256 of the others. With the tokenizer of a model folder, test_bytes.int32 has the number of bytes
of the text of each token of the test split. Where the tokens do not give back every byte of the test split, as those of
a tokenizer in lower case, neither this file nor the size of the text is kept. The key is the hash of everything that
decides the tokens: text, tokenizer, options and version of the library. One process writes, under a lock, and others
wait for it. Each file is written under a temporary name and then renamed. So a process that is killed leaves no
incomplete files, and files that other processes have mapped do not change. Files that do not match the index are made
again.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from tokenizers import Tokenizer
from torch import Tensor

from harness.corpora.corpus import SPLITS, Corpus, CorpusFacts, TextSize
from harness.corpora.limited import Send, limited
from harness.corpora.pieces import END_OF_TEXT, EncodedPiece, encode
from harness.corpora.progress import report, send_all
from harness.corpora.subwords import (
    SubwordCodec,
    TokenizerSpec,
    content_with,
    fetch_tokenizer,
    folder_of,
    lengths_by_id,
    make_tokenizer,
    read_tokenizer,
    tokenizer_identity,
    unknown_id,
    vocab_size,
)
from harness.corpora.vocabulary import refuse_short, size_within, text_size
from harness.errors import StorageError
from harness.machine.files import atomically, cache_folder, read_bounded, remove_stale, write_atomically
from harness.machine.locks import held

FORMAT = 2
TEST_BYTES = "test_bytes.int32"
MAX_JSON_BYTES = 64 * 1024**2


class TextSource(ABC):
    """A source of a corpus whose text a tokenizer may read. str(source) names it in messages.

    Args:
        tokenizer: None: `untokenized` has the tokens.
        counting: the counting rule in words.
        options: other settings that decide the tokens: the name of the corpus and its changes to the text.
        words_of_split: the number of words of each split, one for each line end included, if words are not counted by
            white space.
        may_be_empty: splits that may have no tokens.
    """

    tokenizer: TokenizerSpec | None
    counting: str
    options: Mapping[str, object]
    words_of_split: Mapping[str, int] | None = None
    may_be_empty: tuple[str, ...] = ()

    @abstractmethod
    def content(self) -> str:
        """Return the SHA-256 of the text. Together with `tokenizer` and `options` it decides every token."""

    @abstractmethod
    def pieces(self, data: Path) -> Iterator[tuple[str, Iterable[str]]]:
        """Yield the splits in their order, each with the pieces of its text. It is called once or twice."""

    def untokenized(self, data: Path) -> Corpus:
        """Return the corpus without a tokenizer."""
        raise NotImplementedError

    def sizes(self) -> tuple[int, dict[str, int]]:
        """Return V and the number of tokens of each split without a tokenizer."""
        raise NotImplementedError

    def identity_of_tokens(self) -> str:
        """Return `CorpusFacts.content` without the other facts."""
        return content_with(self.tokenizer, self.content())

    def facts(self) -> CorpusFacts:
        """Facts of the text. With a tokenizer the number of tokens is not known."""
        content = self.identity_of_tokens()
        size, num_tokens = self.sizes() if self.tokenizer is None else (vocab_size(self.tokenizer), None)
        folder = folder_of(self.tokenizer)
        return CorpusFacts(
            vocab_size=size,
            num_tokens=num_tokens,
            content=content,
            counting=self.counting,
            tokenizer=None if folder is None else read_tokenizer(folder),
        )

    def count_tokens(self) -> dict[str, int] | None:
        """Return the number of tokens of each split, for which the text is tokenised into the cache; None where the
        tokenizer has to be downloaded.
        """
        if self.tokenizer is None:
            return self.sizes()[1]
        if self.tokenizer == "gpt2":
            return None
        corpus = tokenized(self, Path())
        return {name: len(getattr(corpus, name)) for name in SPLITS}

    def fetch(self, data: Path) -> None:
        """Download the tokenizer's files and tokenise the text. Without a tokenizer there is nothing to do."""
        if self.tokenizer is not None:
            fetch_tokenizer(self.tokenizer, data)
            self.load(data)
            self.facts()  # refuses splits that are parts of one another

    def load(self, data: Path) -> Corpus:
        """Read the tokens; with a tokenizer from its token files, which are made if there are none."""
        return self.untokenized(data) if self.tokenizer is None else tokenized(self, data)

    @property
    def identity(self) -> dict[str, object]:
        """The data of which the key of token files is the hash."""
        return {
            "format": FORMAT,
            "content": self.content(),
            "tokenizer": tokenizer_identity(self.tokenizer),
            "options": dict(self.options),
            "library": f"tokenizers {version('tokenizers')}",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """One token file: the number of tokens, the SHA-256, and of a test split whose tokens give back every byte the size
    of the text of all tokens except the first.
    """

    tokens: int
    sha256: str
    size: TextSize | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Index:
    """What is in a folder.

    Args:
        vocab_size: V.
        end_of_text: the id of the token between documents; None without one.
        test_bytes: the SHA-256 of test_bytes.int32; None if there is no such file.
    """

    identity: dict[str, object]
    tokenizer_sha256: str
    splits: dict[str, _File]
    vocab_size: int
    end_of_text: int | None
    test_bytes: str | None = None


_INDEX = TypeAdapter(_Index)


def tokens_folder() -> Path:
    """Return the folder of token files: `tokens` in HARNESS_CACHE, or in the folder for downloaded corpora."""
    return cache_folder() / "tokens"


def _folder_of(source: TextSource) -> Path:
    identity = json.dumps(source.identity, sort_keys=True)
    return tokens_folder() / hashlib.sha256(identity.encode()).hexdigest()[:16]


def stored(source: TextSource) -> Corpus | None:
    """Return the corpus of a source with a tokenizer, if it is tokenised already."""
    return _opened(_folder_of(source), source)


def tokenized(source: TextSource, data: Path) -> Corpus:
    """Return the corpus of a source with a tokenizer. Read its token files if they are complete, else make them.

    Raises: CorpusError when the tokenizer is not available or a split has fewer than 2 tokens; StorageError when the
    files cannot be written.
    """
    folder = _folder_of(source)
    found = _opened(folder, source)
    if found is not None:
        return found
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with held(folder / ".lock"):
            found = _opened(folder, source)
            if found is None:
                remove_stale(folder)
                _make(source, folder, data)
                found = _opened(folder, source)
    except OSError as cause:
        raise StorageError(
            f"the tokens of {source} cannot be written to {folder} ({cause.strerror or cause}); "
            "name another folder by the environment variable HARNESS_CACHE"
        ) from cause
    if found is None:
        raise StorageError(
            f"the files in {folder} differ from what was just written; "
            "name another folder by the environment variable HARNESS_CACHE"
        )
    return found


def _make(source: TextSource, folder: Path, data: Path) -> None:
    def work(send: Send) -> None:
        send_all(send)
        _write_all(source, folder, data)

    for read in limited(work, f"{source}, with its tokenizer"):
        report(*read)


def _write_all(source: TextSource, folder: Path, data: Path) -> None:
    def train() -> Iterable[str]:
        return next(pieces for name, pieces in source.pieces(data) if name == "train")

    tokenizer = make_tokenizer(source.tokenizer, data, train, str(source))
    description = tokenizer.tokenizer.to_str().encode()
    write_atomically(folder / "tokenizer.json", description)
    splits, test_bytes = {}, None
    for name, pieces in source.pieces(data):
        encoded = encode(tokenizer, pieces, ends=name == "test", where=str(source))
        words = None if source.words_of_split is None else source.words_of_split[name]
        file, lengths_N = _write(encoded, folder / f"{name}.int32", words)
        if file.tokens or name not in source.may_be_empty:
            refuse_short(file.tokens, name, str(source))
        if file.size is not None and folder_of(source.tokenizer) is not None:
            write_atomically(folder / TEST_BYTES, lengths_N.tobytes())
            test_bytes = _sha256(lengths_N.data)
        splits[name] = file
    index = _Index(
        identity=source.identity,
        tokenizer_sha256=_sha256(description),
        splits=splits,
        vocab_size=tokenizer.vocab_size,
        end_of_text=tokenizer.end_of_text,
        test_bytes=test_bytes,
    )
    write_atomically(folder / "index.json", json.dumps(asdict(index), indent=1).encode())


def _write(encoded: Iterable[EncodedPiece], place: Path, num_words: int | None) -> tuple[_File, np.ndarray]:
    """Write one split while it is read; one batch and the lengths are in memory. Return what is in the file, and (N,)
    int32, the bytes of each token of pieces with ends.
    """
    num_tokens, digest = 0, hashlib.sha256()
    words = characters = 0
    unscored, has_ends, is_kept = TextSize(words=0, characters=0, bytes=0), False, True
    lengths: list[np.ndarray] = []
    with atomically(place) as file:
        for piece in encoded:
            if piece.ends is not None:
                if num_tokens == 0 and len(piece.ids):
                    unscored = _unscored(piece, by_lines=num_words is not None)
                size = text_size("" if piece.text == END_OF_TEXT else piece.text)  # the mark is not part of the text
                lengths.append(np.diff(piece.ends, prepend=0).astype(np.int32))
                has_ends, is_kept = True, is_kept and piece.is_kept
                words, characters = words + size.words, characters + size.characters
            num_tokens += len(piece.ids)
            file.write(piece.ids.data)
            digest.update(piece.ids.data)
    lengths_N = np.concatenate(lengths) if lengths else np.zeros(0, dtype=np.int32)
    size = TextSize(
        words=(words if num_words is None else num_words) - unscored.words,
        characters=characters - unscored.characters,
        bytes=int(lengths_N[1:].sum()),
    )
    return _File(tokens=num_tokens, sha256=digest.hexdigest(), size=size if has_ends and is_kept else None), lengths_N


def _unscored(piece: EncodedPiece, *, by_lines: bool) -> TextSize:
    """Return the size of the text of the first token. With `by_lines`, a line end counts as a word, too."""
    first = piece.text.encode()[: piece.ends[0]]
    size = size_within(piece.text, first)
    return replace(size, words=size.words + first.count(b"\n")) if by_lines else size


def _opened(folder: Path, source: TextSource) -> Corpus | None:
    """Return the corpus in a folder; None unless every file exists with the size and SHA-256 in the index."""
    try:
        index = _INDEX.validate_json(read_bounded(folder / "index.json", MAX_JSON_BYTES))
        description = read_bounded(folder / "tokenizer.json", MAX_JSON_BYTES)
        if index.identity != source.identity or _sha256(description) != index.tokenizer_sha256:
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
    if (lengths_V := lengths_by_id(source.tokenizer, tokenizer)) is not None:
        tensors["test_bytes"] = torch.from_numpy(lengths_V)[tensors["test"].long()]
    return Corpus(
        vocab_size=index.vocab_size,
        codec=SubwordCodec(tokenizer),
        unknown_id=unknown_id(tokenizer),
        end_of_text=index.end_of_text,
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
