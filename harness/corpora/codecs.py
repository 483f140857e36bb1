"""Text to the ids of words, characters and bytes, and back."""

from collections.abc import Callable, Mapping, Sequence

from harness.corpora.vocabulary import EOS, SOS, UNK, Boundary, line_tokens
from harness.errors import CorpusError


class WordCodec:
    """Words and <eos>, one for each line end; a last line without an end gets none.

    Args:
        symbols: in the order of their ids.
        boundary: with 'sos_eos' every line that is begun opens with <sos>.
        words: a line's words; whitespace separates them unless told otherwise.
    Differs from text: `decode` joins words with single spaces, <unk> stays <unk>, <sos> is dropped.
    """

    def __init__(
        self, symbols: Sequence[str], *, boundary: Boundary = "eos", words: Callable[[str], list[str]] = str.split
    ):
        self._symbols, self._boundary, self._words = tuple(symbols), boundary, words
        self._ids = {symbol: index for index, symbol in enumerate(self._symbols)}

    def encode(self, text: str) -> list[int]:
        """Unknown words become <unk>. Raises CorpusError where the vocabulary has no <unk>."""
        *lines, last = text.split("\n")
        tokens = line_tokens([self._words(line) for line in lines], self._boundary)
        tokens += [SOS] * bool(last and self._boundary == "sos_eos") + self._words(last)
        return _known(tokens, self._ids, "word")

    def decode(self, ids: Sequence[int]) -> str:
        """Words with a space between, a line end for <eos>."""
        lines: list[list[str]] = [[]]
        for index in ids:
            symbol = self._symbols[index]
            if symbol == EOS:
                lines.append([])
            elif symbol != SOS:
                lines[-1].append(symbol)
        return "\n".join(" ".join(words) for words in lines)


class CharacterCodec:
    """One id for each character. `decode(encode(text)) == text` for characters of the vocabulary.

    Args:
        symbols: in the order of their ids; a character, or <unk>, which stands for any other.
        spelled: how a character is written among the symbols where not as itself: {' ': '_', line end: '<eos>'}.
    """

    def __init__(self, symbols: Sequence[str], *, spelled: Mapping[str, str] | None = None):
        self._symbols, self._spelled = tuple(symbols), dict(spelled or {})
        self._meant = {symbol: character for character, symbol in self._spelled.items()}
        self._ids = {symbol: index for index, symbol in enumerate(self._symbols)}

    def encode(self, text: str) -> list[int]:
        """Unknown characters become <unk>. Raises CorpusError where the vocabulary has no <unk>."""
        return _known([self._spelled.get(character, character) for character in text], self._ids, "character")

    def decode(self, ids: Sequence[int]) -> str:
        """The characters; <unk> stays <unk>."""
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
        """Raises CorpusError for a byte that the corpus does not have."""
        return _known(text.encode(), self._ids, "byte")

    def decode(self, ids: Sequence[int]) -> str:
        """The text; bytes that are no UTF-8, as where a character is cut, become U+FFFD."""
        return bytes(self._values[index] for index in ids).decode("utf-8", errors="replace")


def _known(tokens: Sequence, ids: Mapping, kind: str) -> list[int]:
    unknown = ids.get(UNK)
    found = [ids.get(token, unknown) for token in tokens]
    if unknown is None and None in found:
        raise CorpusError(f"the {kind} {tokens[found.index(None)]!r} is not in the corpus' vocabulary")
    return found
