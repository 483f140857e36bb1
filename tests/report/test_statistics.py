"""Statistics of paired seeds and of tokens, against formulas worked by hand and printed values."""

import math
from itertools import product

import numpy as np
import pytest

from harness.report.evidence.statistics import (
    DRAWN_PATTERNS,
    EXACT_SEEDS,
    STAR_SEEDS,
    block_interval,
    block_sums,
    holm,
    paired,
    seeds_needed,
    stars,
)


def test_three_differences_by_hand():
    # mean -0.015; deviations 0.005, -0.005, 0: sd sqrt(5e-5 / 2) = 0.005; t = -0.015 sqrt(3) / 0.005 = -5.196.
    # With 2 degrees of freedom P(|T| > t) = 1 - t / sqrt(2 + t^2), so t_0.975 = 0.95 sqrt(2 / (1 - 0.95^2)) = 4.3027.
    found = paired([-0.01, -0.02, -0.015])
    t, bound = 3 * math.sqrt(3), 0.95 * math.sqrt(2 / (1 - 0.95**2))
    assert (found.n, found.mean, found.sd) == (3, pytest.approx(-0.015), pytest.approx(0.005))
    assert found.p_t == pytest.approx(1 - t / math.sqrt(2 + t * t))
    assert found.low == pytest.approx(-0.015 - bound * 0.005 / math.sqrt(3))
    assert found.high == pytest.approx(-0.015 + bound * 0.005 / math.sqrt(3))


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ([1, 2, 3], 2 / 8),  # only +++ and --- have a sum as far from 0 as 6
        ([3, -1, 2], 4 / 8),  # 4 is reached by 3 - 1 + 2 and 3 + 1 + 2, and by their opposites
        ([1, -1], 1.0),
        ([-0.1] * 6, 2 / 64),
    ],
)
def test_sign_flip_by_counting(differences, expected):
    found = paired(differences)
    assert (found.p_sign_flip, found.patterns) == (pytest.approx(expected), 2 ** len(differences))


def test_sign_flip_counts_all_patterns_of_eight_seeds():
    differences = np.random.default_rng(3).normal(0.4, 1, 8)
    sums = [abs(np.dot(differences, signs)) for signs in product((1, -1), repeat=8)]
    expected = sum(total >= abs(differences.sum()) - 1e-12 for total in sums) / 256
    assert paired(list(differences)).p_sign_flip == pytest.approx(expected)


def test_more_seeds_than_can_be_counted_draw_patterns_and_say_so():
    differences = list(np.random.default_rng(4).normal(0.3, 1, EXACT_SEEDS + 1))
    found = paired(differences)
    signs = np.array(list(product((1, -1), repeat=EXACT_SEEDS + 1)))
    exact = np.mean(abs(signs @ differences) >= abs(sum(differences)) - 1e-12)
    assert found.patterns == DRAWN_PATTERNS
    assert found.p_sign_flip == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / DRAWN_PATTERNS))
    assert found == paired(differences)


def test_one_seed_has_a_difference_and_no_more():
    found = paired([0.25])
    assert (found.n, found.mean) == (1, 0.25)
    told = (found.sd, found.low, found.high, found.p_t, found.p_sign_flip, found.patterns, found.more_seeds)
    assert told == (None,) * 7


def test_equal_differences_have_no_spread():
    found = paired([0.1] * 8)  # a float mean of these is not 0.1
    assert (found.mean, found.sd, found.low, found.high, found.p_t) == (0.1, 0, 0.1, 0.1, 0)
    nothing = paired([0.0] * 8)
    assert (nothing.mean, nothing.sd, nothing.p_t, nothing.p_sign_flip) == (0, 0, 1, 1)


@pytest.mark.parametrize("differences", [[], [0.1, math.nan], [math.inf, 0.1]])
def test_what_is_no_finite_difference_is_refused(differences):
    with pytest.raises(ValueError, match="expected finite differences"):
        paired(differences)


