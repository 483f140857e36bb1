"""Gains by size and their trend: by hand, against ordinary least squares, and the words of planted means."""

import math

import numpy as np
import pytest
from scipy import stats

from harness.ladder.drawn_means import means
from harness.ladder.gains import fraction, gains, trend
from harness.report.statistics import holm, paired

MARGIN = math.log(1.01)


def ladder(gains_by_size, *, spread: float = 0.001, seeds: int = 4):
    """Means of a ladder whose gains (in per cent) have exactly these means, and an sd of `spread` * 1.15 nats."""
    apart = spread * np.resize([1, -1], seeds)
    baseline, head = [], []
    for size, gain in enumerate(gains_by_size):
        losses = 3 - 0.2 * size + 0.01 * np.arange(seeds)
        baseline.append(dict(enumerate(losses)))
        head.append(dict(enumerate(losses - gain / 100 + apart)))
    return means(baseline, head)


def doublings(sizes: int, each: float = 1) -> np.ndarray:
    return 1e6 * 2.0 ** (each * np.arange(sizes))


def word(gains_by_size, *, each: float = 1, **given) -> str:
    return trend(doublings(len(gains_by_size), each), ladder(gains_by_size, **given), margin=MARGIN).word


def test_a_gain_is_that_of_the_paired_test_over_the_seeds_that_both_have():
    baseline = [{1: 3.0, 2: 3.1, 3: 3.2, 5: 3.3}, {1: 2.0, 2: 2.1, 3: 2.3}]
    head = [{1: 2.9, 2: 2.95, 3: 3.1, 4: 1.0, 5: math.nan}, {1: 1.98, 2: 2.11, 3: 2.3}]
    one, other = gains(means(baseline, head))
    assert (one.difference.n, other.difference.n) == (3, 3)
    for found, expected in ((one, [0.1, 0.15, 0.1]), (other, [0.02, -0.01, 0.0])):
        by_hand = paired(expected)
        assert found.difference.mean == pytest.approx(by_hand.mean)
        assert (found.difference.low, found.difference.high) == pytest.approx((by_hand.low, by_hand.high))
    assert (one.p, other.p) == pytest.approx(tuple(holm([one.difference.p_t, other.difference.p_t])))
    assert (one.word, other.word) == ("better", "undecided")


def test_words_of_gains():
    assert [each.word for each in gains(ladder([3, -3, 0]))] == ["better", "worse", "undecided"]
    assert [each.word for each in gains(ladder([0, 0.02, -0.02]))] == ["undecided"] * 3


def test_p_values_of_sizes_are_corrected():
    # p of one size alone is 0.03, of four: 0.12
    found = ladder([1] * 4, spread=0.01 * math.sqrt(3) / stats.t.isf(0.015, 3))
    for each in gains(found):
        assert (each.difference.p_t, each.p) == (pytest.approx(0.03), pytest.approx(0.12))
        assert each.word == "undecided"


def test_a_gain_as_a_fraction_of_perplexity():
    assert fraction(math.log(20) - math.log(19)) == pytest.approx(0.05)
    assert fraction(-math.log(1.02)) == pytest.approx(-0.02)


def test_a_trend_by_hand():
    # Gains 3, 2, 1 %, each with two seeds 0.1 % above and below: s^2 = 2e-6, df 3; x = 0, 1, 2: S = 2 (1 + 0 + 1) = 4.
    # t_0.975 = 3.18245, so the interval is -0.01 -+ 3.18245 sqrt(2e-6 / 4). F = 2 (9 + 4 + 1) 1e-4 / (3 * 2e-6).
    found = trend([1, 2, 4], ladder([3, 2, 1], seeds=2), margin=MARGIN)
    reach = 3.18245 * math.sqrt(2e-6 / 4)
    assert (found.sizes, found.df, found.word) == (3, 3, "shrinks")
    assert (found.slope, found.low, found.high) == pytest.approx((-0.01, -0.01 - reach, -0.01 + reach), rel=1e-5)
    assert found.p_zero == pytest.approx(stats.f.sf(28e-4 / 6e-6, 3, 3))


def test_a_trend_is_the_least_squares_line_through_all_seeds():
    rng, axis, numbers = np.random.default_rng(2), [1e6, 3e6, 2e7, 4e7], (6, 6, 4, 3)
    by_size = [rng.normal(0.02, 0.005, number) for number in numbers]
    baseline = [dict.fromkeys(range(number), 3 - 0.1 * size) for size, number in enumerate(numbers)]
    head = [
        {seed: losses[seed] - gain for seed, gain in enumerate(of_size)}
        for losses, of_size in zip(baseline, by_size, strict=True)
    ]
    found = trend(axis, means(baseline, head), margin=MARGIN)
    x = np.repeat(np.log2(axis), numbers)
    line = stats.linregress(x, np.concatenate(by_size))
    within = sum(((each - each.mean()) ** 2).sum() for each in by_size) / (sum(numbers) - 4)
    reach = stats.t.ppf(0.975, 15) * math.sqrt(within / ((x - x.mean()) ** 2).sum())
    assert (found.slope, found.df) == (pytest.approx(line.slope), 15)
    assert (found.high - found.low) / 2 == pytest.approx(reach)


