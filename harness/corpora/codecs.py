"""Conversion between text and the ids of words, characters or bytes."""

from collections.abc import Callable, Mapping, Sequence

from harness.corpora.vocabulary import EOS, SOS, UNK, Boundary, line_tokens
from harness.errors import CorpusError


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


def _known(tokens: Sequence, ids: Mapping, kind: str) -> list[int]:
    unknown = ids.get(UNK)
    found = [ids.get(token, unknown) for token in tokens]
    if unknown is None and None in found:
        raise CorpusError(f"the {kind} {tokens[found.index(None)]!r} is not in the corpus' vocabulary")
    return found
