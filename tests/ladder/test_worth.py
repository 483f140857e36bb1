"""What a gain is worth: printed effective speed-ups and shares, lines by hand, the ends of the sizes."""

import math

import numpy as np
import pytest

from harness.ladder.curve import fit
from harness.ladder.drawn_means import Estimate, means
from harness.ladder.words import worth_text
from harness.ladder.worth import Axis, Worth, shares, worths

X4 = 1e6 * 2.0 ** np.arange(4)


def single(baseline, head):
    return means([{1: each} for each in baseline], [{1: each} for each in head])


def seeded(baseline, gains, *, sd=0.003, seeds=4, draw=1):
    noise = np.random.default_rng(draw).normal(0, sd, (2, len(baseline), seeds))
    losses = [np.array(baseline)[:, None] + noise[0], np.array(baseline)[:, None] - np.array(gains)[:, None] + noise[1]]
    return means(*[[dict(enumerate(each)) for each in row] for row in losses])


def alike(x) -> Axis:
    return Axis(baseline=x, head=x)


@pytest.mark.parametrize(
    ("losses", "speeds", "at_equal_speed", "with_speed"),
    [
        ((3.8104, 3.7971), (405_630, 372_477), 1.066, 0.979),
        ((3.4339, 3.4249), (273_532, 263_755), 1.054, 1.016),
    ],
)
def test_the_printed_effective_speed_ups(losses, speeds, at_equal_speed, with_speed):
    # marin issue 5224, soft cap 30: floor 1.6 and alpha 0.0941; the other sizes are on that curve, and have no gain
    baseline = 1.6 + (losses[0] - 1.6) * 4.0 ** (-0.0941 * np.arange(4))
    pairs = single(baseline, [losses[1], *baseline[1:]])
    seconds = 100 * 4.0 ** np.arange(4)
    equal = worths(alike(seconds), pairs, floor=1.6)[0]
    slower = worths(Axis(baseline=seconds, head=seconds * speeds[0] / speeds[1]), pairs, floor=1.6)[0]
    assert equal.best.value == pytest.approx(at_equal_speed, abs=6e-4)
    assert slower.best.value == pytest.approx(with_speed, abs=6e-4)
    assert slower.cost == pytest.approx(speeds[0] / speeds[1])


@pytest.mark.parametrize(
    ("baseline", "head", "expected"),
    [((18.72, 15.89), (18.29, 15.64), 0.152), ((24.06, 20.34), (23.45, 20.02), 0.164)],
)
def test_the_printed_share_of_the_step_to_the_next_size(baseline, head, expected):
    # of softmax and MFS in the poster's table 1 (tests/report/test_printed_numbers.py): OpenWebText, Wikipedia
    found, last = shares(single(np.log(baseline), np.log(head)))
    assert round(found.perplexity.value, 3) == expected
    assert found.nats.value == pytest.approx(math.log(baseline[0] / head[0]) / math.log(baseline[0] / baseline[1]))
    assert (found.nats.low, found.perplexity.low, last) == (None, None, None)


def test_lines_by_hand_and_the_ends():
    # In log x and log loss from (1, 4) to (4, 1) to (64, 1/4). At size 1 a loss of 2 is that of x = 2, and of 1/2 that
    # of x = 16. At 4 a loss of 2 is that of x = 2. At 64 the head is better by 1/4: the baseline is worse by that at
    # x = 16.
    x, baseline = [1, 4, 64], [4, 1, 0.25]
    assert _values(x, baseline, [2, 2, 0.0001]) == pytest.approx([2, 1 / 2, 64 / 16.0], rel=1e-3)
    assert _values(x, baseline, [0.5, 0.5, 0.25]) == pytest.approx([16, 4, 1])
    # At 4 the head is worse by 1: the baseline has its loss at x = 2.
    assert _values(x, baseline, [4, 2, 0.25]) == pytest.approx([1, 1 / 2, 1])


def _values(x, baseline, head) -> list[float]:
    return [each.straight.value for each in worths(alike(x), single(baseline, head))]


