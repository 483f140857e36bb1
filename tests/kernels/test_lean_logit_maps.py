"""The logit maps phi by their formulas."""

import math

import pytest
import torch

from harness.kernels.logit_maps import LOGIT_MAPS, Bend


def test_softmax_and_sigsoftmax_have_names():
    z = torch.tensor([-2.0, 0.0, 3.0], dtype=torch.float64)
    assert LOGIT_MAPS["identity"](z) is z
    # log(e^z sigmoid(z)) = 2 z - log(1 + e^z)
    expected = [2 * x - math.log1p(math.exp(x)) for x in z.tolist()]
    assert LOGIT_MAPS["sigsoftmax"](z).tolist() == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(("c", "k"), [(0.0, 2.0), (-1.5, 2.5), (2.0, 0.5), (1.0, 1.0)])
def test_a_bend_is_its_formula_far_below_c_too(c, k):
    # z - (k - 1) log(1 + e^(c - z)), with log(1 + e^x) = x + log(1 + e^-x); e^-25 is 1e-11
    for z in (c - 100.0, c - 25.0, c - 1.0, c, c + 1.0, c + 25.0):
        x = c - z
        expected = z - (k - 1) * (max(x, 0) + math.log1p(math.exp(-abs(x))))
        value = Bend(c=c, k=k)(torch.tensor(z, dtype=torch.float64)).item()
        assert value == pytest.approx(expected, rel=1e-15, abs=1e-14)


@pytest.mark.parametrize(("c", "k"), [(0.0, 2.0), (-1.5, 2.5), (2.0, 0.5)])
def test_its_slope_is_its_derivative(c, k):
    z = torch.linspace(-9, 9, 37, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(Bend(c=c, k=k)(z).sum(), z)
    torch.testing.assert_close(Bend(c=c, k=k).slope(z), slope, rtol=0, atol=1e-14)
