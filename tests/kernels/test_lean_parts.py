"""What the lean evaluation is made of: the logit maps by their formulas, which facets score which words, the matrix of
the products, blocks, chunks and sums, and the combination of rows where it is tight."""

import math

import pytest
import rounding
import torch
from handmade import SaysCuda

from harness.distributions import Mixture
from harness.kernels import chunked, rows
from harness.kernels.chunked import Buffers, Lean, Needs, tokens_per_chunk
from harness.kernels.mixture import (
    LOGIT_MAPS,
    Bend,
    HarmonicMap,
    LeanMap,
    SigmoidCap,
    SoftCap,
    StableMax,
    identity,
)
from harness.kernels.products import Products, using


def logistic(x):
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def softplus(x):
    """log(1 + e^x) = max(x, 0) + log(1 + e^-|x|): exact far below 0, too."""
    return max(x, 0) + math.log1p(math.exp(-abs(x)))


EVERY_MAP = [  # and its formula
    (Bend(c=-1.5, k=2.5), lambda z: z - 1.5 * softplus(-1.5 - z)),
    (Bend(c=2.0, k=0.5), lambda z: z + 0.5 * softplus(2 - z)),
    (SoftCap(0.5), lambda z: 0.5 * math.tanh(z / 0.5)),
    (SoftCap(30.0), lambda z: 30 * math.tanh(z / 30)),
    (SigmoidCap(a=23.0, b=5.0, c=7.5), lambda z: 23 * logistic((z + 5) / 7.5)),
    (SigmoidCap(a=2.0, b=-1.0, c=0.5), lambda z: 2 * logistic((z - 1) / 0.5)),
    # a power of what is left of 1, down to a unit of float32, from where it is flat
    (HarmonicMap(0.5), lambda z: -0.25 * math.log(max(1 - z, 2.0**-23))),
    (HarmonicMap(28.0), lambda z: -14 * math.log(max(1 - z, 2.0**-23))),
    (StableMax(), lambda z: math.copysign(math.log1p(abs(z)), z)),
]
POINTS = [-1e4, -100, -25, -7.5, -1.5, -0.5, -1e-9, -0.0, 0.0, 1e-8, 0.7, 1 - 2.0**-22, 1 - 2.0**-23, 1 - 2.0**-24]
POINTS += [1.0, 2.0, 5.0, 27.0, 90.0, 1e4]


@pytest.mark.parametrize(("phi", "formula"), EVERY_MAP, ids=[str(phi) for phi, _ in EVERY_MAP])
def test_a_map_is_its_formula_and_its_slope_the_derivative(phi, formula):
    z, values = torch.tensor(POINTS, dtype=torch.float64, requires_grad=True), [formula(x) for x in POINTS]
    slopes = torch.autograd.grad(phi(z).sum(), z)[0].tolist()
    sizes = zip(POINTS, values, strict=True)
    bounds = [rounding.bound(16, 31 + min(abs(x), 300) + abs(value)) for x, value in sizes]

    def assert_values(found):
        assert all(abs(a - b) < most for a, b, most in zip(found.tolist(), values, bounds, strict=True))

    def assert_slopes(found):
        assert found.tolist() == pytest.approx(slopes, rel=1e-9, abs=rounding.bound(8))

    assert isinstance(phi, LeanMap)
    assert_values(phi(z))
    assert_slopes(phi.slope(z.detach()))
    for beside in (torch.empty_like(z), None):  # in place, in units of ln 2
        block = phi.scale * (z.detach() + phi.offset)
        phi.map_(block, beside)
        assert_values(block * math.log(2))
        if beside is not None:
            assert_slopes(beside)


@pytest.mark.parametrize("broken", [0.0, -1.0, math.inf, math.nan])
def test_caps_need_finite_limits_above_0(broken):
    with pytest.raises(ValueError, match="softcap must be a finite number above 0"):
        SoftCap(broken)
    for a, b, c in ((broken, 5.0, 7.5), (23.0, 5.0, broken), (23.0, math.inf, 7.5), (23.0, -math.inf, 7.5)):
        with pytest.raises(ValueError, match="softcap: a and c must be finite numbers above 0, and b finite"):
            SigmoidCap(a=a, b=b, c=c)


@pytest.mark.parametrize("c", [30.0, 100.0])
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