def test_nothing_is_read_beyond_the_ends():
    x, baseline = [1, 4, 64], [4, 1, 0.25]
    found = worths(alike(x), single(baseline, [0.2, 0.2, 5]))
    assert [each.straight.value for each in found] == [math.inf, math.inf, 0]
    assert [(each.lowest, each.highest) for each in found] == [(1, 64), (1 / 4, 16), (1 / 64, 64)]
    slow = worths(Axis(baseline=x, head=[2, 8, 128]), single(baseline, [0.2, 0.2, 5]))
    assert [(each.lowest, each.highest) for each in slow] == [(1 / 2, 32), (1 / 8, 8), (1 / 128, 32)]


@pytest.mark.parametrize("sizes", [3, 4])
def test_a_head_that_is_worse_at_the_smallest_size_is_worth_less_than_that(sizes):
    # No baseline is smaller, however much or little the head is worse; at the next size it is worth 0.5 to 1.
    baseline = 2 + 20 * X4[:sizes] ** -0.2
    for loss in (0.001, 0.02, 1):
        worse = seeded(baseline, [-loss, -0.02, *[0.02] * (sizes - 2)], sd=1e-5)
        first, second, *_ = worths(alike(X4[:sizes]), worse)
        assert (first.straight.value, first.straight.low, first.straight.high, first.lowest) == (0, 0, 0, 1)
        assert (first.fitted is None, first.best.value, first.word) == (sizes == 3, 0, "less")
        assert worth_text(first) == "less than 1.00 (beyond the smallest size)"
        assert 0.5 < second.best.low < second.best.high < 1
    # For 1.5 times the time it is worth less than 1 / 1.5; for half of the time less than 2, which may be more than 1.
    slow, fast = (worths(Axis(baseline=X4[:sizes], head=X4[:sizes] * cost), worse)[0] for cost in (1.5, 0.5))
    assert (worth_text(slow), slow.word) == ("less than 0.67 (beyond the smallest size)", "less")
    assert (worth_text(fast), fast.word) == ("less than 2.00 (beyond the smallest size)", "undecided")


def test_an_interval_ends_with_the_sizes():
    # seeds 1/4 better and 1/4 worse: on average equal, and the interval goes beyond both ends
    baseline, head = [dict.fromkeys((1, 2), loss) for loss in (3.0, 2.9, 2.8)], [{1: 2.75, 2: 3.25}, {1: 2.9, 2: 2.9}]
    pairs = means(baseline, [*head, {1: 2.8, 2: 2.8}])
    assert worth_text(worths(alike([1, 2, 4]), pairs)[0]) == "1.00 [below 1.00, above 4.00]"


def test_no_gain_is_worth_1_even_where_the_fit_misses_the_loss():
    baseline = 2 + 20 * X4**-0.2 + np.array([0.02, -0.02, 0.02, -0.02])
    for each in worths(alike(X4), single(baseline, baseline)):
        assert (each.straight.value, each.fitted.value) == (1, pytest.approx(1))


def test_a_power_law_is_fitted_from_four_sizes_on():
    baseline = 2 + 20 * X4**-0.2
    three, four = (worths(alike(X4[:n]), single(baseline[:n], baseline[:n] - 0.02)) for n in (3, 4))
    assert {each.fitted for each in three} == {None}
    assert [each.best for each in three] == [each.straight for each in three]
    for size, each in enumerate(four):
        above = baseline[size] - 2
        expected = (above / (above - 0.02)) ** 5 if size < 3 else ((above + 0.02) / above) ** 5
        assert each.best == each.fitted
        assert each.fitted.value == pytest.approx(expected, rel=1e-3)
        assert each.straight.value == pytest.approx(expected, rel=0.02)


def test_a_given_floor_moves_the_worth():
    baseline = 2 + 20 * X4**-0.2
    pairs = single(baseline, baseline - 0.02)
    for floor in (0, 2.3):
        alpha = fit(X4, baseline, floor=floor).alpha_R[0]
        expected = ((baseline[1] - floor) / (baseline[1] - 0.02 - floor)) ** (1 / alpha)
        assert worths(alike(X4), pairs, floor=floor)[1].fitted.value == pytest.approx(expected)
        assert expected != pytest.approx(worths(alike(X4), pairs)[1].fitted.value, rel=0.001)


