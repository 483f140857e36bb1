"""Several comparisons in one table: adjusted p values, and the stars that stand for them."""

from collections.abc import Sequence

RANK_SEEDS = 6  # fewer seeds give no rank, star or verdict: among 2^5 patterns of signs the smallest p is 0.0625
SIGNIFICANT = 0.05  # of a comparison with the baseline, and of the best row
RANK_SIGNIFICANT = 0.025  # of 'behind' where no row is the best; smaller, because a table has verdicts, too
STARS = ((0.001, "***"), (0.01, "**"), (SIGNIFICANT, "*"))


def holm(p_values: Sequence[float], untested: int = 0) -> list[float]:
    """Holm's adjusted p-values, in the given order: rejecting those below alpha has a family-wise error of alpha.

    In ascending order p'_i = max_{j <= i} min(1, (m - j + 1) p_j) of m comparisons, independent or not.
    Args:
        untested: the number of further comparisons, which are planned and have no p yet. They count with p = 1.
    Raises: ValueError for a number that is not a probability.
    Source: Holm (1979), A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6.
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError(f"expected probabilities, got {list(p_values)}")
    adjusted, largest, comparisons = [0.0] * len(p_values), 0.0, len(p_values) + untested
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (comparisons - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def stars(p_adjusted: float, n: int) -> str:
    """'*' below 0.05, '**' below 0.01, '***' below 0.001; '' with fewer than RANK_SEEDS seeds."""
    return next((mark for bound, mark in STARS if n >= RANK_SEEDS and p_adjusted < bound), "")
