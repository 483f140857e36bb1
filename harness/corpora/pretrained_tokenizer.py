"""The tokenizer of a model folder as transformers writes it: `tokenizer.json`, read by the tokenizers library.

No code of the folder is executed. Special tokens of a template (a first token, a last token) are not put into a text.

Tokens of a text are those that the tokenizer gives for the whole text, although the text is cut. A tokenizer may read
across any cut, so each cut is tried on the characters around it: first as it is, then without the blank that follows it
(for tokenizers that put a blank before every text). Where neither gives the tokens of the uncut characters, the pieces
are joined again.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from harness.containment import first_line
from harness.corpora.pieces import END_OF_TEXT, batches
from harness.corpora.token_bytes import ends_in_bytes, known_lengths
from harness.errors import CorpusError
from harness.machine.files import read_bounded

FILE = "tokenizer.json"
MAX_BYTES = 64 * 1024**2  # Gemma's has 33 MB
MAX_CONFIG_BYTES = 4 * 1024**2
MAX_VOCAB = 2**24
MAX_PIECE = 2**22  # characters that are tokenised at once; a megabyte of text takes some hundred megabytes
NOT_THE_LIBRARYS = (KeyboardInterrupt, SystemExit, MemoryError)
CONTEXT = 128  # characters before and after a cut


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainedTokenizer:
    """A tokenizer of a model folder.

    Args:
        where: the name of the folder.
        sha256: of tokenizer.json.
        vocab_size: V, the larger one of the tokenizer's number of ids and `vocab_size` in config.json. A model may have
            more rows than the tokenizer has ids.
        end_of_text: the id of the token between documents: `<|endoftext|>` if the tokenizer has it, else `eos_token` in
            tokenizer_config.json, else `eos_token_id` in generation_config.json or config.json; None without any.
    """

    where: str
    tokenizer: Tokenizer
    sha256: str
    vocab_size: int
    end_of_text: int | None

    @property
    def identity(self) -> dict[str, object]:
        """What decides tokens and V. The place of the folder does not."""
        return {"tokenizer.json": self.sha256, "vocab_size": self.vocab_size, "end_of_text": self.end_of_text}


class EncodedPiece(NamedTuple):
    """A piece of a text and its tokens.

    Shapes: ids, ends (n,) int32; ends: the number of bytes of the piece up to the end of each token; None unless asked
    for.
    """

    text: str
    ids: np.ndarray
    ends: np.ndarray | None = None


def read_tokenizer(folder: Path) -> PretrainedTokenizer:
    """Read the tokenizer of a model folder.

    Raises: CorpusError when tokenizer.json is missing, larger than 64 MiB or no tokenizer; when it has dropout; or when
    a file beside it is no JSON or gives an impossible V.
    """
    content = _content(folder, FILE, MAX_BYTES)
    if content is None:
        raise CorpusError(
            f"{folder}: has no {FILE}; the tokenizer of a model is read from this file only, which transformers writes "
            "by save_pretrained of a fast tokenizer"
        )
    tokenizer = _parsed(content, str(folder))
    config, generation, about = (
        _json(folder, name) for name in ("config.json", "generation_config.json", "tokenizer_config.json")
    )
    config = {**_mapping(config.get("text_config")), **config}  # of a model for texts and images
    ids = max(tokenizer.get_vocab().values(), default=-1) + 1
    size = config.get("vocab_size", ids)
    if not 0 < ids <= MAX_VOCAB:
        raise CorpusError(f"{folder / FILE}: has {ids:,} ids; a vocabulary has 1 to {MAX_VOCAB:,}")
    if not (isinstance(size, int) and 0 < size <= MAX_VOCAB):
        raise CorpusError(f"{folder / 'config.json'}: vocab_size must be an integer from 1 to {MAX_VOCAB:,}")
    return PretrainedTokenizer(
        where=folder.name,
        tokenizer=tokenizer,
        sha256=hashlib.sha256(content).hexdigest(),
        vocab_size=max(size, ids),
        end_of_text=_end_of_text(tokenizer, about, generation, config),
    )


def encode(source: PretrainedTokenizer, texts: Iterable[str], *, ends: bool, where: str) -> Iterator[EncodedPiece]:
    """Yield the pieces of a text with their tokens. `<|endoftext|>` is the end of a document: a piece of one token,
    without text.

    Args:
        ends: whether to compute the bytes up to the end of each token.
        where: the name of the corpus in messages.
    Raises: CorpusError for a document's end if the tokenizer has no token for it, for a text that has to be tokenised
        in pieces of more than 4 million characters, and when the tokenizer fails.
    """
    tokenizer = source.tokenizer
    lengths_V = known_lengths(tokenizer) if ends else None
    encode_batch = tokenizer.encode_batch if ends else tokenizer.encode_batch_fast  # the fast one has no offsets
    for batch in batches(_cuts(source, texts, where), size=lambda cut: len(cut.text)):
        with _faults(source.where, where):
            encodings = encode_batch([cut.text[cut.skipped :] for cut in batch], add_special_tokens=False)
        for cut, encoding in zip(batch, encodings, strict=True):
            if cut.text == END_OF_TEXT:
                if source.end_of_text is None:
                    raise CorpusError(f"{where}: it has several documents, and {source.where} has no end-of-text token")
                yield EncodedPiece(cut.text, np.array([source.end_of_text], dtype=np.int32), np.zeros(1, np.int32))
                continue
            ids = np.array(encoding.ids, dtype=np.int32)
            found = None
            if lengths_V is not None:
                found = cut.skipped + ends_in_bytes(cut.text[cut.skipped :], ids, encoding.offsets, lengths_V)
            yield EncodedPiece(cut.text, ids, found)


class _Cut(NamedTuple):
    """A piece, and the number of its first characters that the tokenizer does not get."""

    text: str
    skipped: int = 0


def _cuts(source: PretrainedTokenizer, texts: Iterable[str], where: str) -> Iterator[_Cut]:
    """Yield pieces whose tokens, joined, are those of the text; and the ends of documents."""
    parts: list[str] = []
    skipped = 0

    def whole() -> Iterator[_Cut]:
        if parts:
            yield _Cut("".join(parts), skipped)

    for piece in _documents(texts):
        if piece == END_OF_TEXT:
            yield from whole()
            yield _Cut(piece)
            parts, skipped = [], 0
            continue
        with _faults(source.where, where):
            left_out = _left_out(source.tokenizer, _tail(parts), piece[:CONTEXT]) if parts else 0
        if parts and left_out is not None:
            yield from whole()
            parts, skipped = [], left_out
        parts.append(piece)
        if sum(map(len, parts)) > MAX_PIECE:
            raise CorpusError(
                f"{where}: a document has more than {MAX_PIECE:,} characters, and the tokenizer gives its parts other "
                "tokens; give smaller documents"
            )
    yield from whole()


def _documents(texts: Iterable[str]) -> Iterator[str]:
    """Yield the pieces of a text, with each `<|endoftext|>` as a piece of its own."""
    for text in texts:
        first, *others = text.split(END_OF_TEXT)
        if first:
            yield first
        for other in others:
            yield END_OF_TEXT
            if other:
                yield other


def _tail(parts: list[str]) -> str:
    tail = ""
    for part in reversed(parts):
        tail = part[-CONTEXT:] + tail
        if len(tail) >= CONTEXT:
            break
    return tail[-CONTEXT:]


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


@lru_cache(maxsize=2)
def _parsed(content: bytes, where: str) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_str(content.decode())
    except NOT_THE_LIBRARYS:
        raise
    except BaseException:  # the library raises no narrower type
        raise CorpusError(f"{where}: {FILE} is not a tokenizer of the tokenizers library") from None
    if getattr(tokenizer.model, "dropout", None):
        raise CorpusError(f"{where}: {FILE} has dropout, with which a text has other tokens each time")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.post_processor = None  # it puts special tokens around a text, and may leave white space out of offsets
    return tokenizer


def _end_of_text(tokenizer: Tokenizer, about: dict, generation: dict, config: dict) -> int | None:
    named = about.get("eos_token")
    named = named.get("content") if isinstance(named, dict) else named
    for token in (END_OF_TEXT, named):
        if isinstance(token, str) and (found := tokenizer.token_to_id(token)) is not None:
            return found
    for index in (generation.get("eos_token_id"), config.get("eos_token_id")):
        first = index[0] if isinstance(index, list) and index else index
        if isinstance(first, int) and 0 <= first < MAX_VOCAB and tokenizer.id_to_token(first) is not None:
            return first
    return None


def _json(folder: Path, name: str) -> dict[str, Any]:
    """Return the mapping of a JSON file; {} if there is no such file."""
    content = _content(folder, name, MAX_CONFIG_BYTES)
    if content is None:
        return {}
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise CorpusError(f"{folder / name}: is not JSON") from None
    if not isinstance(found, dict):
        raise CorpusError(f"{folder / name}: is not a JSON object")
    return found


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _content(folder: Path, name: str, max_bytes: int) -> bytes | None:
    """Return the content of a file in a model folder; None if there is none."""
    if not folder.is_dir():
        raise CorpusError(f"{folder}: no such folder")
    try:
        return read_bounded(folder / name, max_bytes)
    except FileNotFoundError:
        return None
    except OSError as cause:
        raise CorpusError(f"{folder / name}: cannot be read ({cause.strerror})") from cause
