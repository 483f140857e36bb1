"""Ranks of singular values, by hand."""

import math

import pytest
import torch

from harness.diagnostics.rank_measures import effective_rank, entropy_rank, press_rank, press_tolerance


def values(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def test_the_tolerance_of_press():
    # 1/2 sqrt(10,000 + 10,000 + 1) 2^-52 = 70.7 eps
    assert press_tolerance(10_000, 10_000) == pytest.approx(0.5 * math.sqrt(20_001) * 2.0**-52)


def test_the_press_rank_counts_what_is_above_the_tolerance():
    tolerance = 0.5 * math.sqrt(9) * 2.0**-52  # of a 4 x 4 matrix
    assert press_rank(values(8, 1, 8 * tolerance * 1.01, 8 * tolerance * 0.99), 4, 4) == 3


@pytest.mark.parametrize(("epsilon", "rank"), [(0.5, 1), (0.3, 2), (0.11, 2), (0.09, 3), (1e-5, 3)])
def test_the_effective_rank_keeps_so_much_of_the_squares(epsilon, rank):
    # squares 6, 3, 1: of 10 the first keeps 0.6, the first two 0.9
    assert effective_rank(values(6**0.5, 3**0.5, 1.0), epsilon) == rank


def test_the_effective_rank_keeps_the_share_itself_and_no_more():
    # squares 4 and 4: the first is half of them, and all of these numbers are exact
    assert effective_rank(values(2.0, 2.0), 0.5) == 1


def test_the_entropy_rank_of_equal_values_is_their_number_and_of_one_value_one():
    assert entropy_rank(values(2, 2, 2, 2)) == pytest.approx(4)
    assert entropy_rank(values(7, 0, 0)) == pytest.approx(1)
    # shares 1/2, 1/4, 1/4: entropy 1.5 log 2
    assert entropy_rank(values(2, 1, 1)) == pytest.approx(2**1.5)


def test_an_effective_rank_of_the_largest_values_is_at_least_one_more_than_they_are():
    # squares 9, 1 and 0.5 of values that are not known: 9 of 10.5 is 85.7 %, 10 is 95.2 %
    assert [effective_rank(values(3.0, 1.0), epsilon, 10.5) for epsilon in (0.2, 0.05, 0.04)] == [1, 2, 3]
