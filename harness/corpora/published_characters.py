"""The published character-level corpora: Penn Treebank in characters, text8 and enwik8, pinned by SHA-256.

Results on them are given in bits per character. Every token is one character, or one byte in enwik8.
"""

import hashlib
from pathlib import Path
from typing import ClassVar

import numpy as np

from harness.corpora import download
from harness.corpora.characters import byte_ids
from harness.corpora.codecs import ByteCodec, CharacterCodec
from harness.corpora.corpus import SPLITS, Corpus, CorpusFacts, TextSize
from harness.corpora.download import PinnedFile
from harness.corpora.vocabulary import EOS
from harness.errors import CorpusError
from harness.registry import CORPORA

_PTB_URL = (
    "https://raw.githubusercontent.com/townie/PTB-dataset-from-Tomas-Mikolov-s-webpage/"
    "06529ac968955ffc29a4668d68b93dadcfe55f2e/data"
)
_SPACE, _NEWLINE = 0x20, 0x0A


class _PublishedCharacters:
    """A corpus of pinned files with known counts."""

    FILES: ClassVar[tuple[PinnedFile, ...]]
    TOKENS: ClassVar[dict[str, int]]
    VOCAB_SIZE: ClassVar[int]
    COUNTING: ClassVar[str]

    def __init__(self):
        pass

    def facts(self) -> CorpusFacts:
        """Known counts; no file is read."""
        return CorpusFacts(
            vocab_size=self.VOCAB_SIZE,
            num_tokens=dict(self.TOKENS),
            content=hashlib.sha256("".join(file.sha256 for file in self.FILES).encode()).hexdigest(),
            counting=self.COUNTING,
        )

    def fetch(self, data: Path) -> None:
        """Download missing files and verify all files."""
        for file in self.FILES:
            download.fetch(file, data)

    def _corpus(self, splits: dict[str, np.ndarray], *, values: bytes, **about) -> Corpus:
        found = {name: len(splits[name]) for name in SPLITS}
        if found != self.TOKENS or len(values) != self.VOCAB_SIZE:
            raise CorpusError(
                f"{self.FILES[0].path}: found {found} tokens and {len(values)} symbols; "
                f"expected {self.TOKENS} and {self.VOCAB_SIZE}"
            )
        ids = {name: byte_ids(splits[name], values) for name in SPLITS}
        return Corpus(vocab_size=len(values), **ids, **about)


@CORPORA.register("ptb_char")
class PennTreebankCharacters(_PublishedCharacters):
    """Penn Treebank, character level, Mikolov's preprocessing: 5,017,482 / 393,042 / 442,423 characters, V = 50.

    A space of the text is the symbol `_`, and a line end is <eos>. The words <unk> and N are written in characters.

    Raises: CorpusError when a file is absent and cannot be downloaded, or has another content.
    Source: Mikolov et al. (2012), Subword Language Modeling with Neural Networks. Licence: LDC; never redistributed by
        us.
    """

    FILES: ClassVar = tuple(
        PinnedFile(f"ptb-char/ptb.char.{name}.txt", f"{_PTB_URL}/ptb.char.{name}.txt", sha256)
        for name, sha256 in {
            "train": "e313d91425e06c4f0a8fb6e881dcce0c291f2a0e9f4dda54833069b122f91da9",
            "valid": "21661f63ec355085879458b6524644d4add5573541b4be14fb52ab2e2e995eb8",
            "test": "1ef5607ac3c463b16e38bfe7900dd3bfc91de5a96e0f21e7eab5188b465b8ebe",
        }.items()
    )
    TOKENS: ClassVar = {"train": 5_017_482, "valid": 393_042, "test": 442_423}
    VOCAB_SIZE = 50
    TEST_WORDS = 82_430  # with one <eos> per line, as at word level; the first character does not end a word
    COUNTING = "characters, an <eos> for each line end; words are those of the word-level corpus, one <eos> per line"

    def load(self, data: Path) -> Corpus:
        """Read the files. In them, spaces separate symbols and are not symbols."""
        splits = {}
        for name, file in zip(SPLITS, self.FILES, strict=True):
            content = np.frombuffer(download.verified(file, data).read_bytes(), dtype=np.uint8)
            splits[name] = content[content != _SPACE]
        values = _first_seen(splits["train"])
        symbols = tuple(EOS if value == _NEWLINE else chr(value) for value in values)
        scored = self.TOKENS["test"] - 1
        return self._corpus(
            splits,
            values=values,
            symbols=symbols,
            codec=CharacterCodec(symbols, spelled={" ": "_", "\n": EOS}),
            test_size=TextSize(words=self.TEST_WORDS, characters=scored, bytes=scored),
        )


