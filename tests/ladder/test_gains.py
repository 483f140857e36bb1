"""Gains by size and their trend: by hand, against ordinary least squares, and the words of planted means."""

import math

import numpy as np
import pytest
from scipy import stats

from harness.ladder.drawn_means import means
from harness.ladder.gains import fraction, gains_and_trend
from harness.report.statistics import paired

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


def gains(found):
    return gains_and_trend(doublings(len(found.gains)), found, margin=MARGIN)[0]


def trend(axis, found, *, margin=MARGIN):
    return gains_and_trend(axis, found, margin=margin)[1]


def doublings(sizes: int, each: float = 1) -> np.ndarray:
    return 1e6 * 2.0 ** (each * np.arange(sizes))


def word(gains_by_size, *, each: float = 1, **given) -> str:
    return trend(doublings(len(gains_by_size), each), ladder(gains_by_size, **given)).word


def test_a_gain_is_that_of_the_paired_test_over_the_seeds_that_both_have():
    baseline = [{1: 3.0, 2: 3.1, 3: 3.2, 5: 3.3}, {1: 2.0, 2: 2.1, 3: 2.3}]
    head = [{1: 2.9, 2: 2.95, 3: 3.1, 4: 1.0, 5: math.nan}, {1: 1.98, 2: 2.11, 3: 2.3}]
    one, other = gains(means(baseline, head))
    assert (one.difference.n, other.difference.n) == (3, 3)
    for found, expected in ((one, [0.1, 0.15, 0.1]), (other, [0.02, -0.01, 0.0])):
        by_hand = paired(expected)
        assert found.difference.mean == pytest.approx(by_hand.mean)
        assert (found.difference.low, found.difference.high) == pytest.approx((by_hand.low, by_hand.high))


def test_words_of_gains():
    assert [each.word for each in gains(ladder([3, -3, 0]))] == ["better", "worse", "equivalent"]
    assert [each.word for each in gains(ladder([0, 0.02, -0.02]))] == ["equivalent"] * 3


def test_p_values_of_sizes_are_corrected_over_the_sizes():
    # four equal gains: p is 0.012 each, of the slope 1; five times 0.012 is above 0.05, and four times below
    for p, expected in ((0.012, 0.06), (0.005, 0.025)):
        found = ladder([1] * 4, spread=0.01 * math.sqrt(3) / stats.t.isf(p / 2, 3))
        for each in gains(found):
            assert (each.difference.p_t, each.p) == (pytest.approx(p), pytest.approx(expected))
            assert each.word == ("better" if expected < 0.05 else "undecided")


def test_p_values_by_hand_with_a_trend():
    # t of the sizes is 60, 40, 20 with one degree of freedom: P(|T| > t) = 1 - 2 atan(t) / pi. Of the slope it is
    # 0.02 / sqrt(5e-7) with two: 1 - t / sqrt(2 + t^2), the smallest of the four, so that no p is below 4 times that.
    found, axis = ladder([6, 4, 2], seeds=2), doublings(3)
    t = 0.02 / math.sqrt(5e-7)
    least = 4 * (1 - t / math.sqrt(2 + t * t))
    one, two, three = (1 - 2 * math.atan(t) / math.pi for t in (60, 40, 20))
    assert 3 * one > max(2 * two, three)  # in Holm's method no p is below that of a larger gain
    assert [each.p for each in gains(found)] == pytest.approx([3 * one] * 3)
    assert trend(axis, found).p == pytest.approx(least)
    assert [each.word for each in gains(found)] == ["better"] * 3
    assert least < 3 * one


def test_without_a_gain_that_is_shown_no_gain_holds():
    # the interval of the slope lies within the margin, and no gain is shown
    found = trend(doublings(3), ladder([0.1, 0.1, 0.1], spread=0.002))
    assert -MARGIN < found.low < found.high < MARGIN
    assert found.word == "undecided"


def test_a_trend_is_shown_without_a_gain_that_is():
    found, axis = ladder([-0.6, -0.2, 0.2, 0.6], spread=0.004), doublings(4)
    assert {each.word for each in gains(found)} == {"undecided"}
    assert trend(axis, found).word == "grows"


def test_a_gain_as_a_fraction_of_perplexity():
    assert fraction(math.log(20) - math.log(19)) == pytest.approx(0.05)
    assert fraction(-math.log(1.02)) == pytest.approx(-0.02)


def test_a_trend_by_hand():
    # Gains 6, 4, 2 %, each with two seeds 0.1 % above and below: s^2 = 2e-6. Of x = 0, 1, 2 the weights are -1/2, 0,
    # 1/2: v = 2 (1/4) 2e-6 / 2 = 5e-7 with 2 degrees of freedom, for which t_0.975 is 4.30265.
    found = trend([1, 2, 4], ladder([6, 4, 2], seeds=2))
    reach = 4.30265 * math.sqrt(5e-7)
    assert (found.sizes, found.word) == (3, "shrinks")
    assert (found.slope, found.low, found.high) == pytest.approx((-0.02, -0.02 - reach, -0.02 + reach), rel=1e-5)