# Faul et al. (2007), G*Power 3, "Means: difference between two dependent means": two tails, alpha 0.05, power 0.80.
@pytest.mark.parametrize(("size", "expected"), [(0.2, 199), (0.5, 34), (0.8, 15)])
def test_sample_sizes_are_those_of_g_power(size, expected):
    assert seeds_needed(1 / size, effect=1) == expected


def test_a_spread_a_fraction_of_the_effect_needs_two_seeds():
    assert [seeds_needed(sd) for sd in (0, 1e-300, 1e-6)] == [2, 2, 2]


def test_seeds_still_needed_are_those_beyond_the_ones_there():
    # differences x and -x have sd x sqrt(2): for an effect of ln 1.01 that is half the sd, 34 seeds in all
    x = math.sqrt(2) * math.log(1.01)
    assert paired([x, -x]).more_seeds == 34 - 2
    assert paired([1e-9 * x, -1e-9 * x] * 3).more_seeds == 0


def test_holm_by_hand():
    # ascending 0.005 0.01 0.03 0.04, times 4 3 2 1: 0.02 0.03 0.06 0.04, and the last no less than the one before
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.5]) == [1, 1]
    assert holm([0.04]) == [0.04]
    assert holm([]) == []


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_holm_refuses_what_is_no_probability(p):
    with pytest.raises(ValueError, match="expected probabilities"):
        holm([0.5, p])


@pytest.mark.parametrize(
    ("p", "mark"), [(0.05, ""), (0.049, "*"), (0.01, "*"), (0.009, "**"), (0.001, "**"), (0.0009, "***")]
)
def test_stars_stand_for_bounds_and_for_enough_seeds(p, mark):
    assert stars(p, STAR_SEEDS) == mark
    assert stars(p, STAR_SEEDS - 1) == ""
    assert STAR_SEEDS == 6


def test_an_interval_over_two_blocks_by_hand():
    # drawing two of the blocks 1 1 and 3 3 gives 1, 2 or 3, the outer ones in a quarter of all draws
    found = block_interval(np.array([1.0, 1, 3, 3]), block=2)
    assert (found.mean, found.low, found.high, found.blocks) == (2, 1, 3, 2)


def test_a_short_last_block_weighs_by_its_tokens():
    values = np.array([1.0, 1, 1, 1, 4])
    sums, counts = block_sums(values, block=4)
    assert (sums.tolist(), counts.tolist()) == ([4, 4], [4, 1])
    # one of each is drawn in half of all draws, (4 + 4) / (4 + 1); twice the first 1, twice the last 4
    found = block_interval(values, block=4)
    assert (found.mean, found.low, found.high) == (pytest.approx(1.6), 1, 4)


def test_an_interval_over_many_blocks_is_that_of_the_mean_of_blocks():
    # tokens of a block are alike, so that its 100 tokens tell no more than one
    levels = np.random.default_rng(5).normal(0.02, 1, 400)
    found = block_interval(np.repeat(levels, 100), block=100)
    error = levels.std() / 20
    assert found.low == pytest.approx(levels.mean() - 1.96 * error, abs=0.05 * error)
    assert found.high == pytest.approx(levels.mean() + 1.96 * error, abs=0.05 * error)
    assert found == block_interval(np.repeat(levels, 100), block=100)


def test_equal_blocks_have_an_interval_without_width():
    found = block_interval(np.full(2_500, 0.5))
    assert (found.mean, found.low, found.high, found.blocks) == (0.5, 0.5, 0.5, 3)


def test_one_block_has_no_interval():
    found = block_interval(np.array([1.0, 2.0]))
    assert (found.mean, found.low, found.high, found.blocks) == (1.5, None, None, 1)


@pytest.mark.parametrize("values", [[], [0.1, math.nan], [0.1, math.inf]])
def test_tokens_without_a_finite_difference_are_refused(values):
    with pytest.raises(ValueError, match="expected finite differences"):
        block_interval(np.array(values))
