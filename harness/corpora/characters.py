"""Convert characters to ids by a table of code points.

No Python list of characters is made, so long texts are possible.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from harness.corpora.codecs import CharacterCodec
from harness.corpora.corpus import SPLITS, Corpus, TextSize
from harness.corpora.vocabulary import UNK
from harness.errors import CorpusError

_CODE_POINTS = 0x110000


def character_corpus(texts: Mapping[str, str], *, min_count: int = 1, where: str) -> Corpus:
    """Return a corpus with one id for each character, in the order of first appearance in the training split; <unk> is
    last.

    Args:
        min_count: characters seen less often in the training split become <unk>.
    Raises: CorpusError when a text has fewer than 2 characters.
    """
    for name in SPLITS:
        if len(texts[name]) < 2:
            raise CorpusError(f"{where}: the {name} split has {len(texts[name])} tokens; at least 2 are needed")
    counts = np.bincount(_codes(texts["train"]), minlength=_CODE_POINTS)
    seen = [chr(code) for code in np.flatnonzero(counts >= min_count)]
    symbols = (*sorted(seen, key=texts["train"].index), UNK)
    table = np.full(_CODE_POINTS, len(symbols) - 1, dtype=np.int64)
    table[[ord(symbol) for symbol in symbols[:-1]]] = np.arange(len(symbols) - 1)
    return Corpus(
        vocab_size=len(symbols),
        symbols=symbols,
        codec=CharacterCodec(symbols),
        test_size=difference(text_size(texts["test"]), size_within(texts["test"], texts["test"][0].encode())),
        **{name: torch.from_numpy(table[_codes(texts[name])]) for name in SPLITS},
    )


def byte_ids(content: np.ndarray, values: bytes) -> Tensor:
    """Return (N,) int32 ids of bytes: the index of each byte in `values`."""
    table = np.zeros(256, dtype=np.int32)
    table[list(values)] = np.arange(len(values))
    return torch.from_numpy(table[content])


def text_size(text: str) -> TextSize:
    """Return the size of a text. Words are separated by whitespace; bytes are those of UTF-8."""
    return TextSize(words=len(text.split()), characters=len(text), bytes=len(text.encode()))


def size_within(text: str, prefix: bytes) -> TextSize:
    """Return the size of the part of a text that its first bytes `prefix` cover completely.

    A word or character counts if its last byte belongs to the prefix.
    """
    before = prefix.decode(errors="ignore")
    cut = bool(before) and len(before) < len(text) and not (before[-1].isspace() or text[len(before)].isspace())
    return TextSize(words=len(before.split()) - cut, characters=len(before), bytes=len(prefix))


def difference(whole: TextSize, part: TextSize) -> TextSize:
    """Return the size of a text without a part of it."""
    return TextSize(
        words=whole.words - part.words,
        characters=whole.characters - part.characters,
        bytes=whole.bytes - part.bytes,
    )


def _codes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
