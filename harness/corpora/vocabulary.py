"""Vocabularies, and the counting rules of word-level corpora.

Standard counting: tokens are separated by whitespace, and every line, also a blank one, has one <eos>. Ids are in the
order of first appearance in the training split. With the boundary 'sos_eos' every line also begins with <sos>, which is
scored, as in the code of Benka et al. (2021). <sos> always follows <eos>, so its nll is almost 0 and it lowers the
perplexity per token.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import torch
from torch import Tensor

from harness.corpora.corpus import SPLITS, Codec, Corpus
from harness.errors import CorpusError

EOS, SOS, UNK = "<eos>", "<sos>", "<unk>"
Boundary = Literal["eos", "sos_eos"]
COUNTING = {
    "eos": "words plus one <eos> per line",
    "sos_eos": "words plus one <sos> and one <eos> per line, <sos> scored too",
}


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
        if len(splits[name]) < 2:
            raise CorpusError(f"{where}: the {name} split has {len(splits[name])} tokens; at least 2 are needed")
    tensors = {name: encode(splits[name], ids, f"{where}, {name} split") for name in SPLITS}
    return Corpus(vocab_size=len(symbols), symbols=symbols, codec=codec, uncounted_id=ids.get(SOS), **tensors)


def line_end(corpus: Corpus) -> int | None:
    """Return the id of <eos>; None if the tokens of a corpus are not the words of lines."""
    symbols = corpus.symbols or ()
    return symbols.index(EOS) if EOS in symbols else None
