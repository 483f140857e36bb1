"""Means over shared seeds, and draws of them: the covariance by hand, the ends of t intervals."""

import math

import numpy as np
import pytest
from scipy import stats

from harness.ladder.drawn_means import DRAWS, Estimate, deviations, means


def test_the_means_are_over_shared_seeds_and_the_baseline_over_all_of_its_own():
    baseline = [{1: 3.0, 2: 3.1, 3: 3.5}, {1: 2.0, 2: math.nan}, {4: 1.0}]
    head = [{1: 2.9, 2: 2.8, 4: 9.0}, {1: 1.9, 2: 1.9}, {}]
    found = means(baseline, head)
    assert [list(map(lambda gain: round(gain, 9), each)) for each in found.gains] == [[0.1, 0.3], [0.1], []]
    assert (found.shared_K.tolist(), found.baseline_seeds_K.tolist()) == ([2, 1, 0], [3, 1, 1])
    assert found.baseline_K == pytest.approx([3.2, 2.0, 1.0])
    assert found.gain_K == pytest.approx([0.2, 0.1, math.nan], nan_ok=True)
    # one size has two seeds: of the baseline 3.0 and 3.1, of the gain 0.1 and 0.3
    assert found.df == 1
    assert found.covariance == pytest.approx(np.array([[0.005, 0.01], [0.01, 0.02]]))


def test_the_spread_is_pooled_over_sizes():
    baseline = [{1: 3.0, 2: 3.0, 3: 3.0}, {1: 2.0, 2: 2.0}]
    head = [{1: 2.9, 2: 2.8, 3: 2.7}, {1: 1.9, 2: 1.7}]
    found = means(baseline, head)  # squares 0.01 + 0 + 0.01 and 0.01 + 0.01, with 2 + 1 degrees of freedom
    assert (found.df, found.sd) == (3, pytest.approx(math.sqrt(0.04 / 3)))


def test_drawn_means_have_the_covariance_of_means():
    rng = np.random.default_rng(1)
    losses = rng.normal([[3.0], [2.5]], 0.01, (2, 6))
    baseline = [dict(enumerate(each)) for each in losses]  # six seeds, of which the head has four
    head = [dict(enumerate(each[:4] - 0.02 + rng.normal(0, 0.01, 4))) for each in losses]
    found = means(baseline, head)
    factor = stats.t.ppf(0.975, found.df) / stats.norm.ppf(0.975)
    for size in range(2):
        drawn = [rows[1:, size] for rows in found.rows()]
        expected = found.covariance * [[1 / 6, 1 / 6], [1 / 6, 1 / 4]] * factor**2
        assert np.cov(drawn) == pytest.approx(expected, rel=0.1)
    for rows, first in zip(found.rows(), (found.baseline_K, found.gain_K), strict=True):
        assert rows.shape == (1 + DRAWS, 2)
        assert rows[0].tolist() == first.tolist()


@pytest.mark.parametrize("df", [2, 3, 9, 20])
def test_draws_give_the_t_interval_of_a_sum_of_means(df):
    rng, drawn = np.random.default_rng(df), deviations(2, 4, df)
    for weights in [*np.eye(8), *rng.normal(size=(8, 8))]:
        weights = weights / np.linalg.norm(weights)
        found = Estimate.of(np.einsum("vrk,vk->r", drawn, weights.reshape(2, 4)))
        assert found.value == 0
        assert [found.low, found.high] == pytest.approx(stats.t.interval(0.95, df), rel=0.06)


def test_the_draws_are_the_same_at_each_call():
    first = deviations(2, 3, 5).copy()
    deviations.cache_clear()
    assert (deviations(2, 3, 5) == first).all()


def test_without_two_seeds_nothing_is_drawn():
    found = means([{1: 3.0}, {1: 2.0}], [{1: 2.9}, {1: 1.9}])
    assert (found.df, found.sd, found.covariance) == (0, None, None)
    assert [rows.shape for rows in found.rows()] == [(1, 2), (1, 2)]
    assert Estimate.of(found.rows()[1][:, 0]) == Estimate(value=pytest.approx(0.1))
