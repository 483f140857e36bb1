"""The gain of a head over the baseline at each size, and its trend over sizes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from scipy import special

from harness.ladder.drawn_means import Means
from harness.report.statistics import SIGNIFICANT, TWO_SIDED, MeanDifference, equivalence, holm, paired

GainWord = Literal["better", "worse", "equivalent", "undecided"]
ROUNDING = 1e-12  # nats
TrendWord = Literal["shrinks", "holds", "grows", "undecided"]


def fraction(nats: float) -> float:
    """A gain in nats as a fraction of the baseline's perplexity: 0.02 for one that is 2 % lower."""
    return -math.expm1(-nats)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The gain at one size: the baseline's loss less the head's, in nats, so above 0 for a better
    head.

    Args:
        difference: the gain with the interval of the paired t test, as tables have it: over the
            shared seeds of this size alone. None without a shared seed.
        p: of the t test, corrected over sizes and heads, see `gains_and_trend`; 1 for fewer than
            two seeds.
        p_equivalent: of the two one-sided tests that the gain is within the margin, times the
            numbers of sizes and heads.
    """

    difference: MeanDifference | None
    p: float
    p_equivalent: float = 1.0

    @property
    def word(self) -> GainWord:
        if self.difference is None:
            return "undecided"
        if self.p_equivalent < SIGNIFICANT:  # also where the gain is not 0, as in tables
            return "equivalent"
        if self.p >= SIGNIFICANT:
            return "undecided"
        return "better" if self.difference.mean > 0 else "worse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """How the gain changes for each doubling of the axis, in nats.

    slope = sum w_k g_k, w_k = n_k (x_k - x) / sum n_k (x_k - x)^2, with x_k = log2 of the axis, n_k
    seeds and x the mean over all seeds: the least-squares line through the gains of all seeds. Its
    interval is that of a weighted sum: over seeds, with the spread of each size. Whether a line
    describes the sizes is asked apart from it, for the word:

    - `shrinks`, `grows`: p is below 0.05. The sizes are not in contradiction: no change of the gain
      between two sizes has an interval on the other side of 0.
    - `holds`: the interval lies within -+ margin, a size has a word for its gain, and no size is
      shown to be off the mean gain by more than the margin.
    - `undecided`: else.

    A curve of gains such as 4, 2, 1 is no line and shrinks all the same: thus the contradiction is
    asked for, and not a lack of fit, which more seeds would only make `undecided` more often.
    Gains of 2, -2, 2 or 3, -2, 1 are `undecided`. Two sizes cannot be in contradiction.

    A gain below 0 that becomes smaller, -1 to -3, also `shrinks`: the head falls behind.

    Args:
        sizes: with a gain.
        low, high: None if a size has fewer than two shared seeds; the word is then `undecided`.
        p: that the slope is 0, see `gains_and_trend`.
    """

    sizes: int
    slope: float
    low: float | None = None
    high: float | None = None
    p: float = 1.0
    word: TrendWord = "undecided"


def gains_and_trend(
    axis: Sequence[float],
    found: Means,
    *,
    margin: float,
    heads: int = 1,
) -> tuple[tuple[Gain, ...], Trend | None]:
    """The gain at each size and its trend over an axis, which is None for fewer than two sizes with
    a gain.

    No p is smaller than the smallest of all, of the gains and of the slope, times their number. So
    of a head that equals the baseline, at most 5 % of ladders have a word for a gain or a trend.
    The p values of gains are also corrected by Holm's method over the sizes; that of the slope is
    not.
    Args:
        axis: of the baseline, by size: parameters, compute or time; fixed, not random.
        margin: the largest gain, and the largest change for each doubling, that is as good as none,
            in nats.
        heads: the number of heads that are compared: each p is multiplied by it (Bonferroni).
    """
    differences = [paired(each) if each else None for each in found.gains]
    p_values = [1.0 if each is None or each.p_t is None else min(1.0, heads * each.p_t) for each in differences]
    slope_K = _slope(axis, found)
    slope = _weighted(found, slope_K) if slope_K is not None and found.has_spread else None
    p_slope = 1.0 if slope is None else min(1.0, heads * slope.p)
    least = min(holm([*p_values, p_slope]))
    gains = []
    for difference, p in zip(differences, holm(p_values), strict=True):
        several = heads * len(differences)
        is_tested = difference is not None and difference.n > 1
        same = min(1.0, several * equivalence(difference, margin)) if is_tested else 1.0
        gains.append(Gain(difference=difference, p=max(least, p), p_equivalent=same))
    if slope_K is None:
        return tuple(gains), None

    sizes = int((found.shared_K > 0).sum())
    if slope is None:
        value = float(np.nansum(slope_K * found.gain_K))  # no number where there is no gain
        return tuple(gains), Trend(sizes=sizes, slope=value)
    p, word = max(least, p_slope), "undecided"
    if p < SIGNIFICANT:
        direction = 1 if slope.value > 0 else -1
        if not _is_reversed(found, direction):
            word = "grows" if direction > 0 else "shrinks"
    elif -margin < slope.low and slope.high < margin:
        is_gain = any(each.word in ("better", "worse") for each in gains)
        word = "holds" if is_gain and not _is_off_mean(found, margin) else "undecided"
    ends = {"low": slope.low, "high": slope.high}
    return tuple(gains), Trend(sizes=sizes, slope=slope.value, p=p, word=word, **ends)


def _slope(axis: Sequence[float], found: Means) -> np.ndarray | None:
    """The weights of the gains in the slope; None for fewer than two sizes with a gain."""
    x_K, n_K = np.log2(axis), found.shared_K
    if (n_K > 0).sum() < 2:
        return None
    apart_K = x_K - np.average(x_K, weights=n_K)
    return n_K * apart_K / (n_K * apart_K**2).sum()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weighted:
    """A weighted sum of gains with its 95 % interval, and the p of the t test that it is 0."""

    value: float
    low: float
    high: float
    p: float


def _weighted(found: Means, weights_K: np.ndarray) -> _Weighted:
    """sum w_k g_k, each size with its own spread.

    The variance is v = sum v_k, v_k = w_k^2 s_k^2 / n_k, with v^2 / sum (v_k^2 / (n_k - 1)) degrees
    of freedom.
    Source: Satterthwaite (1946), An approximate distribution of estimates of variance components,
        Biometrics Bulletin 2.
    """
    value = float(weights_K @ found.gain_K)
    parts_K = weights_K**2 * found.covariance_K22[:, 1, 1] / found.shared_K
    variance = float(parts_K.sum())
    if variance < ROUNDING**2:  # equal gains of all seeds
        return _Weighted(value=value, low=value, high=value, p=float(abs(value) < ROUNDING))
    df = variance**2 / float((parts_K**2 / (found.shared_K - 1)).sum())
    error = math.sqrt(variance)
    reach = float(special.stdtrit(df, TWO_SIDED)) * error
    p = 2 * float(special.stdtr(df, -abs(value) / error))
    return _Weighted(value=value, low=value - reach, high=value + reach, p=p)


def _is_reversed(found: Means, direction: int) -> bool:
    """Whether the gain is shown to change against a direction, from any size to a larger one."""
    for small, large in combinations(np.eye(len(found.gain_K)), 2):
        if _weighted(found, direction * (large - small)).high < 0:
            return True
    return False


def _is_off_mean(found: Means, margin: float) -> bool:
    """Whether the gain of any size is shown to be off the mean by more than the margin."""
    for size in np.eye(len(found.gain_K)):
        off = _weighted(found, size - 1 / len(size))
        if off.low > margin or off.high < -margin:
            return True
    return False
