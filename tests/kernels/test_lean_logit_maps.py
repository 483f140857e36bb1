"""The logit maps phi by their formulas."""

import math

import pytest
import rounding
import torch

from harness.distributions import Mixture
from harness.kernels import rows
from harness.kernels.mixture import LOGIT_MAPS, Bend, HarmonicMap, SigmoidCap, SoftCap
from harness.kernels.products import Products, using


@pytest.mark.parametrize(("c", "k"), [(0.0, 2.0), (-1.5, 2.5), (2.0, 0.5), (1.0, 1.0)])
def test_a_bend_is_its_formula_far_below_c_too_and_its_slope_the_derivative(c, k):
    # z - (k - 1) log(1 + e^(c - z)), with log(1 + e^x) = x + log(1 + e^-x); e^-25 is 1e-11, of which
    # half must show: rounding is at most 5e-13 there
    for z in (c - 100.0, c - 25.0, c - 1.0, c, c + 1.0, c + 25.0):
        x = c - z
        expected = z - (k - 1) * (max(x, 0) + math.log1p(math.exp(-abs(x))))
        value = Bend(c=c, k=k)(torch.tensor(z, dtype=torch.float64)).item()
        assert value == pytest.approx(expected, rel=0, abs=rounding.bound(4, abs(z) + abs(k - 1) * (abs(x) + 1)))
    z = torch.linspace(-9, 9, 37, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(Bend(c=c, k=k)(z).sum(), z)
    torch.testing.assert_close(Bend(c=c, k=k).slope(z), slope, rtol=0, atol=rounding.bound(4, max(k, 1)))


@pytest.mark.parametrize("c", [0.5, 3.0, 30.0])
def test_a_soft_cap_is_its_formula_and_its_slope_the_derivative(c):
    z = torch.tensor([-1e4, -40.0, -c, -0.1, 0.0, 1e-8, 0.7, c, 90.0], dtype=torch.float64)
    expected = [c * math.tanh(x / c) for x in z.tolist()]
    assert SoftCap(c)(z).tolist() == pytest.approx(expected, rel=rounding.bound(4), abs=0)
    slopes = [1 / math.cosh(min(abs(x) / c, 300)) ** 2 for x in z.tolist()]
    assert SoftCap(c).slope(z).tolist() == pytest.approx(slopes, rel=1e-9, abs=rounding.bound(4))


@pytest.mark.parametrize(("a", "b", "c"), [(23.0, 5.0, 7.5), (2.0, -1.0, 0.5)])
def test_a_sigmoid_cap_is_its_formula_and_its_slope_the_derivative(a, b, c):
    z = torch.tensor([-300.0, -40.0, -b, -0.1, 0.0, 0.7, c, 90.0], dtype=torch.float64)
    cap, shares = SigmoidCap(a=a, b=b, c=c), [1 / (1 + math.exp(-(x + b) / c)) for x in z.tolist()]
    assert cap(z).tolist() == pytest.approx([a * share for share in shares], rel=rounding.bound(4, 600), abs=0)
    slopes = [a * share * (1 - share) / c for share in shares]
    assert cap.slope(z).tolist() == pytest.approx(slopes, rel=1e-9, abs=rounding.bound(4, a / c))


@pytest.mark.parametrize("n", [0.5, 3.0, 28.0])
def test_a_harmonic_map_is_a_power_of_what_is_left_of_1_down_to_a_unit_of_float32(n):
    z = torch.tensor([-1e6, -3.0, 0.0, 0.5, 1 - 2.0**-22, 1 - 2.0**-23, 1 - 2.0**-24, 1.0, 5.0], dtype=torch.float64)
    squares = [max(1 - x, 2.0**-23) for x in z.tolist()]
    expected = [math.log(square ** (-n / 2)) for square in squares]
    assert HarmonicMap(n)(z).tolist() == pytest.approx(expected, rel=rounding.bound(4), abs=rounding.bound(4))
    slopes = [n / 2 / square for square in squares[:6]] + [0.0, 0.0, 0.0]
    assert HarmonicMap(n).slope(z).tolist() == pytest.approx(slopes, rel=rounding.bound(4), abs=0)
    block, beside = 1 - z, torch.empty_like(z)
    HarmonicMap(n).map_(block, beside)
    assert (block * math.log(2)).tolist() == pytest.approx(expected, rel=rounding.bound(8), abs=rounding.bound(8))
    assert beside.tolist() == pytest.approx(slopes, rel=rounding.bound(4), abs=0)


BROKEN_CAPS = [(0.0, 5.0, 7.5), (-1.0, 5.0, 7.5), (math.inf, 5.0, 7.5), (23.0, math.inf, 7.5), (23.0, -math.inf, 7.5)]


@pytest.mark.parametrize(("a", "b", "c"), [*BROKEN_CAPS, (23.0, 5.0, 0.0), (23.0, 5.0, -7.5), (23.0, 5.0, math.inf)])
def test_a_sigmoid_cap_needs_finite_numbers_a_positive_limit_and_width(a, b, c):
    with pytest.raises(ValueError, match="softcap: a and c must be finite numbers above 0, and b finite"):
        SigmoidCap(a=a, b=b, c=c)


MAPS = [Bend(c=0.5, k=1.5), SoftCap(3.0), SigmoidCap(a=3.0, b=0.5, c=1.5)]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("phi", MAPS, ids=str)
@pytest.mark.parametrize("partitions", [(1, 1), (2, 1)], ids=str)
def test_a_few_tokens_at_a_time_give_what_all_at_once_give(partitions, phi, precision, monkeypatch):
    N, V, E = 11, 10, 4
    generator = torch.Generator().manual_seed(0)
    facets, weight = (torch.randn(size, generator=generator) for size in ((1, N, sum(partitions), E), (V, E)))
    prior = torch.randn(1, N, len(partitions), generator=generator).log_softmax(-1)
    targets = torch.randint(V, (1, N), generator=generator)

    def evaluated():
        inputs = [each.clone().requires_grad_() for each in (facets, prior, weight)]
        mixture = Mixture(*inputs, partitions=partitions, logit_map=phi)
        with using(Products(precision=precision)):
            nll_BT = mixture.nll(targets)
            with torch.no_grad():
                alone_BT = mixture.nll(targets)
            return nll_BT.detach(), alone_BT, *torch.autograd.grad((nll_BT * torch.arange(N)).sum(), inputs)

    whole = evaluated()
    monkeypatch.setattr(rows, "CACHED", 3 * V * 2)  # 3 tokens of two rows: pieces of 3, 3, 3 and 2
    for few, all_at_once in zip(evaluated(), whole, strict=True):
        torch.testing.assert_close(few, all_at_once, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("c", [30.0, 50.0, 100.0])
def test_a_soft_cap_of_bfloat16_products_is_as_exact_as_no_cap(c):
    # logits of sd 4 in bfloat16 have errors of about 4 * 2^-9 = 0.008. A map whose result is rounded about a level of c
    # has errors up to c * 2^-8 = 0.2.
    generator = torch.Generator().manual_seed(5)
    facets, weight = (torch.randn(*shape, generator=generator) for shape in ((1, 400, 1, 16), (500, 16)))
    targets = torch.randint(500, (1, 400), generator=generator)

    def loss_and_gradient(logit_map, dtype, precision):
        matrix = weight.to(dtype).requires_grad_()
        with using(Products(precision)):
            loss = Mixture(facets.to(dtype), None, matrix, logit_map=logit_map).mean_nll(targets)
        (gradient,) = torch.autograd.grad(loss, matrix)
        return loss.item(), gradient.double()

    def errors(logit_map):
        loss, gradient = loss_and_gradient(logit_map, torch.float32, "bf16")
        exact, expected = loss_and_gradient(logit_map, torch.float64, "fp32")
        return abs(loss - exact), ((gradient - expected).norm() / expected.norm()).item()

    (loss, gradient), (_, plain) = errors(SoftCap(c)), errors(LOGIT_MAPS["identity"])
    assert loss < 1e-3
    assert gradient < plain


@pytest.mark.parametrize("c", [0.0, -1.0, math.inf, math.nan])
def test_a_soft_cap_needs_a_finite_positive_bound(c):
    with pytest.raises(ValueError, match="softcap must be a finite number above 0"):
        SoftCap(c)
