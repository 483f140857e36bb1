"""Byte-level BPE and WordPiece of the tokenizers library, with GPT-2's vocabulary or one trained on a training split.

`<|endoftext|>` in a text is one token, number 50256 of GPT-2's vocabulary.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from harness.corpora import download
from harness.corpora.download import PinnedFile
from harness.errors import CorpusError

TokenizerSpec = Literal["gpt2"] | dict[Literal["bpe", "wordpiece"], int]
END_OF_TEXT, UNKNOWN_PIECE = "<|endoftext|>", "[UNK]"
_GPT2_URL = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main"
GPT2_FILES = (
    PinnedFile(
        "gpt2-bpe/encoder.json",
        f"{_GPT2_URL}/encoder.json",
        "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    ),
    PinnedFile(
        "gpt2-bpe/vocab.bpe",
        f"{_GPT2_URL}/vocab.bpe",
        "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    ),
)
_GPT2_SIZE = 50_257
# bpe: all bytes and <|endoftext|>; wordpiece: <|endoftext|>, [UNK] and a character
_LEAST = {"bpe": 257, "wordpiece": 3}
_NAMES = {"bpe": "byte-level BPE", "wordpiece": "WordPiece"}
PIECE_CHARACTERS, BATCH_CHARACTERS = 2**15, 2**20
_CUT = re.compile(rf"[ \n](?!{re.escape(END_OF_TEXT)})(?=[\w!-~])")


def check_tokenizer(spec: TokenizerSpec) -> None:
    """Raise ValueError unless the value is 'gpt2' or one algorithm with a possible size of the vocabulary."""
    if spec == "gpt2":
        return
    if len(spec) != 1:
        raise ValueError(f"tokenizer: expected 'gpt2', or one of bpe and wordpiece with a size, got {spec}")
    ((kind, size),) = spec.items()
    if size < _LEAST[kind]:
        raise ValueError(f"tokenizer: the vocabulary of {kind} must have at least {_LEAST[kind]} entries, got {size}")


def vocab_size(spec: TokenizerSpec) -> int:
    """Return V without reading a text."""
    return _GPT2_SIZE if spec == "gpt2" else next(iter(spec.values()))


def counting(spec: TokenizerSpec) -> str:
    """Return the counting rule in words."""
    return "GPT-2's byte-level BPE tokens" if spec == "gpt2" else f"{_NAMES[next(iter(spec))]} tokens"


def fetch_tokenizer(spec: TokenizerSpec, data: Path) -> None:
    """Download GPT-2's files to the data folder if the tokenizer needs them. Raises CorpusError."""
    for file in GPT2_FILES if spec == "gpt2" else ():
        download.fetch(file, data)


def make_tokenizer(spec: TokenizerSpec, data: Path, train: Callable[[], Iterable[str]], where: str) -> Tokenizer:
    """Return GPT-2's tokenizer, or one that is trained on the pieces of a training split. Training is reproducible.

    Raises: CorpusError when GPT-2's files are missing or changed, or when a vocabulary of the given size cannot be
        trained.
    """
    if spec == "gpt2":
        vocabulary, merges = (str(download.verified(file, data)) for file in GPT2_FILES)
        return _byte_level(models.BPE.from_file(vocabulary, merges))
    ((kind, size),) = spec.items()

    def words() -> Iterator[str]:
        return (piece.replace(END_OF_TEXT, " ") for piece in train())

    tokenizer = _trained_bpe(words(), size) if kind == "bpe" else _trained_wordpiece(words, size)
    found = tokenizer.get_vocab_size()
    if found != size:
        extreme = "at most" if found < size else "at least"
        raise CorpusError(f"{where}: tokenizer: the training split gives {kind} {extreme} {found} entries, not {size}")
    return tokenizer


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


def encode_pieces(tokenizer: Tokenizer, texts: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each piece with its int32 ids. The library's threads encode about a million characters at a time."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    for batch in _batches(texts):
        for piece, encoding in zip(batch, tokenizer.encode_batch_fast(batch), strict=True):
            yield piece, np.array(encoding.ids, dtype=np.int32)


def first_token(tokenizer: Tokenizer, piece: str) -> bytes:
    """Return the bytes of a piece up to the end of its first token."""
    encoding = tokenizer.encode(piece)
    if isinstance(tokenizer.model, models.BPE) and encoding.tokens[0] != END_OF_TEXT:
        return piece.encode()[: len(encoding.tokens[0])]  # each character in the name of a token stands for one byte
    return piece[: encoding.offsets[0][1]].encode()


class SubwordCodec:
    """Conversion between text and token ids.

    For byte-level BPE, `decode(encode(text)) == text`; an incomplete character gives U+FFFD. WordPiece does not keep
    white space: `decode` separates words and marks with single spaces, with fewer spaces before punctuation, and writes
    unknown characters as [UNK].
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """Return token ids."""
        return self._tokenizer.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)


def _byte_level(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END_OF_TEXT])
    return tokenizer


def _trained_bpe(train: Iterable[str], size: int) -> Tokenizer:
    tokenizer = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(train, trainer)
    return tokenizer


def _trained_wordpiece(train: Callable[[], Iterable[str]], size: int) -> Tokenizer:
    """Train WordPiece in two steps, which makes it reproducible.

    The library numbers the characters within words (##e) in the order of a random hash, and ties between merges depend
    on this order. So the first step finds these characters, and the second step gets them in a fixed order.
    """
    specials = [END_OF_TEXT, UNKNOWN_PIECE]
    found = _wordpiece_vocabulary(train(), 1, specials)
    within = sorted(token for token in found if len(token) == 3 and token.startswith("##"))
    vocabulary = _wordpiece_vocabulary(train(), size, [*specials, *within])
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN_PIECE))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([END_OF_TEXT])
    return tokenizer


def _wordpiece_vocabulary(train: Iterable[str], size: int, specials: list[str]) -> dict[str, int]:
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN_PIECE))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(train, trainer)
    return tokenizer.get_vocab()


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch, characters = [], 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