class _HundredMillionBytes(_PublishedCharacters):
    """One file of 10^8 bytes in a zip archive: 90 million for training, 5 for validation, 5 for test, in this order."""

    TOKENS: ClassVar = {"train": 90_000_000, "valid": 5_000_000, "test": 5_000_000}

    def load(self, data: Path) -> Corpus:
        """Read the file. The symbols are in the order of first appearance in the whole file."""
        content = np.frombuffer(download.verified(self.FILES[0], data).read_bytes(), dtype=np.uint8)
        values = _first_seen(content)
        ends = np.cumsum([self.TOKENS[name] for name in SPLITS])
        splits = dict(zip(SPLITS, np.split(content, ends[:-1]), strict=True))
        scored = self.TOKENS["test"] - 1
        return self._corpus(
            splits,
            values=values,
            symbols=tuple(chr(value) if value < 0x80 else f"<0x{value:02X}>" for value in values),
            codec=ByteCodec(values),
            test_size=TextSize(words=_words_after_first(splits["test"]), characters=scored, bytes=scored),
        )


@CORPORA.register("text8")
class Text8(_HundredMillionBytes):
    """text8: 100 million characters of English Wikipedia, a to z and space, V = 27; 90 / 5 / 5 million.

    Raises: CorpusError when the file is absent and cannot be downloaded, or has another content.
    Source: Mahoney, mattmahoney.net/dc/textdata.html; the split of Mikolov et al. (2012).
    """

    FILES: ClassVar = (
        PinnedFile(
            "text8/text8",
            "text8",
            "6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7",
            archive=PinnedFile(
                "text8/text8.zip",
                "http://mattmahoney.net/dc/text8.zip",
                "a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232",
            ),
        ),
    )
    VOCAB_SIZE = 27
    COUNTING = "characters; words are whitespace-separated"


@CORPORA.register("enwik8")
class Enwik8(_HundredMillionBytes):
    """enwik8: the first 10^8 bytes of a dump of English Wikipedia, mark-up included, V = 205; 90 / 5 / 5 million.

    A token is a byte. Published bits per character of enwik8 are bits per byte: each byte counts as a character.

    Raises: CorpusError when the file is absent and cannot be downloaded, or has another content.
    Source: Hutter prize; Mahoney, mattmahoney.net/dc/textdata.html; the split of Graves (2013), arXiv:1308.0850, in the
        form that Al-Rfou et al. (2018) use.
    """

    FILES: ClassVar = (
        PinnedFile(
            "enwik8/enwik8",
            "enwik8",
            "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8",
            archive=PinnedFile(
                "enwik8/enwik8.zip",
                "http://mattmahoney.net/dc/enwik8.zip",
                "547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
            ),
        ),
    )
    VOCAB_SIZE = 205
    COUNTING = "bytes, each counted as a character; words are whitespace-separated"


def _first_seen(content: np.ndarray) -> bytes:
    """Return the bytes that occur, in the order of first appearance."""
    seen = np.flatnonzero(np.bincount(content, minlength=256))
    searched = content.tobytes()
    return bytes(sorted(map(int, seen), key=lambda value: searched.index(value)))


def _words_after_first(content: np.ndarray) -> int:
    """Return the number of words, separated by ASCII whitespace, without a word that ends with the first byte."""
    words = content.tobytes().split()
    return len(words) - (content.tobytes()[:1].strip() != b"" and len(words[0]) == 1)
