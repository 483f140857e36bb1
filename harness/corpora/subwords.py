"""The tokenizers that a suite can name: byte-level BPE and WordPiece of the tokenizers library, with GPT-2's vocabulary
or one trained on a training split; and the tokenizer of a model folder (harness/pretrained/tokenizer.py).

`<|endoftext|>` in a text is one token, number 50256 of GPT-2's vocabulary.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from harness.corpora import download
from harness.corpora.download import PinnedFile
from harness.corpora.pieces import END_OF_TEXT, MAX_VOCAB, TextTokenizer
from harness.corpora.token_bytes import known_lengths, texts_without_marks
from harness.errors import CorpusError
from harness.extensions import needed

PretrainedSpec = dict[Literal["pretrained"], Path]
TokenizerSpec = Literal["gpt2"] | dict[Literal["bpe", "wordpiece"], int] | PretrainedSpec
UNKNOWN_PIECE = "[UNK]"
_GPT2_URL = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main"
GPT2_FILES = tuple(
    PinnedFile(f"gpt2-bpe/{name}", f"{_GPT2_URL}/{name}", sha256)
    for name, sha256 in {
        "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
        "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    }.items()
)
_GPT2_SIZE = 50_257
# bpe: all bytes and <|endoftext|>; wordpiece: <|endoftext|>, [UNK] and a character
_LEAST = {"bpe": 257, "wordpiece": 3}
_NAMES = {"bpe": "byte-level BPE", "wordpiece": "WordPiece"}


def check_tokenizer(spec: TokenizerSpec) -> None:
    """Raise ValueError unless the value is 'gpt2', a folder, or one algorithm with a possible size of vocabulary."""
    if spec == "gpt2":
        return
    if len(spec) != 1:
        raise ValueError(f"tokenizer: expected 'gpt2', or one of bpe and wordpiece with a size, got {spec}")
    ((kind, size),) = spec.items()
    if kind != "pretrained" and not _LEAST[kind] <= size <= MAX_VOCAB:
        raise ValueError(
            f"tokenizer: the vocabulary of {kind} must have {_LEAST[kind]} to {MAX_VOCAB:,} entries, got {size:,}"
        )


def folder_of(spec: TokenizerSpec | None) -> Path | None:
    """Return the model folder of a tokenizer; None for another tokenizer."""
    return Path(spec["pretrained"]) if isinstance(spec, dict) and "pretrained" in spec else None


def read_tokenizer(folder: Path) -> TextTokenizer:
    """Return the tokenizer of a model folder. Raises CorpusError."""
    read = needed("harness.pretrained.tokenizer:read_tokenizer", "tokenizer.pretrained", CorpusError)
    return read(folder)


def tokenizer_identity(spec: TokenizerSpec) -> object:
    """Return what decides the tokens, without the place of a model folder: its content instead. Raises CorpusError."""
    return spec if (folder := folder_of(spec)) is None else {"pretrained": read_tokenizer(folder).identity}


def content_with(spec: TokenizerSpec | None, text: str) -> str:
    """Return the content of a corpus, given the SHA-256 of its text: with that of a model folder's tokenizer, because
    the trial's id has no path. Raises CorpusError.
    """
    if folder_of(spec) is None:
        return text
    identity = json.dumps([text, tokenizer_identity(spec)], sort_keys=True)
    return hashlib.sha256(identity.encode()).hexdigest()


def vocab_size(spec: TokenizerSpec) -> int:
    """Return V without reading a text. Raises CorpusError for a model folder without a tokenizer."""
    if (folder := folder_of(spec)) is not None:
        return read_tokenizer(folder).vocab_size
    return _GPT2_SIZE if spec == "gpt2" else next(iter(spec.values()))


def counting(spec: TokenizerSpec) -> str:
    """Return the counting rule in words."""
    if (folder := folder_of(spec)) is not None:
        return f"tokens of the tokenizer of {folder.name}"
    return "GPT-2's byte-level BPE tokens" if spec == "gpt2" else f"{_NAMES[next(iter(spec))]} tokens"


def fetch_tokenizer(spec: TokenizerSpec, data: Path) -> None:
    """Download GPT-2's files to the data folder if the tokenizer needs them. Raises CorpusError."""
    for file in GPT2_FILES if spec == "gpt2" else ():
        download.fetch(file, data)


def lengths_by_id(spec: TokenizerSpec, tokenizer: Tokenizer) -> np.ndarray | None:
    """Return (V,) int32, the bytes of each token's text, 0 for `<|endoftext|>`; None if a token has another number of
    bytes in another text. Byte-level BPE leaves a text unchanged, so its tokens have their bytes in every text.
    """
    if spec != "gpt2" and "bpe" not in spec:
        return None
    lengths_V = known_lengths(tokenizer)
    lengths_V[tokenizer.token_to_id(END_OF_TEXT)] = 0
    return lengths_V


def unknown_id(tokenizer: Tokenizer) -> int | None:
    """Return the id of the token for what a tokenizer does not know; None without one."""
    if isinstance(tokenizer.model, models.Unigram):  # it does not give its id but in this form
        return json.loads(tokenizer.to_str())["model"]["unk_id"]
    token = tokenizer.model.unk_token
    return None if token is None else tokenizer.token_to_id(token)


def make_tokenizer(spec: TokenizerSpec, data: Path, train: Callable[[], Iterable[str]], where: str) -> TextTokenizer:
    """Return the tokenizer of a model folder, GPT-2's, or one that is trained on the pieces of a training split.
    Training is reproducible.

    Raises: CorpusError when GPT-2's files are missing or changed, when a vocabulary of the given size cannot be
        trained, or as `read_tokenizer` does.
    """
    if (folder := folder_of(spec)) is not None:
        return read_tokenizer(folder)
    if spec == "gpt2":
        vocabulary, merges = (str(download.verified(file, data)) for file in GPT2_FILES)
        return _of_ours("gpt2", _byte_level(models.BPE.from_file(vocabulary, merges)))
    ((kind, size),) = spec.items()

    def words() -> Iterator[str]:
        return (piece.replace(END_OF_TEXT, " ") for piece in train())

    tokenizer = _trained_bpe(words(), size) if kind == "bpe" else _trained_wordpiece(words, size)
    found = tokenizer.get_vocab_size()
    if found != size:
        extreme = "at most" if found < size else "at least"
        raise CorpusError(
            f"{where}: tokenizer: the training split gives {kind} {extreme} {found} entries, not {size}; "
            f"ask for {extreme} {found}, or give a text with more different words"
        )
    return _of_ours(kind, tokenizer)


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

    def token_bytes(self) -> list[bytes]:
        """Return the bytes of each token. Special tokens have no text."""
        return texts_without_marks(self._tokenizer)


def _of_ours(name: str, tokenizer: Tokenizer) -> TextTokenizer:
    end = tokenizer.token_to_id(END_OF_TEXT)
    return TextTokenizer(where=name, tokenizer=tokenizer, vocab_size=tokenizer.get_vocab_size(), end_of_text=end)


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
