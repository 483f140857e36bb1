"""How many seeds a comparison needs to detect a difference."""

import math

from scipy import special

from harness.report.evidence.statistics import CONFIDENCE, TWO_SIDED, MeanDifference

POWER = 0.8
SPREAD_SEEDS = 5  # of fewer seeds the spread is so uncertain that a number of seeds says nothing


def seeds_needed(sd: float, *, effect: float, df_by_seed: float = 1.0) -> int:
    """The fewest seeds with which a two-sided t test at 5 % finds an effect with a power of 80 %.

    power(n) = P(T > t_{0.975, df}), T of the noncentral t distribution with df = df_by_seed (n - 1) degrees of freedom
    and noncentrality sqrt(n) effect / sd; the probability that T is below -t is negligible.
    Args:
        sd: of a seed's difference, in the unit of `effect`; see MeanDifference.
        df_by_seed: 1 for the paired test, up to 2 for Welch's.
    """
    n = max(2, math.floor(((special.ndtri(TWO_SIDED) + special.ndtri(POWER)) * sd / effect) ** 2))
    while sd and _power(n, effect / sd, df_by_seed) < POWER:  # start at the number for a known sd, about two below
        n += 1
    return n


def more_seeds(found: MeanDifference, effect: float) -> tuple[int, int] | None:
    """The range of further seeds that detect an effect: for the ends of the 95 % interval of the sd.

    sd sqrt(df / chi2_{0.975, df}) to sd sqrt(df / chi2_{0.025, df}). None for fewer than SPREAD_SEEDS seeds.
    Args:
        effect: in nats, above 0.
    """
    if found.n < SPREAD_SEEDS:
        return None
    by_seed = found.df / (found.n - 1)
    tails = ((1 - CONFIDENCE) / 2, TWO_SIDED)  # of chi2, above the quantile
    low, high = (found.sd * math.sqrt(found.df / special.chdtri(found.df, tail)) for tail in tails)
    needed = (seeds_needed(sd, effect=effect, df_by_seed=by_seed) for sd in (low, high))
    fewest, most = (max(0, n - found.n) for n in needed)
    return fewest, most


def _power(n: int, size: float, df_by_seed: float) -> float:
    """Power of the two-sided t test at 5 %, for an effect of `size` standard deviations."""
    df = df_by_seed * (n - 1)
    return 1 - float(special.nctdtr(df, math.sqrt(n) * size, special.stdtrit(df, TWO_SIDED)))
