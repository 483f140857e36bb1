"""The fit of costs by context length: planted coefficients, no negative ones, and where the parts are equal."""

import numpy as np
import pytest
import rounding

from harness.benchmarks.quadratic import Quadratic, fitted
from harness.errors import ExecutionError

LENGTHS = (32, 64, 128, 256, 512, 1024, 2048)


def tolerances(values):
    """How far off rounding may leave each coefficient.

    A column T^i / y of the least squares has a size; of columns scaled to the size 1, the solution is off by at most
    n eps times the squared condition of the matrix.
    """
    columns = np.array([[float(T) ** power / y for power in range(3)] for T, y in zip(LENGTHS, values, strict=True)])
    sizes = np.linalg.norm(columns, axis=0)
    return rounding.bound(len(LENGTHS), np.linalg.cond(columns / sizes) ** 2) / sizes


@pytest.mark.parametrize("planted", [(3.0, 0.05, 2e-5), (0.0, 0.2, 1e-4), (1.5, 0.0, 3e-6), (2.0, 0.3, 0.0)])
def test_planted_coefficients_are_found(planted):
    values = [sum(c * T**power for power, c in enumerate(planted)) for T in LENGTHS]
    fit = fitted(LENGTHS, values)
    coefficients = (fit.constant, fit.linear, fit.quadratic)
    for found, expected, tolerance in zip(coefficients, planted, tolerances(values), strict=True):
        assert found == pytest.approx(expected, rel=0, abs=tolerance)
    assert fit.deviation == pytest.approx(0, abs=1e-9)
    assert fit.at(100) == pytest.approx(planted[0] + 100 * planted[1] + 10_000 * planted[2], rel=1e-9)


def test_the_parts_are_equal_at_c1_over_c2():
    fit = Quadratic(constant=7, linear=0.06, quadratic=0.0002, deviation=0)
    assert fit.crossing == pytest.approx(300)
    assert fit.linear * fit.crossing == pytest.approx(fit.quadratic * fit.crossing**2)
    assert Quadratic(constant=7, linear=1, quadratic=0, deviation=0).crossing is None


def test_no_coefficient_is_negative():
    """The square root bends the other way, so its best quadratic coefficient would be below 0."""
    fit = fitted(LENGTHS, [T**0.5 for T in LENGTHS])
    assert fit.quadratic == 0
    assert min(fit.constant, fit.linear) > 0
    assert fit.deviation > 0.1


def test_relative_differences_count_and_not_absolute_ones():
    """Values that fall with the length leave c0 alone: c1 = c2 = 0.

    The sum of (c0 / y - 1)^2 is least at sum(1 / y) / sum(1 / y^2) = (11 / 6) / (49 / 36) = 66 / 49; the
    mean 2 would be best for absolute differences.
    """
    fit = fitted((10, 11, 12), (3.0, 2.0, 1.0))
    assert (fit.linear, fit.quadratic) == (0, 0)
    assert fit.constant == pytest.approx(66 / 49, rel=1e-9)
    assert fit.deviation == pytest.approx(1 - 22 / 49)


@pytest.mark.parametrize(("lengths", "values"), [((8, 16, 16), (1, 2, 2)), ((8, 16, 32), (1, 0, 2))])
def test_what_cannot_be_fitted_is_an_error(lengths, values):
    with pytest.raises(ExecutionError, match="a quadratic fit needs"):
        fitted(lengths, values)
