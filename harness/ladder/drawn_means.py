"""What seeds leave open in numbers that come from the means of several sizes: by drawn means."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import special

from harness.report.statistics import CONFIDENCE, TWO_SIDED

DRAWS = 2_000
TAIL = round(DRAWS * (1 - CONFIDENCE) / 2)  # drawn numbers that lie below an interval, and above it
INDICES = ((0, 0), (0, 1), (1, 1))  # of a symmetric matrix of two variables

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
    mean is over all of its m_k seeds, so that each head is read on one curve. With the covariance S
    of a seed's (b, g) at the size, var b_k = S_bb / m_k, var g_k = S_gg / n_k and cov(b_k, g_k) =
    S_bg / m_k. Sizes are independent of each other, and each has its own S: seeds often spread less
    at larger sizes, where an S that is pooled over sizes covers too little at the small ones (80 %
    of worths where the sd falls from 1 to 0.25 %).

    Only seeds are random: the tuned point, the axes and the text are fixed.

    Args:
        gains: of each shared seed, by size.
        baseline_K, gain_K: the means; not a number at a size without a seed.
        covariance_K22: S; not a number at a size with fewer than two shared seeds.
    """

    gains: tuple[tuple[float, ...], ...]
    shared_K: np.ndarray
    baseline_seeds_K: np.ndarray
    baseline_K: np.ndarray
    gain_K: np.ndarray
    covariance_K22: np.ndarray

    @property
    def has_spread(self) -> bool:
        """Whether both have two seeds or more at each size: without, there is no interval."""
        return bool((self.shared_K > 1).all())

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """The baseline's losses and the gains, (R, K) each: first the found means, then DRAWS drawn
        ones, if there is a spread to draw from. The interval of a drawn mean is its t interval.
        """
        if not self.has_spread:
            return self.baseline_K[None], self.gain_K[None]
        bb_K, bg_K, gg_K = (self.covariance_K22[:, row, column] for row, column in INDICES)
        slope_K = bg_K / np.where(bb_K > 0, bb_K, 1)
        rest_K = gg_K / self.shared_K - slope_K * bg_K / self.baseline_seeds_K  # var(g_k) given b_k
        one_RK, other_RK = deviations(2, len(self.gain_K)) * t_factor(self.shared_K - 1)
        apart_RK = one_RK * np.sqrt(bb_K / self.baseline_seeds_K)
        gain_RK = self.gain_K + slope_K * apart_RK + other_RK * np.sqrt(np.maximum(rest_K, 0))
        return self.baseline_K + apart_RK, gain_RK


def means(baseline: Sequence[Losses], head: Sequence[Losses]) -> Means:
    """The means of a head and of the baseline at each size, small to large.

    Losses that are not finite (of failed trials) are left out, with their pairs.
    """
    ours = [finite(each) for each in head]
    theirs = [finite(each) for each in baseline]
    gains, gain_K, covariances = [], [], []
    for mine, other in zip(ours, theirs, strict=True):
        seeds = sorted(mine.keys() & other.keys())
        of_size = tuple(other[seed] - mine[seed] for seed in seeds)
        gains.append(of_size)
        gain_K.append(np.mean(of_size) if seeds else math.nan)
        enough = len(seeds) > 1
        pairs = ([other[seed] for seed in seeds], of_size)
        covariances.append(np.cov(pairs) if enough else np.full((2, 2), math.nan))
    return Means(
        gains=tuple(gains),
        shared_K=np.array([len(each) for each in gains]),
        baseline_seeds_K=np.array([len(each) for each in theirs]),
        baseline_K=np.array([mean(each) for each in theirs]),
        gain_K=np.array(gain_K),
        covariance_K22=np.array(covariances),
    )


def finite(losses: Losses) -> Losses:
    return {seed: loss for seed, loss in losses.items() if math.isfinite(loss)}


def mean(losses: Losses) -> float:
    return math.fsum(losses.values()) / len(losses) if losses else math.nan


def t_factor(df_K: np.ndarray) -> np.ndarray:
    """t_{0.975, df} / t_{0.975, inf}: normal draws times this have the ends of the t interval."""
    return special.stdtrit(df_K, TWO_SIDED) / special.ndtri(TWO_SIDED)


@cache
def deviations(variables: int, sizes: int) -> np.ndarray:
    """Deviations from means in standard errors, of shape (variables, 1 + DRAWS, K): first 0, for
    the found means, then normal numbers. The same ones at each call.

    Each variable has evenly spaced ranks in an order of its own, and half of the draws are the
    other half times -1: so 2,000 draws give the ends of an interval within 5 %.
    """
    half = DRAWS // 2
    ranks = np.tile(np.arange(half), (variables, sizes, 1))
    drawn_VKD = np.random.default_rng(0).permuted(ranks, axis=-1)
    half_VDK = special.ndtri((drawn_VKD + 0.5) / half).swapaxes(1, 2)
    return np.concatenate([np.zeros((variables, 1, sizes)), half_VDK, -half_VDK], axis=1)
