"""Vocabularies of words, characters and bytes: counting rules, texts to ids, and ids to texts.

Standard counting: tokens are separated by whitespace, and every line, also a blank one, has one <eos>. Ids are in the
order of first appearance in the training split. With the boundary 'sos_eos' every line also begins with <sos>, which is
scored, as in the code of Benka et al. (2021). <sos> always follows <eos>, so its nll is almost 0 and it lowers the
perplexity per token.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from harness.corpora.corpus import SPLITS, Codec, Corpus, TextSize
from harness.corpora.token_bytes import utf8_lengths
from harness.errors import CorpusError

EOS, SOS, UNK = "<eos>", "<sos>", "<unk>"
Boundary = Literal["eos", "sos_eos"]
COUNTING = {
    "eos": "words plus one <eos> per line",
    "sos_eos": "words plus one <sos> and one <eos> per line, <sos> scored too",
}
_WORD_OR_MARK = re.compile(r"[a-z]+(?:'[a-z]+)?|[0-9]+|[^\sa-z0-9]")


def words_and_marks(line: str) -> list[str]:
    """Return the words of a line in lower case, and its punctuation marks."""
    return _WORD_OR_MARK.findall(line.lower())


def line_tokens(lines: Iterable[Sequence[str]], boundary: Boundary) -> list[str]:
    """Return the tokens of lines that are already split into words."""
    tokens: list[str] = []
    for words in lines:
        if boundary == "sos_eos":
            tokens.append(SOS)
        tokens.extend(words)
        tokens.append(EOS)
    return tokens


def vocabulary(train: Sequence[str], *, min_count: int = 1, unknown: bool = False) -> tuple[str, ...]:
    """Return the symbols in the order of first appearance.

    Args:
        train: the training split's tokens.
        min_count: symbols that are seen less often are left out.
        unknown: append <unk> if the text does not contain it.
    """
    symbols = [symbol for symbol, count in Counter(train).items() if count >= min_count]
    if unknown and UNK not in symbols:
        symbols.append(UNK)
    return tuple(symbols)


def encode(tokens: Sequence[str], ids: dict[str, int], where: str) -> Tensor:
    """Return (N,) int64 ids. A symbol outside of the vocabulary becomes <unk>.

    Raises CorpusError if there is no <unk>.
    """
    unknown = ids.get(UNK)
    encoded = [ids.get(token, unknown) for token in tokens]
    if unknown is None and None in encoded:
        raise CorpusError(f"{where}: '{tokens[encoded.index(None)]}' is not in the training split's vocabulary")
    return torch.tensor(encoded, dtype=torch.int64)


def encode_splits(
    splits: dict[str, list[str]], symbols: tuple[str, ...], where: str, codec: Codec | None = None
) -> Corpus:
    """Return a Corpus, given the tokens of its three splits."""
    ids = {symbol: index for index, symbol in enumerate(symbols)}
    for name in SPLITS:
        refuse_short(len(splits[name]), name, where)
    tensors = {name: encode(splits[name], ids, f"{where}, {name} split") for name in SPLITS}
    return Corpus(
        vocab_size=len(symbols),
        symbols=symbols,
        codec=codec,
        unknown_id=ids.get(UNK),
        uncounted_id=ids.get(SOS),
        **tensors,
    )


def refuse_short(tokens: int, split: str, where: str) -> None:
    """Raise CorpusError for a split of fewer than two tokens, in which nothing can be predicted."""
    if tokens < 2:
        raise CorpusError(f"{where}: the {split} split has {tokens} tokens; at least 2 are needed: give a longer text")


def line_end(corpus: Corpus) -> int | None:
    """Return the id of <eos>; None if the tokens of a corpus are not the words of lines."""
    symbols = corpus.symbols or ()
    return symbols.index(EOS) if EOS in symbols else None


class WordCodec:
    """One id for each word, and <eos> for each line end. A last line without a line end gets no <eos>.

    `decode(encode(text))` can differ from the text: words are joined with single spaces, unknown words become <unk>,
    and <sos> is left out.

    Args:
        symbols: the words in the order of their ids.
        boundary: with 'sos_eos' every line begins with <sos>.
        words: splits a line into words; by default on whitespace.
    """

    def __init__(
        self, symbols: Sequence[str], *, boundary: Boundary = "eos", words: Callable[[str], list[str]] = str.split
    ):
        self._symbols, self._boundary, self._words = tuple(symbols), boundary, words
        self._ids = {symbol: index for index, symbol in enumerate(self._symbols)}

    def encode(self, text: str) -> list[int]:
        """Return token ids. Unknown words become <unk>. Raises CorpusError if the vocabulary has no <unk>."""
        *lines, last = text.split("\n")
        tokens = line_tokens([self._words(line) for line in lines], self._boundary)
        tokens += [SOS] * bool(last and self._boundary == "sos_eos") + self._words(last)
        return _known(tokens, self._ids, "word")

    def decode(self, ids: Sequence[int]) -> str:
        """Return the words, separated by spaces, with a line end for each <eos>."""
        lines: list[list[str]] = [[]]
        for index in ids:
            symbol = self._symbols[index]
            if symbol == EOS:
                lines.append([])
            elif symbol != SOS:
                lines[-1].append(symbol)
        return "\n".join(" ".join(words) for words in lines)

    def token_bytes(self) -> list[bytes]:
        """Return the bytes of each word. <eos> and <sos> have no text."""
        return [b"" if symbol in (EOS, SOS) else symbol.encode() for symbol in self._symbols]


class CharacterCodec:
    """One id for each character. `decode(encode(text)) == text` if the vocabulary has all characters of the text.

    Args:
        symbols: the symbols in the order of their ids; each is a character, or <unk> for any other character.
        spelled: character -> symbol, for characters whose symbol is another text: {' ': '_', line end: '<eos>'}.
    """

    def __init__(self, symbols: Sequence[str], *, spelled: Mapping[str, str] | None = None):
        self._symbols, self._spelled = tuple(symbols), dict(spelled or {})
        self._meant = {symbol: character for character, symbol in self._spelled.items()}
        self._ids = {symbol: index for index, symbol in enumerate(self._symbols)}

    def encode(self, text: str) -> list[int]:
        """Return token ids. Unknown characters become <unk>. Raises CorpusError if the vocabulary has no <unk>."""
        return _known([self._spelled.get(character, character) for character in text], self._ids, "character")

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text. <unk> is written as <unk>."""
        return "".join(self._meant.get(self._symbols[index], self._symbols[index]) for index in ids)

    def token_bytes(self) -> list[bytes]:
        """Return the bytes of each character."""
        return [self._meant.get(symbol, symbol).encode() for symbol in self._symbols]


