"""The curve of a row: printed fits, scipy's least squares, lines by hand, and what is beyond the ends."""

import math

import numpy as np
import pytest
from scipy import optimize

from harness.ladder.curve import FIT_SIZES, PowerLaw, Straight, curve, fit

# Three sizes of github.com/marin-community/marin, issue 5619: training FLOPs, and the loss in nats.
FLOPS = np.array([2.19e17, 1.70e18, 9.00e18])
LOSSES = np.array([3.7404, 3.3834, 3.1230])
LARGER = 2.83e19


def single(losses) -> list[dict[int, float]]:
    return [{1: loss} for loss in losses]


def test_the_printed_fit_with_a_floor():
    law = fit(FLOPS, LOSSES, floor=1.6)
    residuals = LOSSES - np.array([law.at(x)[0] for x in FLOPS])
    r2 = 1 - (residuals**2).sum() / ((LOSSES - LOSSES.mean()) ** 2).sum()
    assert (law.floor_R[0], round(law.alpha_R[0], 4)) == (1.6, 0.0912)
    assert law.scale_R[0] == pytest.approx(81.68, abs=0.005)
    assert residuals == pytest.approx([-0.0022, 0.0060, -0.0038], abs=5e-5)
    assert (round(r2, 4), round(law.at(LARGER)[0], 3)) == (0.9997, 2.975)


def test_the_printed_fit_with_a_free_floor():
    # three losses and three parameters: the curve goes through all of them
    law = fit(FLOPS, LOSSES)
    assert [round(float(each), 4) for each in law.alpha_R] == [0.0584]
    assert [round(float(each), 3) for each in law.floor_R] == [0.578]
    assert law.scale_R[0] == pytest.approx(32.63, abs=0.005)
    assert law.at(LARGER)[0] == pytest.approx(2.958, abs=5e-4)
    for x, loss in zip(FLOPS, LOSSES, strict=True):
        assert law.at(x)[0] == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize("draw", range(12))
def test_the_fit_is_that_of_scipy(draw):
    # the floors that are fitted without bounds are below 0 in some of these ladders
    rng = np.random.default_rng(draw)
    x = 1e6 * np.cumprod(rng.uniform(1.5, 5, rng.integers(FIT_SIZES, 7)))
    floor, alpha, first = rng.uniform(0, 3), rng.uniform(0.05, 0.5), rng.uniform(1.5, 6)
    losses = floor + first * (x / x[0]) ** -alpha + rng.normal(0, 0.003, len(x))

    def residuals(at):
        return at[0] + at[1] * (x / x[0]) ** -at[2] - losses

    lowest = losses.min()
    bounds, tolerance = ([0, 0, 1e-3], [lowest, 20, 5]), dict.fromkeys(("xtol", "ftol", "gtol"), 1e-14)
    starts = [[0.6 * lowest, losses[0] - 0.6 * lowest, start] for start in (0.02, 0.05, 0.1, 0.3, 1)]
    found = [optimize.least_squares(residuals, start, bounds=bounds, **tolerance).cost for start in starts]
    law = fit(x, losses)
    ours = sum((law.at(each)[0] - loss) ** 2 for each, loss in zip(x, losses, strict=True))
    assert 0 <= law.floor_R[0] < lowest
    assert ours <= 2 * min(found) * 1.01


def test_many_ladders_are_fitted_as_one_by_one():
    rng = np.random.default_rng(0)
    x = 1e6 * 3.0 ** np.arange(4)
    many = 2 + 20 * x**-0.2 + rng.normal(0, 0.01, (50, 4))
    for floor in (None, 1.0):
        together, alone = fit(x, many, floor=floor), [fit(x, each, floor=floor) for each in many]
        assert together.alpha_R == pytest.approx([each.alpha_R[0] for each in alone])
        assert together.floor_R == pytest.approx([each.floor_R[0] for each in alone])
        assert together.scale_R == pytest.approx([each.scale_R[0] for each in alone])


