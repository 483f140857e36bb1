"""Ranks of a matrix from its singular values s_1 >= s_2 >= ... (R,), float64."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

EPSILON = torch.finfo(torch.float64).eps


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Singular values, largest first.

    Shapes: found (R,), R <= min(N, V).
    Args:
        limit: those that are not in `found` are at most this share of the largest; 0 if all are found.
        squares: the sum of the squares of all values; None: those that are not in `found` hold no share that counts.
    """

    found: Tensor
    limit: float
    squares: float | None = None


def press_tolerance(N: int, V: int) -> float:
    """The share of the largest singular value up to which a singular value of an N x V matrix counts as zero.

    tolerance = 1/2 sqrt(N + V + 1) eps
    Source: Press et al. (2007), Numerical Recipes, third edition, section 2.6; used by Parthiban et al. (2021).
    """
    return 0.5 * math.sqrt(N + V + 1) * EPSILON


def press_rank(values: Tensor, N: int, V: int) -> int:
    """The number of singular values above the tolerance of Press et al., times the largest."""
    return int((values > press_tolerance(N, V) * values[0]).sum())


def effective_rank(values: Tensor, epsilon: float, squares: float | None = None) -> int:
    """The smallest k with s_1^2 + ... + s_k^2 >= (1 - epsilon) of the sum of all squares.

    Args:
        squares: that sum, where `values` are only the largest; None: they are all. If the values given do not have the
            share, the rank is at least their number plus 1, and this is returned.
    Source: Parthiban et al. (2021), table 6.
    """
    kept = values.square().cumsum(0)
    return int((kept < (1 - epsilon) * (kept[-1] if squares is None else squares)).sum()) + 1


def entropy_rank(values: Tensor) -> float:
    """exp(-sum_i p_i log p_i) with p_i = s_i / (s_1 + s_2 + ...): between 1 and the rank.

    Source: Roy and Vetterli (2007), The effective rank, EUSIPCO.
    """
    share = values / values.sum()
    return float(torch.special.entr(share).sum().exp())
