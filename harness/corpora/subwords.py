"""Byte-level BPE and WordPiece by the tokenizers library: GPT-2's vocabulary, or one trained on a training split.

`<|endoftext|>` in a text is one token, GPT-2's 50256.
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
_LEAST = {"bpe": 257, "wordpiece": 3}  # all bytes and <|endoftext|>; that, [UNK] and a character
_NAMES = {"bpe": "byte-level BPE", "wordpiece": "WordPiece"}
PIECE_CHARACTERS, BATCH_CHARACTERS = 2**15, 2**20
_CUT = re.compile(rf"[ \n](?!{re.escape(END_OF_TEXT)})(?=[\w!-~])")


def check_tokenizer(spec: TokenizerSpec) -> None:
    """Raises ValueError naming the parameter unless it is 'gpt2' or one algorithm with a size that can hold it."""
    if spec == "gpt2":
        return
    if len(spec) != 1:
        raise ValueError(f"tokenizer: expected 'gpt2', or one of bpe and wordpiece with a size, got {spec}")
    ((kind, size),) = spec.items()
    if size < _LEAST[kind]:
        raise ValueError(f"tokenizer: a vocabulary of {kind} has at least {_LEAST[kind]} entries, got {size}")


def vocab_size(spec: TokenizerSpec) -> int:
    """V, before any text is read."""
    return _GPT2_SIZE if spec == "gpt2" else next(iter(spec.values()))


def counting(spec: TokenizerSpec) -> str:
    """The counting rule in words."""
    return "GPT-2's byte-level BPE tokens" if spec == "gpt2" else f"{_NAMES[next(iter(spec))]} tokens"


def fetch_tokenizer(spec: TokenizerSpec, data: Path) -> None:
    """Make GPT-2's files present in the data folder, where they are meant. Raises CorpusError."""
    for file in GPT2_FILES if spec == "gpt2" else ():
        download.fetch(file, data)


def made(spec: TokenizerSpec, data: Path, train: Callable[[], Iterable[str]], where: str) -> Tokenizer:
    """GPT-2's tokenizer, or one trained on the pieces of a training split: the same every time.

    Raises: CorpusError when GPT-2's files are absent or changed, or when the text does not give the size asked for.
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
    """A text in pieces whose tokens, one after the other, are the text's own.

    Cuts stand before a blank or line end that a visible character follows: there GPT-2's pattern, which takes a run of
    white space but for its last character, always begins anew; and WordPiece at any white space.
    """
    start = 0
    while cut := _CUT.search(text, start + PIECE_CHARACTERS):
        yield text[start : cut.start()]
        start = cut.start()
    if start < len(text):
        yield text[start:]


def encoded(tokenizer: Tokenizer, texts: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Each piece with its int32 ids, on the library's threads, about a million characters at a time."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    for batch in _batches(texts):
        for piece, encoding in zip(batch, tokenizer.encode_batch_fast(batch), strict=True):
            yield piece, np.array(encoding.ids, dtype=np.int32)


def first_token(tokenizer: Tokenizer, piece: str) -> bytes:
    """The bytes of a piece up to the end of its first token."""
    encoding = tokenizer.encode(piece)
    if isinstance(tokenizer.model, models.BPE) and encoding.tokens[0] != END_OF_TEXT:
        return piece.encode()[: len(encoding.tokens[0])]  # each character of a token's name is a byte
    return piece[: encoding.offsets[0][1]].encode()


class SubwordCodec:
    """Text to token ids and back.

    `decode(encode(text)) == text` for byte-level BPE; ids that end within a character give U+FFFD. WordPiece keeps no
    white space: words and marks come back with single spaces, fewer before punctuation, unknown characters as [UNK].
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """Token ids."""
        return self._tokenizer.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids."""
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
    """The library numbers the characters within words (##e) in the order of a random hash, on which ties of merges
    depend; so they are found first, and then given in their order.
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