N, V = 4, 11


def lean(width=5, *, partitions=(1,), precision="fp32", dtype=torch.float32, place=torch.Tensor):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator).to(dtype).as_subclass(place)

    return Lean(
        facets_NFE=normal(N, sum(partitions), width),
        log_prior_NK=normal(N, len(partitions)).log_softmax(-1) if len(partitions) > 1 else None,
        weight_VE=normal(V, width),
        bias_V=normal(V),
        targets_N=torch.tensor([0, 10, 3, 3]),
        partitions=partitions,
        logit_map=identity,
        products=Products(precision=precision),
    )


@pytest.mark.parametrize("width", [6, 7])
def test_a_rounded_matrix_holds_the_bias_in_two_columns(width):
    made = lean(width, precision="bf16")
    matrix = Buffers(made).matrix_VC
    assert matrix.shape == (V, 8 if width <= 6 else 16)
    assert torch.equal(matrix[:, :width], made.weight_VE.bfloat16())
    scaled_V = made.bias_V.double() / math.log(2)  # logits are in units of ln 2
    assert torch.equal(matrix[:, width], scaled_V.float().bfloat16())
    rest = scaled_V - matrix[:, width].double() - matrix[:, width + 1].double()
    assert (rest / scaled_V).abs().max() <= 2**-16  # two roundings of 2^-8 at most
    assert not matrix[:, width + 2 :].any()


@pytest.mark.parametrize(("place", "strides"), [(torch.Tensor, [11, 6, 5]), (SaysCuda, [16, 8, 8])])
def test_rows_of_logits_start_at_multiples_of_eight_on_a_gpu(place, strides):
    made = Buffers(lean(partitions=(1, 2), place=place))
    assert [block.stride() for block in made.blocks] == [(stride, stride, 1) for stride in strides]
    assert [block.shape[-1] for block in made.blocks] == [11, 6, 5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gpu_evaluates_to_the_same(dtype):
    (nll, found), (expected_nll, expected) = (
        lean(partitions=(1, 2), dtype=dtype, place=place).gradients(torch.ones(N), Needs(True, True, True, True))
        for place in (SaysCuda, torch.Tensor)
    )
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    for a, b in zip((nll, *found), (expected_nll, *expected), strict=True):
        torch.testing.assert_close(a.as_subclass(torch.Tensor), b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("dtype", "num_rows"), [(torch.float32, 25), (torch.bfloat16, 50)])
def test_a_chunk_on_a_gpu_is_what_stays_in_its_cache(monkeypatch, dtype, num_rows):
    monkeypatch.setattr(chunked, "CUDA_BYTES", 10_000)  # 25 rows of 100 floats
    monkeypatch.setattr(chunked, "LEAST_ROWS", 3)
    matrix_VC = torch.empty(100, 8, dtype=dtype).as_subclass(SaysCuda)
    assert [tokens_per_chunk(matrix_VC, [1] * k) for k in (1, 3, 1000)] == [num_rows, num_rows // 3, 1]


def test_a_gradient_does_not_depend_on_what_else_is_asked_for():
    made = lean(partitions=(1, 2))
    _, expected = made.gradients(torch.ones(N), Needs(True, True, True, True))
    for asked, gradient in enumerate(expected):
        _, found = made.gradients(torch.ones(N), Needs(*(number == asked for number in range(4))))
        torch.testing.assert_close(found[asked], gradient, rtol=1e-6, atol=1e-6)
        assert [each is None for each in found] == [number != asked for number in range(4)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_without_another_word_leaves_the_target_certain(dtype):
    blocks = [torch.full((2, 1, 1), -math.inf, dtype=dtype), torch.full((2, 1, 3), -math.inf, dtype=dtype)]
    target_nK = torch.tensor([[-7.0], [9.0]])
    found = rows.combine_rows_(blocks, [range(1), range(1, 2)], [0, 0], target_nK, None, None)
    assert found.nll.tolist() == [0.0, 0.0]
    assert found.share.tolist() == [[1.0], [1.0]]
    assert found.rest.tolist() == [[0.0], [0.0]]
    assert found.scale.tolist() == [[0.0, 0.0]] * 2
    assert all(torch.equal(block, torch.zeros_like(block)) for block in blocks)
