"""Cut texts into pieces that are tokenised one by one, and put pieces together to batches."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

END_OF_TEXT = "<|endoftext|>"  # the mark between documents
PIECE_CHARACTERS, BATCH_CHARACTERS = 2**15, 2**20
_CUT = re.compile(rf"[ \n](?!{re.escape(END_OF_TEXT)})(?=[\w!-~])")
Piece = TypeVar("Piece")


def pieces(text: str) -> Iterator[str]:
    """Cut a text into pieces such that the tokens of the pieces, joined, are the tokens of the text.

    A cut is made before a blank or line end that is followed by a visible character. There GPT-2's pattern always
    starts a new match, because in a run of white space it matches everything except the last character. WordPiece
    starts again at any white space.
    """
    start = 0
    while cut := _CUT.search(text, start + PIECE_CHARACTERS):
        yield text[start : cut.start()]
        start = cut.start()
    if start < len(text):
        yield text[start:]


def joined(documents: Iterable[str]) -> Iterator[str]:
    """Cut documents into pieces, with the mark between them as a piece."""
    for number, document in enumerate(documents):
        if number:
            yield END_OF_TEXT
        yield from pieces(document)


def batches(found: Iterable[Piece], size: Callable[[Piece], int] = len) -> Iterator[list[Piece]]:
    """Yield pieces in lists of about a million characters.

    Args:
        size: the number of characters of a piece.
    """
    batch, characters = [], 0
    for piece in found:
        batch.append(piece)
        characters += size(piece)
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
