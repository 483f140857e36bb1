"""Means over shared seeds, and draws of them: the covariance, the ends of t intervals."""

import math

import numpy as np
import pytest
from scipy import stats

from harness.ladder.drawn_means import DRAWS, Estimate, deviations, means
from harness.report.statistics import paired


def test_the_means_are_over_shared_seeds_and_the_baseline_over_all_of_its_own():
    baseline = [{1: 3.0, 2: 3.1, 3: 3.5}, {1: 2.0, 2: math.nan}, {4: 1.0}]
    head = [{1: 2.9, 2: 2.8, 4: 9.0}, {1: 1.9, 2: 1.9}, {}]
    found = means(baseline, head)
    assert [list(map(lambda gain: round(gain, 9), each)) for each in found.gains] == [[0.1, 0.3], [0.1], []]
    assert (found.shared_K.tolist(), found.baseline_seeds_K.tolist()) == ([2, 1, 0], [3, 1, 1])
    assert found.baseline_K == pytest.approx([3.2, 2.0, 1.0])
    assert found.gain_K == pytest.approx([0.2, 0.1, math.nan], nan_ok=True)
    # one size has two shared seeds: of the baseline 3.0 and 3.1, of the gain 0.1 and 0.3
    assert found.covariance_K22[0] == pytest.approx(np.array([[0.005, 0.01], [0.01, 0.02]]))
    assert np.isnan(found.covariance_K22[1:]).all()
    assert not found.has_spread


def test_drawn_means_have_the_covariance_of_means():
    rng = np.random.default_rng(1)
    losses = rng.normal([[3.0], [2.5]], 0.01, (2, 6))
    baseline = [dict(enumerate(each)) for each in losses]  # six seeds, of which the head has four
    head = [dict(enumerate(each[:4] - 0.02 + rng.normal(0, 0.01, 4))) for each in losses]
    found = means(baseline, head)
    factor = stats.t.ppf(0.975, 3) / stats.norm.ppf(0.975)
    for size in range(2):
        drawn = [rows[1:, size] for rows in found.rows()]
        shared = [[losses[size][seed], losses[size][seed] - head[size][seed]] for seed in range(4)]
        expected = np.cov(np.transpose(shared)) * [[1 / 6, 1 / 6], [1 / 6, 1 / 4]] * factor**2
        assert np.cov(drawn) == pytest.approx(expected, rel=0.1)
    for rows, first in zip(found.rows(), (found.baseline_K, found.gain_K), strict=True):
        assert rows.shape == (1 + DRAWS, 2)
        assert rows[0].tolist() == first.tolist()


@pytest.mark.parametrize("seeds", [2, 3, 4, 6])
def test_the_interval_of_a_drawn_gain_is_that_of_the_paired_test(seeds):
    noise = np.random.default_rng(seeds).normal(0, 0.01, (2, 4, seeds))
    found = means(*[[dict(enumerate(size)) for size in 3 + row] for row in noise])
    for size, of_size in enumerate(found.gains):
        expected, drawn = paired(of_size), Estimate.of(found.rows()[1][:, size])
        assert drawn.value == pytest.approx(expected.mean)
        width = expected.high - expected.low
        assert [drawn.low, drawn.high] == pytest.approx([expected.low, expected.high], abs=0.03 * width)


def test_draws_give_the_interval_of_a_sum_of_means():
    rng, drawn = np.random.default_rng(1), deviations(2, 4)
    for weights in [*np.eye(8), *rng.normal(size=(8, 8))]:
        weights = weights / np.linalg.norm(weights)
        found = Estimate.of(np.einsum("vrk,vk->r", drawn, weights.reshape(2, 4)))
        assert (found.value, found.low) == (0, pytest.approx(-found.high))
        assert [found.low, found.high] == pytest.approx([-1.96, 1.96], rel=0.06)


def test_the_draws_are_the_same_at_each_call():
    first = deviations(2, 3).copy()
    deviations.cache_clear()
    assert (deviations(2, 3) == first).all()


@pytest.mark.parametrize("seeds", [0, 1])
def test_with_a_size_without_two_shared_seeds_nothing_is_drawn(seeds):
    found = means([{1: 3.0, 2: 3.1}, {1: 2.0, 2: 2.1}], [{1: 2.9, 2: 3.0}, dict.fromkeys(range(1, 1 + seeds), 1.9)])
    assert [rows.shape for rows in found.rows()] == [(1, 2), (1, 2)]
    assert Estimate.of(found.rows()[1][:, 0]) == Estimate(value=pytest.approx(0.1))


def test_equal_losses_of_all_seeds_are_drawn_without_a_spread():
    losses = [{1: 3.0, 2: 3.0}, {1: 2.0, 2: 2.0}]
    losses_RK, gains_RK = means(losses, losses).rows()
    assert (losses_RK == [3.0, 2.0]).all()
    assert (gains_RK == 0).all()