@pytest.mark.parametrize(
    ("gains_by_size", "expected"),
    [
        ([3, 2, 1], "shrinks"),
        ([1, 2, 3], "grows"),
        ([2, 2, 2], "holds"),
        ([2, 2.3, 2], "holds"),
        ([2, 2.4, 2.8, 3.2], "grows"),  # within the margin, and above 0
        ([4, 2, 1], "shrinks"),  # no line, and shrinking all the same
        ([12, 6, 3, 1.5], "shrinks"),
        ([-1, -2, -3], "shrinks"),  # the head falls behind
        ([-1.5, -0.5, 0.5, 1.5], "grows"),
        ([2, 1], "shrinks"),
        ([2, 2], "holds"),
        # one size is reversed
        ([2, -2, 2], "undecided"),
        ([3, -2, 1], "undecided"),
        ([1, -2, 3], "undecided"),
        ([2, 2, -2, 2], "undecided"),
        ([3, -2, 2, 1], "undecided"),
        # nothing to shrink or to hold
        ([0, 0, 0], "undecided"),
        ([0, 0.02, -0.02], "undecided"),
    ],
)
def test_words_of_trends(gains_by_size, expected):
    assert word(gains_by_size) == expected


def test_a_reversed_size_is_seen_between_sizes_that_are_far_apart():
    # four doublings from size to size: -4 and +4 % are 1 % for each doubling, the margin
    assert word([2, -2, 2], each=4) == "undecided"
    assert word([2, 2.2, 2], each=4) == "holds"


def test_a_trend_that_the_seeds_do_not_show_is_undecided():
    assert word([3, 2.5, 2], spread=0.02) == "undecided"


def test_the_margin_is_for_each_doubling():
    # 0.9 % a doubling with hardly any spread would grow; so the spread covers 0, and the margin decides
    found, axis = ladder([2, 2.1, 2.2], spread=0.002), doublings(3)
    assert trend(axis, found, margin=0.01).word == "holds"
    assert trend(axis, found, margin=0.002).word == "undecided"


@pytest.mark.parametrize("missing", [0, 1, 2])
@pytest.mark.parametrize("seeds", [0, 1])
def test_with_a_size_without_two_seeds_there_is_a_slope_and_no_word(missing, seeds):
    losses = [{1: 3.0, 2: 3.01}, {1: 2.8, 2: 2.81}, {1: 2.6, 2: 2.61}]
    head = []
    for each, gain in zip(losses, (0.03, 0.02, 0.01), strict=True):
        head.append({seed: loss - gain for seed, loss in each.items()})
    head[missing] = {seed: loss for seed, loss in head[missing].items() if seed <= seeds}
    found = means(losses, head)
    slope, of_sizes = trend([1, 2, 4], found, margin=MARGIN), gains(found)
    assert slope.slope == pytest.approx(-0.01)
    assert (slope.sizes, slope.low, slope.high, slope.word) == (2 + seeds, None, None, "undecided")
    assert [each.difference is None for each in of_sizes] == [size == missing and not seeds for size in range(3)]
    assert (of_sizes[missing].word, of_sizes[missing].p) == ("undecided", 1)


def test_one_seed_at_every_size_has_no_interval_and_no_word():
    found = means([{1: 3.0}, {1: 2.8}], [{1: 2.9}, {1: 2.75}])
    slope = trend([1, 2], found, margin=MARGIN)
    assert (slope.slope, slope.low, slope.word) == (pytest.approx(-0.05), None, "undecided")
    assert [(each.difference.low, each.word) for each in gains(found)] == [(None, "undecided")] * 2


def test_one_size_has_no_trend():
    assert trend([1, 2], means([{1: 3.0}, {1: 2.8}], [{1: 2.9}, {}]), margin=MARGIN) is None


def test_equal_gains_of_all_seeds_have_no_spread():
    losses = [{1: 3.0, 2: 3.5}, {1: 2.0, 2: 2.5}]
    zero = means(losses, losses)
    assert [each.word for each in gains(zero)] == ["undecided"] * 2
    assert trend([1, 2], zero, margin=MARGIN).word == "undecided"
    half = means(losses, [{seed: loss - 0.5 for seed, loss in each.items()} for each in losses])
    assert [each.word for each in gains(half)] == ["better"] * 2
    assert trend([1, 2], half, margin=MARGIN).word == "holds"
