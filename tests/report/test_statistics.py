"""Statistics of paired seeds and of tokens, against formulas worked by hand and printed values."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats

from harness.report.statistics import (
    DRAWN_PATTERNS,
    EXACT_SEEDS,
    FEWEST_BLOCKS,
    RANK_SEEDS,
    MeanDifference,
    block_interval,
    block_sums,
    correlation,
    equivalence,
    holm,
    more_seeds,
    paired,
    seeds_needed,
    sign_flip,
    stars,
    welch,
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
    assert sign_flip(differences) == (pytest.approx(expected), 2 ** len(differences))


@pytest.mark.parametrize("seeds", [2, 5, EXACT_SEEDS])
def test_the_counted_sign_flip_is_that_of_scipy(seeds):
    differences = np.random.default_rng(seeds).normal(0.5, 1, seeds)
    given = {"permutation_type": "samples", "vectorized": True, "n_resamples": np.inf}
    expected = stats.permutation_test((differences,), np.mean, **given).pvalue
    assert sign_flip(list(differences))[0] == pytest.approx(expected, rel=1e-12)


def test_more_seeds_than_can_be_counted_draw_patterns_and_say_so():
    differences = list(np.random.default_rng(4).normal(0.3, 1, EXACT_SEEDS + 1))
    p, patterns = found = sign_flip(differences)
    signs = np.array(list(product((1, -1), repeat=EXACT_SEEDS + 1)))
    exact = np.mean(abs(signs @ differences) >= abs(sum(differences)) - 1e-12)
    assert patterns == DRAWN_PATTERNS
    assert p == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / DRAWN_PATTERNS))
    assert found == sign_flip(differences)


def test_one_seed_has_a_difference_and_no_more():
    for found in (paired([0.25]), welch([0.75], [0.5])):
        assert found == MeanDifference(n=1, mean=0.25)
        assert (found.sd, found.df, found.error, found.low, found.high, found.p_t) == (None,) * 6
        assert more_seeds(found, 0.01) is None


def test_equal_differences_have_no_spread():
    found = paired([0.1] * 8)  # a float mean of these is not 0.1
    assert (found.mean, found.sd, found.low, found.high, found.p_t) == (0.1, 0, 0.1, 0.1, 0)
    nothing = paired([0.0] * 8)
    assert (nothing.mean, nothing.sd, nothing.p_t, sign_flip([0.0] * 8)[0]) == (0, 0, 1, 1)
    assert (equivalence(found, 0.09), equivalence(found, 0.11), equivalence(nothing, 0.01)) == (1, 0, 0)


@pytest.mark.parametrize("differences", [[], [0.1, math.nan], [math.inf, 0.1]])
def test_what_is_no_finite_difference_is_refused(differences):
    for refused in (paired, lambda values: welch(values, values)):
        with pytest.raises(ValueError, match="expected finite differences"):
            refused(differences)


# Faul et al. (2007), G*Power 3, "Means: difference between two dependent means": two tails, alpha 0.05, power 0.80.
@pytest.mark.parametrize(("size", "expected"), [(0.2, 199), (0.5, 34), (0.8, 15)])
def test_sample_sizes_are_those_of_g_power(size, expected):
    assert seeds_needed(1 / size, effect=1) == expected


def test_a_spread_a_fraction_of_the_effect_needs_two_seeds():
    assert [seeds_needed(sd, effect=0.01) for sd in (0, 1e-300, 1e-6)] == [2, 2, 2]


def test_two_independent_groups_of_g_power():
    # Faul et al. (2007), "difference between two independent means": d = 0.5, two tails, power 0.80: 64 in each group,
    # where a seed's difference has the sd sqrt(2) and Welch's test 2 (n - 1) degrees of freedom.
    assert seeds_needed(math.sqrt(2) / 0.5, effect=1, df_by_seed=2) == 64


def test_seeds_still_needed_are_a_range_from_the_interval_of_the_sd():
    # chi-square with 7 degrees of freedom: 0.975 and 0.025 quantiles 16.0128 and 1.68987 (printed tables). With sd 2
    # the interval is 2 sqrt(7 / 16.0128) = 1.3223 to 2 sqrt(7 / 1.68987) = 4.0705.
    found = MeanDifference(n=8, mean=0.0, sd=2.0, df=7, low=0.0, high=0.0, p_t=1.0)
    low, high = (seeds_needed(sd, effect=1) - 8 for sd in (1.3223, 4.0705))
    assert more_seeds(found, 1) == (low, high)
    assert low < seeds_needed(2.0, effect=1) - 8 < high
    assert more_seeds(paired([1e-9, -1e-9] * 3), 0.01) == (0, 0)
    assert more_seeds(paired([1.0, 2.0, 3.0, 4.0]), 0.01) is None  # four seeds say too little on the spread


def test_welch_is_that_of_scipy_over_equal_numbers_of_seeds():
    rng = np.random.default_rng(6)
    ours, theirs = list(rng.normal(1, 1, 8)), list(rng.normal(0, 3, 8))
    found, expected = welch(ours, theirs), stats.ttest_ind(ours, theirs, equal_var=False)
    assert (found.p_t, found.df) == (pytest.approx(expected.pvalue), pytest.approx(expected.df))
    interval = expected.confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(interval.low), pytest.approx(interval.high))
    with pytest.raises(ValueError, match="the same seeds"):
        welch(ours, theirs[:7])


def test_equivalence_is_the_larger_of_two_one_sided_tests():
    differences = list(np.random.default_rng(7).normal(0.002, 0.004, 8))
    margin = 0.01
    below = stats.ttest_1samp(differences, -margin, alternative="greater").pvalue
    above = stats.ttest_1samp(differences, margin, alternative="less").pvalue
    assert equivalence(paired(differences), margin) == pytest.approx(max(below, above))
    assert equivalence(paired([-each for each in differences]), margin) == pytest.approx(max(below, above))


@pytest.mark.parametrize("sign", [1, -1])
def test_gaps_move_the_hypotheses(sign):
    # a positive mean is tested against the gap below, a negative one against the gap above
    differences = [sign * each for each in np.random.default_rng(7).normal(0.006, 0.004, 8)]
    gap, other = 0.002, 0.001
    below, above = (gap, other) if sign > 0 else (other, gap)
    found = replace(paired(differences), below=below, above=above)
    assert found.p_settled == pytest.approx(stats.ttest_1samp(differences, sign * gap).pvalue)
    assert found.p_t == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)
    assert replace(found, below=0.03, above=0.03).p_settled == 1
    margin = 0.012
    low = stats.ttest_1samp(differences, below - margin, alternative="greater").pvalue
    high = stats.ttest_1samp(differences, margin - above, alternative="less").pvalue
    assert equivalence(found, margin) == pytest.approx(max(low, high))
    assert (found.reverse.p_settled, equivalence(found.reverse, margin)) == (
        pytest.approx(found.p_settled),
        pytest.approx(equivalence(found, margin)),
    )
    assert (found.reverse.low, found.reverse.high) == (-found.high, -found.low)


def test_gaps_of_equal_differences_and_of_one_seed():
    found = replace(paired([0.5, 0.5]), below=0.25)
    assert (found.p_settled, replace(found, below=0.5).p_settled, equivalence(found, 1.0)) == (0, 1, 0)
    assert equivalence(replace(found, below=1.5), 1.0) == 1
    one = paired([0.5])
    assert (one.p_settled, one.reverse) == (None, MeanDifference(n=1, mean=-0.5))


def test_correlation_by_hand():
    assert correlation([1.0, 2.0, 3.0], [1.0, 3.0, 2.0]) == pytest.approx(0.5)  # products 1, 0, 0 of deviations: 1 / 2
    assert correlation([1.0, 2.0, 3.0], [5.0, 5.0, 5.0]) is None
    assert correlation([1.0, 2.0], [3.0, 5.0]) is None  # of two seeds it would be 1


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
    assert stars(p, RANK_SEEDS) == mark
    assert stars(p, RANK_SEEDS - 1) == ""
    assert RANK_SEEDS == 6


def test_an_interval_over_twenty_blocks_is_that_of_the_drawn_means():
    # of 20 blocks, 10 are 1 and 10 are 3: the mean of a draw is 1 + 2 X / 20, X binomial (20, 1/2), whose quantiles at
    # 0.025 and 0.975 are 6 and 14 (P(X <= 5) = 0.0207, P(X <= 6) = 0.0577)
    found = block_interval(np.repeat([1.0, 3.0] * 10, 2), block=2)
    assert (found.mean, found.low, found.high, found.blocks) == (2, pytest.approx(1.6), pytest.approx(2.4), 20)


def test_a_short_last_block_weighs_by_its_tokens():
    values = np.array([1.0, 1, 1, 1, 4])
    sums, counts = block_sums(values, block=4)
    assert (sums.tolist(), counts.tolist()) == ([4, 4], [4, 1])
    assert block_interval(values, block=4).mean == pytest.approx(1.6)
    # a last block of one token and value 400: drawn j times of 30, the mean is 400 j / (4 (30 - j) + j); j is 0 with
    # probability (29 / 30)^30 = 0.36, so the lower end is 0
    found = block_interval(np.append(np.zeros(29 * 4), 400.0), block=4)
    assert (found.mean, found.low) == (pytest.approx(400 / 117), 0)
    # j <= 3 with probability 0.981 and j <= 2 with 0.922, so the upper end is that of j = 3
    assert found.high == pytest.approx(3 * 400 / (27 * 4 + 3))


def test_an_interval_over_many_blocks_is_that_of_the_mean_of_blocks():
    # tokens of a block are alike, so that its 100 tokens tell no more than one
    levels = np.random.default_rng(5).normal(0.02, 1, 400)
    found = block_interval(np.repeat(levels, 100), block=100)
    error = levels.std() / 20
    assert found.low == pytest.approx(levels.mean() - 1.96 * error, abs=0.05 * error)
    assert found.high == pytest.approx(levels.mean() + 1.96 * error, abs=0.05 * error)
    assert found == block_interval(np.repeat(levels, 100), block=100)


def test_equal_blocks_have_an_interval_without_width():
    found = block_interval(np.full(19_500, 0.5))
    assert (found.mean, found.low, found.high, found.blocks) == (0.5, 0.5, 0.5, 20)


@pytest.mark.parametrize("blocks", [1, FEWEST_BLOCKS - 1])
def test_few_blocks_have_no_interval(blocks):
    found = block_interval(np.arange(2.0 * blocks), block=2)
    assert (found.mean, found.low, found.high, found.blocks) == (blocks - 0.5, None, None, blocks)
    assert FEWEST_BLOCKS == 20


@pytest.mark.parametrize("values", [[], [0.1, math.nan], [0.1, math.inf]])
def test_tokens_without_a_finite_difference_are_refused(values):
    with pytest.raises(ValueError, match="expected finite differences"):
        block_interval(np.array(values))