def test_cost_divides_the_worth_with_its_interval():
    pairs = seeded(2 + 20 * X4**-0.2, [0.02] * 4)
    equal, slower = worths(alike(X4), pairs), worths(Axis(baseline=X4, head=1.5 * X4), pairs)
    for one, other in zip(equal, slower, strict=True):
        assert other.cost == pytest.approx(1.5)
        for name in ("straight", "fitted"):
            ours, theirs = getattr(one, name), getattr(other, name)
            expected = (theirs.low * 1.5, theirs.value * 1.5, theirs.high * 1.5)
            assert (ours.low, ours.value, ours.high) == pytest.approx(expected)


def test_the_word_is_one_that_both_curves_say():
    more, less, unclear = (Estimate(value=v, low=v - 0.1, high=v + 0.1) for v in (1.2, 0.8, 1.05))
    given = {"cost": 1.0, "lowest": 0.1, "highest": 10.0}
    for straight, fitted, expected in [
        (more, None, "more"),
        (less, None, "less"),
        (unclear, None, "undecided"),
        (more, more, "more"),
        (less, less, "less"),
        (more, unclear, "undecided"),
        (unclear, more, "undecided"),
        (more, less, "undecided"),
        (Estimate(value=2.0), None, "undecided"),
        (Estimate(value=math.inf, low=1.5, high=math.inf), None, "more"),
    ]:
        assert Worth(straight=straight, fitted=fitted, **given).word == expected


def test_without_a_baseline_that_falls_there_is_no_worth():
    for baseline in ([3, 3.1, 2.9], [3, 3, 2.9], [3, math.nan, 2.9]):
        assert worths(alike([1, 2, 4]), single(baseline, [2.9, 2.9, 2.8])) == (None,) * 3
    assert worths(alike([1, 2, 2]), single([3, 2.8, 2.6], [3, 2.8, 2.6])) == (None,) * 3  # one time twice
    assert worths(alike([1]), single([3], [2.9])) == (None,)
    found = shares(single([3, 3.1, 2.9], [2.9, 3.0, 2.8]))
    assert [each is None for each in found] == [True, False, True]


@pytest.mark.parametrize("seeds", [0, 1])
def test_with_a_size_without_two_shared_seeds_there_are_no_intervals(seeds):
    baseline = [{1: 3.0, 2: 3.01}, {1: 2.8, 2: 2.81}, {1: 2.6, 2: 2.62}, {1: 2.5, 2: 2.51}]
    head = [{1: 2.98, 2: 3.0}, {1: 2.79, 2: 2.8}, dict.fromkeys(range(1, 1 + seeds), 2.59), {1: 2.49, 2: 2.49}]
    pairs = means(baseline, head)
    found, parts = worths(alike(X4), pairs), shares(pairs)
    assert [each is None for each in found] == [False, False, not seeds, False]
    assert [each is None for each in parts] == [False, False, not seeds, True]
    for each in filter(None, found):
        assert (each.straight.low, each.fitted.low, each.word) == (None, None, "undecided")
    for each in filter(None, parts):
        assert (each.nats.low, each.perplexity.low) == (None, None)


def test_a_share_has_no_ends_if_the_step_is_not_shown():
    small, large = (seeded([3, 3 - step], [0.02, 0.02], sd=0.01) for step in (0.005, 0.2))
    assert shares(small)[0].nats.low is None
    assert shares(large)[0].nats.low < 0.1 < shares(large)[0].nats.high


def test_a_floor_above_a_loss_is_refused():
    with pytest.raises(ValueError, match="a floor below the lowest loss"):
        worths(alike(X4), single([3, 2.8, 2.6, 2.5], [3, 2.8, 2.6, 2.5]), floor=2.5)


def test_draws_below_a_given_floor_do_no_harm():
    # the noise is as large as the distance of the lowest loss from the floor
    for each in worths(alike(X4), seeded([3, 2.8, 2.6, 2.51], [0.02] * 4, sd=0.05), floor=2.45):
        assert each.fitted.low <= each.fitted.value <= each.fitted.high