def test_the_distance_on_a_power_law_by_hand():
    # (3 - 2) / (3 - 0.5 - 2) = 2, and 2^(1 / 0.5) = 4 times the size; upwards (3 - 2) / (4 - 2) = 1 / 2
    law = PowerLaw(floor_R=np.array([2.0]), scale_R=np.array([7.0]), alpha_R=np.array([0.5]))
    loss = np.array([3.0])
    assert np.exp(law.distance(0, loss, np.array([0.5]))) == pytest.approx([4])
    assert np.exp(law.distance(0, loss, np.array([-1.0]))) == pytest.approx([1 / 4])
    assert law.distance(0, loss, np.array([0.0])) == pytest.approx([0])
    assert law.distance(0, loss, np.array([1.0])) == [math.inf]  # the floor itself


def test_lines_between_neighbours_by_hand():
    # half of the way in log x from 1 to 4 is 2, and in log loss from 4 to 1 is 2; from 4 to 64 and 1 to 1/4: 16 and 1/2
    line = Straight(x_K=np.array([1.0, 4.0, 64.0]), losses_RK=np.array([[4, 1, 0.25]]))
    assert [line.at(x)[0] for x in (1, 2, 4, 16, 64)] == pytest.approx([4, 2, 1, 0.5, 0.25])
    assert np.exp(line.distance(0, np.array([4.0]), np.array([2.0]))) == pytest.approx([2])
    assert np.exp(line.distance(0, np.array([4.0]), np.array([3.5]))) == pytest.approx([16])
    assert np.exp(line.distance(1, np.array([1.0]), np.array([-1.0]))) == pytest.approx([1 / 2])
    assert line.distance(2, np.array([0.25]), np.array([0.01])) == [math.inf]
    assert line.distance(0, np.array([4.0]), np.array([-0.01])) == [-math.inf]
    assert line.distance(1, np.array([1.0]), np.array([0.0])) == [0]


def test_of_a_curve_that_rises_again_the_first_point_counts():
    # from (1, 4) to (4, 1), up to (16, 4) and down again: 2 is first reached at x = 2
    line = Straight(x_K=np.array([1.0, 4.0, 16.0, 64.0]), losses_RK=np.array([[4, 1, 4, 1]]))
    assert np.exp(line.distance(0, np.array([4.0]), np.array([2.0]))) == pytest.approx([2])
    assert np.exp(line.distance(3, np.array([1.0]), np.array([-1.0]))) == pytest.approx([1 / 2])


def test_two_and_three_sizes_are_joined_by_lines_and_four_are_fitted():
    x, losses = [1, 4, 64, 256], [4, 1, 0.25, 0.2]
    for sizes in (2, 3):
        found = curve(x[:sizes], single(losses[:sizes]))
        assert isinstance(found.law, Straight)
        assert found.loss_at(2).value == pytest.approx(2)
    assert isinstance(curve(x, single(losses)).law, PowerLaw)


def test_nothing_is_read_beyond_the_ends():
    x = 1e6 * 2.0 ** np.arange(4)
    for sizes in (3, 4):
        found = curve(x[:sizes], single((2 + 20 * x**-0.2)[:sizes]))
        assert (found.loss_at(x[0] / 1.01), found.loss_at(x[sizes - 1] * 1.01)) == (None, None)
        assert found.loss_at(x[1]).low is None  # one seed


def test_the_band_of_lines_is_the_t_interval_at_each_size():
    # sd 0.1 with 2 degrees of freedom, and 0.05 sqrt(2) with 1; failed trials are left out
    x, losses = [1, 2], [{1: 3.1, 2: 3.0, 3: 3.2}, {1: 2.5, 2: 2.6, 3: math.nan}]
    found = curve(x, losses)
    for size, mean, reach in ((1, 3.1, 4.30265 * 0.1 / math.sqrt(3)), (2, 2.55, 12.7062 * 0.05)):
        band = found.loss_at(size)
        assert band.value == pytest.approx(mean)
        assert (band.high - band.low) / 2 == pytest.approx(reach, rel=0.06)
    assert curve(x, [losses[0], {1: 2.5}]).loss_at(1).low is None


@pytest.mark.parametrize(
    ("x", "losses", "message"),
    [
        ([1], [3.0], "two sizes or more"),
        ([1, 2], [3.0, math.nan], "each with a loss"),
        ([2, 1], [3.0, 2.0], "an axis that grows"),
        ([0, 1], [3.0, 2.0], "an axis that grows"),
    ],
)
def test_what_is_no_curve_is_refused(x, losses, message):
    with pytest.raises(ValueError, match=message):
        curve(x, single(losses))
