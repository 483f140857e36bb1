"""What seeds leave open in numbers that are computed from the means of several sizes, by drawn means."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from harness.report.statistics import CONFIDENCE

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
    def of(cls, value: float, drawn_D: np.ndarray | None) -> "Estimate":
        """The interval leaves out TAIL of the drawn numbers at each end. None: nothing is drawn."""
        if drawn_D is None:
            return cls(value=float(value))
        ordered_D = np.sort(drawn_D)
        return cls(value=float(value), low=float(ordered_D[TAIL]), high=float(ordered_D[-TAIL - 1]))


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

    def drawn(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Drawn means of the baseline and drawn gains, (D, K) each; None without a spread.

        They have the multivariate t distribution with df degrees of freedom about the found means:
        for one mean, or a weighted sum of them, the interval is the t interval.
        """
        if self.covariance is None:
            return None
        (bb, bg), (_, gg) = self.covariance
        slope = bg / bb if bb else 0.0
        left_K = gg / self.shared_K - slope * bg / self.baseline_seeds_K  # var(g | b)
        one_DK, other_DK = deviations(2, len(self.gain_K), self.df)
        apart_DK = one_DK * np.sqrt(bb / self.baseline_seeds_K)
        gain_DK = self.gain_K + slope * apart_DK + other_DK * np.sqrt(np.maximum(left_K, 0))
        return self.baseline_K + apart_DK, gain_DK


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
    """DRAWS deviations from the mean in standard errors, of shape (variables, D, K): normal numbers
    times sqrt(df / chi2), one chi2 for all numbers of a draw. The same ones at each call.

    Half of the draws are the other half with reversed signs: no drawn mean is off the found one.
    """
    stream = np.random.default_rng(0)
    normal = stream.standard_normal((variables, DRAWS // 2, sizes))
    scale_D = np.sqrt(df / stream.chisquare(df, DRAWS // 2))
    half = normal * scale_D[:, None]
    return np.concatenate([half, -half], axis=1)
