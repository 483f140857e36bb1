"""What seeds leave open in numbers that are computed from the means of several sizes, by drawn means."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import special

from harness.report.statistics import CONFIDENCE, TWO_SIDED

DRAWS = 2_000
TAIL = round(DRAWS * (1 - CONFIDENCE) / 2)  # drawn numbers that lie below an interval, and above it

Losses = Mapping[int, float]  # seed -> mean nll of the test split, in nats


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its 95 % interval over seeds; without one where there are too few seeds."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, numbers_R: np.ndarray) -> "Estimate":
        """The first number is that of the found means. The others, if there are any, are of drawn
        means: the interval leaves out TAIL of them at each end.
        """
        value, drawn_D = float(numbers_R[0]), np.sort(numbers_R[1:])
        if not len(drawn_D):
            return cls(value=value)
        return cls(value=value, low=float(drawn_D[TAIL]), high=float(drawn_D[-TAIL - 1]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Means:
    """The baseline's mean loss b_k and the head's mean gain g_k at each size k, in nats.

    A gain is the baseline's loss less the head's, over the n_k seeds that both have; the baseline's
    mean is over all of its m_k seeds, so that each head is read on one curve. The seeds of a size
    spread about its means with one covariance S of (b, g) at all sizes, pooled over them:
    S = sum of the products of deviations / df, df = sum of (n_k - 1).
    Then var b_k = S_bb / m_k, var g_k = S_gg / n_k, cov(b_k, g_k) = S_bg / m_k. Sizes are
    independent of each other. Only seeds are random: the tuned point, the axes and the text are
    fixed.

    Args:
        gains: of each shared seed, by size.
        baseline_K, gain_K: the means; not a number at a size without a seed.
        covariance: S, of shape (2, 2); None where df is 0.
    """

    gains: tuple[tuple[float, ...], ...]
    shared_K: np.ndarray
    baseline_seeds_K: np.ndarray
    baseline_K: np.ndarray
    gain_K: np.ndarray
    df: int
    covariance: np.ndarray | None

    @property
    def sd(self) -> float | None:
        """The pooled standard deviation of a seed's gain; None where no size has two seeds."""
        return None if self.covariance is None else math.sqrt(self.covariance[1, 1])

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """The baseline's losses and the gains, (R, K) each: first the found means, then DRAWS drawn
        ones, if there is a spread to draw from.

        Those are normal about the found means, wider by the t factor of df: the interval of a mean,
        or of a weighted sum of means, is the t interval.
        """
        if self.covariance is None:
            return self.baseline_K[None], self.gain_K[None]
        (bb, bg), (_, gg) = self.covariance
        slope = bg / bb if bb else 0.0
        # The means of a size without a seed are not numbers, whatever is drawn.
        seeds_K, shared_K = np.maximum(self.baseline_seeds_K, 1), np.maximum(self.shared_K, 1)
        left_K = gg / shared_K - slope * bg / seeds_K  # var(g_k) given b_k
        one_RK, other_RK = deviations(2, len(self.gain_K), self.df)
        apart_RK = one_RK * np.sqrt(bb / seeds_K)
        gain_RK = self.gain_K + slope * apart_RK + other_RK * np.sqrt(np.maximum(left_K, 0))
        return self.baseline_K + apart_RK, gain_RK


def means(baseline: Sequence[Losses], head: Sequence[Losses]) -> Means:
    """The means of a head and of the baseline at each size, small to large.

    Losses that are not finite (of failed trials) are left out, with their pairs.
    """
    ours, theirs = ([finite(each) for each in losses] for losses in (head, baseline))
    products, df, gains, gain_K = np.zeros((2, 2)), 0, [], []
    for mine, other in zip(ours, theirs, strict=True):
        seeds = sorted(mine.keys() & other.keys())
        of_size = tuple(other[seed] - mine[seed] for seed in seeds)
        pairs_2S = np.array([[other[seed] for seed in seeds], of_size])
        gains.append(of_size)
        gain_K.append(pairs_2S[1].mean() if seeds else math.nan)
        if len(seeds) > 1:
            apart_2S = pairs_2S - pairs_2S.mean(axis=1, keepdims=True)
            products += apart_2S @ apart_2S.T
            df += len(seeds) - 1
    return Means(
        gains=tuple(gains),
        shared_K=np.array([len(each) for each in gains]),
        baseline_seeds_K=np.array([len(each) for each in theirs]),
        baseline_K=np.array([mean(each) for each in theirs]),
        gain_K=np.array(gain_K),
        df=df,
        covariance=products / df if df else None,
    )


def finite(losses: Losses) -> Losses:
    return {seed: loss for seed, loss in losses.items() if math.isfinite(loss)}


def mean(losses: Losses) -> float:
    return math.fsum(losses.values()) / len(losses) if losses else math.nan


@cache
def deviations(variables: int, sizes: int, df: int) -> np.ndarray:
    """Deviations from means in standard errors, of shape (variables, 1 + DRAWS, K). The first ones are
    0, the others normal numbers times t_{0.975, df} / t_{0.975, inf}, so that TAIL of them lie beyond
    each end of the t interval. The same ones at each call.

    Each variable has evenly spaced ranks in an order of its own, and half of the draws are the other
    half times -1: so 2,000 draws give the ends of a t interval within 5 %.
    """
    half = DRAWS // 2
    ranks = np.tile(np.arange(half), (variables, sizes, 1))
    drawn_VKD = np.random.default_rng(0).permuted(ranks, axis=-1)
    factor = special.stdtrit(df, TWO_SIDED) / special.ndtri(TWO_SIDED)
    half_VDK = factor * special.ndtri((drawn_VKD + 0.5) / half).swapaxes(1, 2)
    found_VDK = np.zeros((variables, 1, sizes))
    return np.concatenate([found_VDK, half_VDK, -half_VDK], axis=1)
