"""Which tokens one trial predicts better than another: by frequency in training, and by position in the segment."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness.errors import RecordError
from harness.records.sidecars import TokenScores
from harness.report.evidence.blocks import BLOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The scored tokens of one band of frequencies or positions.

    Args:
        label: '10-99'.
        tokens: how many there are.
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
        count: how often the token occurs in the training split.
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
    """A band for 0, then one from each power of the base up to the next."""
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