class ByteCodec:
    """One id for each byte of UTF-8.

    Args:
        values: the bytes in the order of their ids.
    """

    def __init__(self, values: bytes):
        self._values = values
        self._ids = {value: index for index, value in enumerate(values)}

    def encode(self, text: str) -> list[int]:
        """Return token ids. Raises CorpusError for a byte that the corpus does not have."""
        return _known(text.encode(), self._ids, "byte")

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text. Bytes that are not valid UTF-8, as a part of a character, become U+FFFD."""
        return bytes(self._values[index] for index in ids).decode("utf-8", errors="replace")

    def token_bytes(self) -> list[bytes]:
        """Return the one byte of each token."""
        return [bytes([value]) for value in self._values]


def _known(tokens: Sequence, ids: Mapping, kind: str) -> list[int]:
    unknown = ids.get(UNK)
    found = [ids.get(token, unknown) for token in tokens]
    if unknown is None and None in found:
        raise CorpusError(f"the {kind} {tokens[found.index(None)]!r} is not in the corpus' vocabulary")
    return found


_CODE_POINTS = 0x110000


def character_corpus(texts: Mapping[str, str], *, min_count: int = 1, where: str) -> Corpus:
    """Return a corpus with one id for each character, in the order of first appearance in the training split; <unk> is
    last.

    Args:
        min_count: characters seen less often in the training split become <unk>.
    Raises: CorpusError when a text has fewer than 2 characters.
    """
    for name in SPLITS:
        refuse_short(len(texts[name]), name, where)
    counts = np.bincount(_codes(texts["train"]), minlength=_CODE_POINTS)
    seen = [chr(code) for code in np.flatnonzero(counts >= min_count)]
    symbols = (*sorted(seen, key=texts["train"].index), UNK)
    table = np.full(_CODE_POINTS, len(symbols) - 1, dtype=np.int64)
    table[[ord(symbol) for symbol in symbols[:-1]]] = np.arange(len(symbols) - 1)
    return Corpus(
        vocab_size=len(symbols),
        symbols=symbols,
        codec=CharacterCodec(symbols),
        unknown_id=len(symbols) - 1,
        test_size=difference(text_size(texts["test"]), size_within(texts["test"], texts["test"][0].encode())),
        test_bytes=torch.from_numpy(utf8_lengths(texts["test"]).astype(np.int32)),
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
