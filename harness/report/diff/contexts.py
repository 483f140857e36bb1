"""The tokens of a text on which two trials differ most, with the words around them."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from harness.corpora.corpus import Corpus
from harness.corpora.vocabulary import WordCodec
from harness.errors import RecordError
from harness.records.sidecars import TokenScores
from harness.report.evidence.gains import Differences, differences

BEFORE, AFTER = 8, 4  # words of the text around a target
TOKENS_BEFORE, TOKENS_AFTER = 64, 32  # enough for these words if a token is a character


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A token of the test split with the words around it.

    Args:
        place: index of the token in the split.
        before, target, after: the text, including the spaces between them. It may contain invisible characters.
        count: how often the token occurs in training.
        a, b: its nats in each of the two.
    """

    place: int
    before: str
    target: str
    after: str
    count: int
    a: float
    b: float


def contexts(
    corpus: Corpus, a: TokenScores, b: TokenScores, *, top: int
) -> tuple[tuple[Context, ...], tuple[Context, ...]]:
    """The `top` tokens that b predicts better than a, and the `top` that it predicts worse, by difference in nats.

    Equal differences are in the order of the text.

    Raises: RecordError when the scores are not of the corpus' test split.
    """
    if len(corpus.test) != len(a.nll) or not np.array_equal(corpus.token_counts.numpy()[corpus.test.numpy()], a.count):
        raise RecordError("the scores of tokens are not of this corpus' test split")
    found = differences(a, b)
    better, worse = (_first(factor * found.nats, top) for factor in (1, -1))
    return tuple(_context(corpus, a, b, found, i) for i in better), tuple(
        _context(corpus, a, b, found, i) for i in worse
    )


def _first(nats_N: np.ndarray, top: int) -> np.ndarray:
    """Indices of the lowest values that are below 0."""
    order = np.argsort(nats_N, kind="stable")[:top]
    return order[nats_N[order] < 0]


def _context(corpus: Corpus, a: TokenScores, b: TokenScores, found: Differences, index: int) -> Context:
    place = int(found.place[index])
    ids = corpus.test[max(0, place - TOKENS_BEFORE) : place + 1 + TOKENS_AFTER].tolist()
    at, text = min(place, TOKENS_BEFORE), _text(corpus)
    before, until, whole = text(ids[:at]), text(ids[: at + 1]), text(ids)
    target = until[len(before) :]
    word = target.lstrip(" ") or target or text([ids[at]])  # incomplete bytes of a letter add nothing to the text
    return Context(
        place=place,
        before=_last_words(before + target.removesuffix(word)),
        target=word,
        after=_first_words(whole[len(until) :]),
        count=int(found.count[index]),
        a=float(a.nll[place]),
        b=float(b.nll[place]),
    )


def _text(corpus: Corpus) -> Callable[[list[int]], str]:
    """Ids to text: words by their names, so that <eos> shows the end of a line; others as the codec joins them."""
    if isinstance(corpus.codec, WordCodec) and corpus.symbols is not None:
        symbols = corpus.symbols
        return lambda ids: " ".join(symbols[index] for index in ids)
    return corpus.codec.decode


def _last_words(text: str) -> str:
    starts = [word.start() for word in re.finditer(r"\S+", text)]
    return text[starts[-BEFORE] :] if len(starts) > BEFORE else text


def _first_words(text: str) -> str:
    ends = [word.end() for word in re.finditer(r"\S+", text)]
    return text[: ends[AFTER - 1]] if len(ends) > AFTER else text
