"""The gain of a head over the baseline at each size, and its trend over sizes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from scipy import special

from harness.ladder.drawn_means import Means
from harness.report.statistics import SIGNIFICANT, TWO_SIDED, MeanDifference, holm, paired

GainWord = Literal["better", "worse", "undecided"]
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
        p: of the t test, corrected by Holm's method over the sizes; 1 for fewer than two seeds.
    """

    difference: MeanDifference | None
    p: float
    word: GainWord


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """How the gain changes for each doubling of the axis, in nats.

    slope = sum n_k (x_k - x) (g_k - g) / S with S = sum n_k (x_k - x)^2, x_k = log2 of the axis,
    n_k seeds, x and g the means over all seeds; its interval is slope -+ t_{0.975} s / sqrt(S), with
    the sd s of a seed's gain pooled over sizes and its df. So it is over seeds; whether a line
    describes the sizes is asked apart from it, for the word:

    - `shrinks`, `grows`: the interval lies below 0, above 0. No larger size is shown to be in
      contradiction, i.e. no change between two sizes has an interval on the other side of 0.
    - `holds`: the interval lies within -+ margin, and no size is shown to be off the line by more
      than the margin.
    - `undecided`: else; also if the gains of all sizes together do not differ from 0 (`p_zero`), so
      that there is nothing to shrink, or if a size has fewer than two shared seeds.

    A curve of gains such as 4, 2, 1 is no line and shrinks all the same: thus the contradiction is
    asked for, and not a lack of fit, which would make the word `undecided` the more seeds there are.
    Gains of 2, -2, 2 or 3, -2, 1 are `undecided`. Two sizes cannot be in contradiction.

    A gain below 0 that becomes smaller, -1 to -3, also `shrinks`: the head falls behind.

    Args:
        sizes: with a gain.
        p_zero: of the F test that the gain is 0 at every size.
    """

    sizes: int
    slope: float
    low: float | None = None
    high: float | None = None
    df: int = 0
    p_zero: float | None = None
    word: TrendWord = "undecided"


def gains(found: Means) -> tuple[Gain, ...]:
    """The gain at each size. It has a word if it differs from 0 after Holm's correction over the
    sizes, and the gains of all sizes together do so: of a head that equals the baseline, at most 5 %
    of ladders have a word for a gain or a trend.
    """
    differences = [paired(each) if each else None for each in found.gains]
    tested = [each for each in differences if each is not None and each.p_t is not None]
    adjusted = iter(holm([each.p_t for each in tested], untested=len(differences) - len(tested)))
    differ = bool(tested) and _p_zero(found) < SIGNIFICANT
    result = []
    for each in differences:
        p, word = 1.0, "undecided"
        if each is not None and each.p_t is not None:
            p = next(adjusted)
            if differ and p < SIGNIFICANT:
                word = "better" if each.mean > 0 else "worse"
        result.append(Gain(difference=each, p=p, word=word))
    return tuple(result)


def trend(axis: Sequence[float], found: Means, *, margin: float) -> Trend | None:
    """The trend over an axis. None for fewer than two sizes with a gain.

    Args:
        axis: of the baseline, by size: parameters, compute or time; fixed, not random.
        margin: the largest change for each doubling that is as good as none, in nats.
    """
    has_K = found.shared_K > 0
    if has_K.sum() < 2:
        return None
    x_K, n_K, gain_K = np.log2(axis)[has_K], found.shared_K[has_K], found.gain_K[has_K]
    apart_K = x_K - np.average(x_K, weights=n_K)
    spread = (n_K * apart_K**2).sum()
    slope = float((n_K * apart_K * gain_K).sum() / spread)
    if found.sd is None or found.shared_K.min() < 2:
        return Trend(sizes=len(x_K), slope=slope)

    t = float(special.stdtrit(found.df, TWO_SIDED))
    reach = t * found.sd / math.sqrt(spread)
    low, high, p_zero = slope - reach, slope + reach, _p_zero(found)
    word: TrendWord = "undecided"
    if p_zero < SIGNIFICANT:
        if low > 0 and not _reversed(gain_K, n_K, t * found.sd):
            word = "grows"
        elif high < 0 and not _reversed(-gain_K, n_K, t * found.sd):
            word = "shrinks"
        elif -margin < low and high < margin:
            off_K = np.abs(gain_K - np.average(gain_K, weights=n_K) - slope * apart_K)
            variance_K = 1 / n_K - 1 / n_K.sum() - apart_K**2 / spread  # of a residual, by sd^2
            error_K = found.sd * np.sqrt(np.maximum(variance_K, 0))
            word = "undecided" if (off_K - t * error_K > margin).any() else "holds"
    return Trend(
        sizes=len(x_K),
        slope=slope,
        low=low,
        high=high,
        df=found.df,
        p_zero=p_zero,
        word=word,
    )


def _reversed(growing_K: np.ndarray, n_K: np.ndarray, reach: float) -> bool:
    """Whether numbers that are said to grow are shown to fall from any size to a larger one."""
    return any(
        growing_K[large] - growing_K[small] + reach * math.sqrt(1 / n_K[small] + 1 / n_K[large]) < 0
        for small, large in combinations(range(len(n_K)), 2)
    )


def _p_zero(found: Means) -> float:
    """p of the F test that the gain is 0 at each size with two seeds: F = sum n_k g_k^2 / (K s^2)."""
    has_K = found.shared_K > 1
    squares = float((found.shared_K * found.gain_K**2)[has_K].sum())
    if not found.sd:  # equal gains of all seeds
        return float(squares == 0)
    number = int(has_K.sum())
    return float(special.fdtrc(number, found.df, squares / (number * found.sd**2)))
