"""Cut texts into pieces, and tokenise these one by one.

Tokens of a text are those that the tokenizer gives for the whole text, although the text is cut. A tokenizer may read
across any cut, so each cut is tried on the characters around it: first as it is, then without the blank that follows it
(for tokenizers that put a blank before every text). Where neither gives the tokens of the uncut characters, the pieces
are joined again.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from harness.containment import first_line
from harness.corpora.limited import GIB, allow
from harness.corpora.token_bytes import ends_in_bytes, gives_back, known_lengths
from harness.errors import CorpusError
from harness.machine.limits import memory

MAX_VOCAB = 2**24  # V: a model has a row for each token
END_OF_TEXT = "<|endoftext|>"  # the mark between documents
PIECE_CHARACTERS, BATCH_CHARACTERS = 2**15, 2**20
MAX_PIECE = 2**22  # characters that are tokenised at once; a megabyte of text takes some hundred megabytes
MOST_MEMORY, MEMORY_OF_CHARACTER = GIB, 2**10  # bytes that tokenising a batch may take
CONTEXT = 128  # characters before and after a cut
NOT_THE_LIBRARYS = (KeyboardInterrupt, SystemExit, MemoryError)
_CUT = re.compile(rf"[ \n](?!{re.escape(END_OF_TEXT)})(?=[\w!-~])")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTokenizer:
    """A tokenizer of the tokenizers library, and what it stands for.

    Args:
        where: the name of its folder, for messages.
        sha256: of the folder's tokenizer.json; '' for a tokenizer that is not of a folder.
        vocab_size: V, which may be larger than its number of ids.
        end_of_text: the id of the token between documents; None without any.
        puts_first: the id of the token that transformers puts before each text with it; None for nothing.
    """

    where: str
    tokenizer: Tokenizer
    vocab_size: int
    end_of_text: int | None
    puts_first: int | None = None
    sha256: str = ""

    @property
    def identity(self) -> dict[str, object]:
        """What decides tokens and V. The place of the folder does not."""
        return {"tokenizer.json": self.sha256, "vocab_size": self.vocab_size, "end_of_text": self.end_of_text}


class EncodedPiece(NamedTuple):
    """A piece of a text and its tokens.

    Shapes: ids, ends (n,) int32; ends: the number of bytes of the piece up to the end of each token; None unless asked
    for.
    Args:
        is_kept: whether the tokens give back every byte of the text; known where ends are asked for.
    """

    text: str
    ids: np.ndarray
    ends: np.ndarray | None = None
    is_kept: bool = True


def pieces(text: str) -> Iterator[str]:
    """Cut a text into pieces.

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


def encode(source: TextTokenizer, texts: Iterable[str], *, ends: bool = False, where: str) -> Iterator[EncodedPiece]:
    """Yield the pieces of a text with their tokens. `<|endoftext|>` is the end of a document: a piece of one token,
    without text. The library's threads encode about a million characters at a time.

    Args:
        ends: whether to compute the bytes up to the end of each token.
        where: the name of the corpus in messages.
    Raises: CorpusError for a document's end if the tokenizer has no token for it, for a text that has to be tokenised
        in pieces of more than 4 million characters, and when the tokenizer fails.
    """
    tokenizer = source.tokenizer
    lengths_V = known_lengths(tokenizer) if ends else None
    encode_batch = tokenizer.encode_batch if ends else tokenizer.encode_batch_fast  # the fast one has no offsets
    allow(MOST_MEMORY)
    for batch in _batches(_cuts(source, texts, where)):
        allow(MOST_MEMORY + MEMORY_OF_CHARACTER * sum(len(cut.text) for cut in batch))
        with _faults(source.where, where):
            encodings = encode_batch([cut.text[cut.skipped :] for cut in batch], add_special_tokens=False)
        for cut, encoding in zip(batch, encodings, strict=True):
            is_kept = True
            if cut.text == END_OF_TEXT:
                if source.end_of_text is None:
                    raise CorpusError(
                        f"{where}: it has several documents, and {source.where} has no end-of-text token; give it an "
                        "eos_token, or the text as one document"
                    )
                ids, found = np.array([source.end_of_text], dtype=np.int32), np.zeros(1, dtype=np.int32)
            else:
                ids, found = np.array(encoding.ids, dtype=np.int32), None
            _refuse_beyond(source, ids, where)
            if lengths_V is not None and found is None:
                found = cut.skipped + ends_in_bytes(cut.text[cut.skipped :], ids, encoding.offsets, lengths_V)
                is_kept = gives_back(tokenizer, encoding.ids, cut.text)
            yield EncodedPiece(cut.text, ids, found if ends else None, is_kept)
    allow(memory().free // 2)


def _refuse_beyond(source: TextTokenizer, ids: np.ndarray, where: str) -> None:
    """Raises CorpusError for an id that is not below V: a model has no row for it."""
    if len(ids) and (beyond := int(ids.max())) >= source.vocab_size:
        raise CorpusError(
            f"{where}: its text has the token {source.tokenizer.id_to_token(beyond)!r}, id {beyond:,}, and the model "
            f"in {source.where} has only the ids 0 to {source.vocab_size - 1:,} (vocab_size in config.json); take it "
            "out of the text, or resize the model with resize_token_embeddings and train it"
        )


class _Cut(NamedTuple):
    """A piece, and the number of its first characters that the tokenizer does not get."""

    text: str
    skipped: int = 0


def _cuts(source: TextTokenizer, texts: Iterable[str], where: str) -> Iterator[_Cut]:
    """Yield pieces whose tokens, joined, are those of the text; and the ends of documents."""
    text, skipped = "", 0
    for piece in _documents(texts):
        ends = piece == END_OF_TEXT
        with _faults(source.where, where):
            left_out = _left_out(source.tokenizer, text[-CONTEXT:], piece[:CONTEXT]) if text and not ends else 0
        if left_out is not None:
            if text:
                yield _Cut(text, skipped)
            text, skipped = "", left_out
        if ends:
            yield _Cut(piece)
            continue
        text += piece
        if len(text) > MAX_PIECE:
            raise CorpusError(
                f"{where}: a document has more than {MAX_PIECE:,} characters, and the tokenizer gives its parts other "
                "tokens; give smaller documents"
            )
    if text:
        yield _Cut(text, skipped)


def _batches(cuts: Iterable[_Cut]) -> Iterator[list[_Cut]]:
    batch, characters = [], 0
    for cut in cuts:
        batch.append(cut)
        characters += len(cut.text)
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _documents(texts: Iterable[str]) -> Iterator[str]:
    """Yield the pieces of a text, with each `<|endoftext|>` as a piece of its own."""
    for text in texts:
        yield from filter(None, re.split(f"({re.escape(END_OF_TEXT)})", text))


def _left_out(tokenizer: Tokenizer, before: str, after: str) -> int | None:
    """Return how many characters after a cut to leave out, 0 or 1, so that the tokens stay; None if neither does."""

    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    expected, first = ids(before + after), ids(before)
    for skipped in (0, 1) if after.startswith(" ") else (0,):
        if expected == first + ids(after[skipped:]):
            return skipped
    return None


@contextmanager
def _faults(folder: str, where: str) -> Iterator[None]:
    """Within it a fault of the library is a CorpusError. A fault of its Rust code is no Exception."""
    try:
        yield
    except NOT_THE_LIBRARYS:
        raise
    except BaseException as cause:
        raise CorpusError(f"{where}: the tokenizer of {folder} fails on its text: {first_line(cause)}") from cause