def test_a_trend_is_the_least_squares_line_through_all_seeds():
    rng, axis, numbers = np.random.default_rng(2), [1e6, 3e6, 2e7, 4e7], (6, 6, 4, 3)
    by_size = [rng.normal(0.02, 0.005, number) for number in numbers]
    baseline = [dict.fromkeys(range(number), 3 - 0.1 * size) for size, number in enumerate(numbers)]
    head = [
        {seed: losses[seed] - gain for seed, gain in enumerate(of_size)}
        for losses, of_size in zip(baseline, by_size, strict=True)
    ]
    found = trend(axis, means(baseline, head))
    x = np.repeat(np.log2(axis), numbers)
    line = stats.linregress(x, np.concatenate(by_size))
    # the weight of a gain in the slope, and the variance by size
    weights = (np.log2(axis) - x.mean()) / ((x - x.mean()) ** 2).sum()
    parts = [weight**2 * n * each.var(ddof=1) for weight, n, each in zip(weights, numbers, by_size, strict=True)]
    df = sum(parts) ** 2 / sum(part**2 / (n - 1) for part, n in zip(parts, numbers, strict=True))
    assert found.slope == pytest.approx(line.slope)
    assert (found.high - found.low) / 2 == pytest.approx(stats.t.ppf(0.975, df) * math.sqrt(sum(parts)))


@pytest.mark.parametrize(
    ("gains_by_size", "given", "expected"),
    [
        ([3, 2, 1], {}, "shrinks"),
        ([1, 2, 3], {}, "grows"),
        ([2, 2, 2], {}, "holds"),
        ([2, 2.3, 2], {}, "holds"),
        ([2, 2.4, 2.8, 3.2], {}, "grows"),  # within the margin, and above 0
        ([4, 2, 1], {}, "shrinks"),  # no line, and shrinking all the same
        ([12, 6, 3, 1.5], {}, "shrinks"),
        ([-1, -2, -3], {}, "shrinks"),  # the head falls behind
        ([-1.5, -0.5, 0.5, 1.5], {}, "grows"),
        ([2, 1], {}, "shrinks"),
        ([2, 2], {}, "holds"),
        # one size is reversed
        ([2, -2, 2], {}, "undecided"),
        ([1, -2, 3], {}, "undecided"),
        ([4, 1, 4], {}, "undecided"),
        ([3, -2, 2, 1], {}, "undecided"),
        # four doublings from size to size: -4 and +4 % are 1 % for each doubling, the margin
        ([2, -2, 2], {"each": 4}, "undecided"),
        ([2, 2.2, 2], {"each": 4}, "holds"),
        ([3, 2.5, 2], {"spread": 0.02}, "undecided"),  # the seeds do not show it
        ([0, 0.02, -0.02], {}, "undecided"),  # nothing to shrink or to hold
    ],
)
def test_words_of_trends(gains_by_size, given, expected):
    assert word(gains_by_size, **given) == expected


@pytest.mark.parametrize("order", [1, -1])
def test_the_margin_is_for_each_doubling(order):
    # 0.1 % a doubling is not shown, and the interval covers about 0.3 % more on both ends
    found, axis = ladder([2, 2.1, 2.2][::order], spread=0.002), doublings(3)
    assert trend(axis, found, margin=0.01).word == "holds"
    assert trend(axis, found, margin=0.002).word == "undecided"
    assert trend(doublings(3, each=4), found, margin=0.002).word == "holds"


@pytest.mark.parametrize("missing", [0, 1, 2])
@pytest.mark.parametrize("seeds", [0, 1])
def test_with_a_size_without_two_seeds_there_is_a_slope_and_no_word(missing, seeds):
    losses = [{1: 3.0, 2: 3.01}, {1: 2.8, 2: 2.81}, {1: 2.6, 2: 2.61}]
    head = []
    for each, gain in zip(losses, (0.03, 0.02, 0.01), strict=True):
        head.append({seed: loss - gain for seed, loss in each.items()})
    head[missing] = {seed: loss for seed, loss in head[missing].items() if seed <= seeds}
    found = means(losses, head)
    slope, of_sizes = trend([1, 2, 4], found), gains(found)
    assert slope.slope == pytest.approx(-0.01)
    assert (slope.sizes, slope.low, slope.high, slope.word) == (2 + seeds, None, None, "undecided")
    assert [each.difference is None for each in of_sizes] == [size == missing and not seeds for size in range(3)]
    assert (of_sizes[missing].word, of_sizes[missing].p) == ("undecided", 1)


def test_one_seed_at_every_size_has_no_interval_and_no_word():
    found = means([{1: 3.0}, {1: 2.8}], [{1: 2.9}, {1: 2.75}])
    slope = trend([1, 2], found)
    assert (slope.slope, slope.low, slope.word) == (pytest.approx(-0.05), None, "undecided")
    assert [(each.difference.low, each.word) for each in gains(found)] == [(None, "undecided")] * 2


def test_one_size_has_no_trend():
    assert trend([1, 2], means([{1: 3.0}, {1: 2.8}], [{1: 2.9}, {}])) is None


def test_equal_gains_of_all_seeds_have_no_spread():
    losses = [{1: 3.0, 2: 3.5}, {1: 2.0, 2: 2.5}]
    zero = means(losses, losses)
    assert [each.word for each in gains(zero)] == ["equivalent"] * 2
    assert trend([1, 2], zero).word == "undecided"
    half = means(losses, [{seed: loss - 0.5 for seed, loss in each.items()} for each in losses])
    assert [each.word for each in gains(half)] == ["better"] * 2
    assert trend([1, 2], half).word == "holds"
