"""Which tokens one trial predicts better than another: by frequency, by position, and in which contexts."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from harness.corpora.corpus import Corpus
from harness.corpora.vocabulary import WordCodec
from harness.errors import RecordError
from harness.records.sidecars import TokenScores
from harness.report.statistics import BLOCK

BEFORE, AFTER = 8, 4  # words of the text around a target
TOKENS_BEFORE, TOKENS_AFTER = 64, 32  # enough for these words if a token is a character


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The scored tokens of one band of frequencies or positions.

    Args:
        mean: difference in nats, second trial less first: below 0 if the second is better.
        error: standard error of the mean, over blocks of 1,000 scored tokens; NaN if all lie in one block.
    """

    label: str
    tokens: int
    mean: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Differences:
    """The differences of two trials on the tokens that both scored.

    Shapes: all (N,), in the order of the test split.
    Args:
        place: index of the token in the split.
        nats: the second's nll less the first's, float64.
        offset: of the token in its segment; see TokenScores.
        same_segments: both scored all these tokens at these offsets.
    """

    place: np.ndarray
    nats: np.ndarray
    count: np.ndarray
    offset: np.ndarray
    same_segments: bool


def differences(a: TokenScores, b: TokenScores) -> Differences:
    """b less a. Raises RecordError when they are of two test splits, or no token was scored by both."""
    if not np.array_equal(a.count, b.count):
        raise RecordError("the scores of tokens are of two test splits; expected those of one")
    place = np.flatnonzero(a.scored & b.scored)
    if not len(place):
        raise RecordError("no token of the test split was scored by both trials")
    return Differences(
        place=place,
        nats=b.nll[place].astype(np.float64) - a.nll[place].astype(np.float64),
        count=a.count[place],
        offset=a.offset[place],
        same_segments=np.array_equal(a.offset[place], b.offset[place]),
    )


def by_frequency(a: TokenScores, b: TokenScores) -> tuple[Band, ...]:
    """b less a by occurrences of the target in training: 0, 1-9, 10-99 and so on, without empty bands.

    Raises: RecordError as `differences` does.
    """
    of = differences(a, b)
    return tuple(_bands(of.nats, of.count, base=10))


def by_position(a: TokenScores, b: TokenScores) -> tuple[Band, ...]:
    """b less a by the number of tokens before the target's predecessor in its segment: 0, 1, 2-3, 4-7 and so on.

    Returns no band if the segments of the two trials differ. Raises RecordError as `differences` does.
    """
    of = differences(a, b)
    return tuple(_bands(of.nats, of.offset, base=2)) if of.same_segments else ()


def _bands(nats_N: np.ndarray, of_N: np.ndarray, *, base: int) -> Iterator[Band]:
    low, high = 0, 1
    block_N = np.arange(len(nats_N)) // BLOCK
    while low <= of_N.max():
        inside_N = (low <= of_N) & (of_N < high)
        if inside_N.any():
            label = str(low) if high == low + 1 else f"{low}-{high - 1}"
            mean, error = _mean_and_error(nats_N[inside_N], block_N[inside_N])
            yield Band(label=label, tokens=int(inside_N.sum()), mean=mean, error=error)
        low, high = high, high * base


def _mean_and_error(nats_N: np.ndarray, block_N: np.ndarray) -> tuple[float, float]:
    """Of m = sum_b s_b / sum_b n_b over B blocks: error^2 = B / (B - 1) sum_b (s_b - m n_b)^2 / (sum_b n_b)^2."""
    _, of_block_N, counts_B = np.unique(block_N, return_inverse=True, return_counts=True)
    mean, blocks = float(nats_N.mean()), len(counts_B)
    if blocks == 1:
        return mean, math.nan
    rests_B = np.bincount(of_block_N, weights=nats_N) - mean * counts_B
    return mean, math.sqrt(blocks / (blocks - 1) * float((rests_B**2).sum())) / len(nats_N)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A token of the test split with the words around it.

    Args:
        place: index of the token in the split.
        before, target, after: the text, including the spaces between them. It may contain invisible characters.
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
