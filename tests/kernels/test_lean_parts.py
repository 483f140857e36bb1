"""What the lean evaluation is made of: the logit maps by their formulas, which facets score which words, the matrix of
the products, blocks, chunks and sums, and the combination of rows where it is tight."""

import itertools
import math
from dataclasses import replace

import pytest
import rounding
import torch
from handmade import SaysCuda
from torch.utils._python_dispatch import TorchDispatchMode

from harness.distributions import Mixture
from harness.kernels import chunked, rows
from harness.kernels.chunked import Buffers, Lean, Needs, Sums, tokens_per_chunk
from harness.kernels.mixture import (
    LOGIT_MAPS,
    Bend,
    HarmonicMap,
    Layout,
    LeanMap,
    SigmoidCap,
    Slice,
    SoftCap,
    StableMax,
    identity,
)
from harness.kernels.products import Products, using


def logistic(x):
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def bend(c, k):
    # log(1 + e^x) = max(x, 0) + log(1 + e^-|x|): exact far below c, too
    softplus = lambda x: max(x, 0) + math.log1p(math.exp(-abs(x)))  # noqa: E731
    return Bend(c=c, k=k), lambda z: z - (k - 1) * softplus(c - z), lambda z: 1 + (k - 1) * logistic(c - z)


def soft_cap(c):
    return SoftCap(c), lambda z: c * math.tanh(z / c), lambda z: 1 / math.cosh(min(abs(z) / c, 300)) ** 2


def sigmoid_cap(a, b, c):
    share = lambda z: logistic((z + b) / c)  # noqa: E731
    return SigmoidCap(a=a, b=b, c=c), lambda z: a * share(z), lambda z: a * share(z) * (1 - share(z)) / c


def harmonic(n):
    """A power of what is left of 1, down to a unit of float32, from where it is flat."""
    left = lambda z: max(1 - z, 2.0**-23)  # noqa: E731
    return HarmonicMap(n), lambda z: -n / 2 * math.log(left(z)), lambda z: n / 2 / left(z) * (1 - z >= 2.0**-23)


STABLE = StableMax(), lambda z: math.copysign(math.log1p(abs(z)), z), lambda z: 1 / (1 + abs(z))
EVERY_MAP = [
    *itertools.starmap(bend, [(0.0, 2.0), (-1.5, 2.5), (2.0, 0.5), (1.0, 1.0)]),
    *map(soft_cap, (0.5, 3.0, 30.0)),
    *itertools.starmap(sigmoid_cap, [(23.0, 5.0, 7.5), (2.0, -1.0, 0.5)]),
    *map(harmonic, (0.5, 3.0, 28.0)),
    STABLE,
]
POINTS = [-1e4, -100, -25, -7.5, -1.5, -0.5, -1e-9, -0.0, 0.0, 1e-8, 0.7, 1 - 2.0**-22, 1 - 2.0**-23, 1 - 2.0**-24]
POINTS += [1.0, 2.0, 5.0, 27.0, 90.0, 1e4]


@pytest.mark.parametrize(("phi", "formula", "slope"), EVERY_MAP, ids=[str(phi) for phi, *_ in EVERY_MAP])
def test_a_map_is_its_formula_and_its_slope_the_derivative(phi, formula, slope):
    z = torch.tensor(POINTS, dtype=torch.float64, requires_grad=True)
    values, slopes = [formula(x) for x in POINTS], [slope(x) for x in POINTS]
    sizes = zip(POINTS, values, strict=True)
    bounds = [rounding.bound(16, 31 + min(abs(x), 300) + abs(value)) for x, value in sizes]

    def assert_values(found):
        assert all(abs(a - b) < most for a, b, most in zip(found.tolist(), values, bounds, strict=True))

    def assert_slopes(found):
        assert found.tolist() == pytest.approx(slopes, rel=1e-9, abs=rounding.bound(8))

    assert isinstance(phi, LeanMap)
    assert_values(phi(z))
    assert_slopes(phi.slope(z.detach()))
    assert_slopes(torch.autograd.grad(phi(z).sum(), z)[0])
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


N, V = 4, 11
SIGMOID = Bend(c=0.0, k=2.0)


def lean(
    width=5, *, partitions=(1,), bias=True, precision="fp32", dtype=torch.float32, place=torch.Tensor, phi=identity
):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator).to(dtype).as_subclass(place)

    return Lean(
        facets_NFE=normal(N, sum(partitions), width),
        log_prior_NK=normal(N, len(partitions)).log_softmax(-1) if len(partitions) > 1 else None,
        weight_VE=normal(V, width),
        bias_V=normal(V) if bias else None,
        targets_N=torch.tensor([0, 10, 3, 3]),
        partitions=partitions,
        logit_map=phi,
        products=Products(precision=precision),
    )


@pytest.mark.parametrize(
    ("partitions", "plain", "slices"),
    [
        ((1,), True, [Slice(0, 1)]),
        ((1, 1, 1), True, [Slice(0, 3)]),
        ((2,), False, [Slice(0, 1, 0, 2), Slice(1, 2, 1, 2)]),
        ((1, 2), False, [Slice(0, 1), Slice(1, 2, 0, 2), Slice(2, 3, 1, 2)]),
        ((2, 1, 1), False, [Slice(0, 1, 0, 2), Slice(1, 2, 1, 2), Slice(2, 4)]),
        ((1, 1, 2, 1), False, [Slice(0, 2), Slice(2, 3, 0, 2), Slice(3, 4, 1, 2), Slice(4, 5)]),
    ],
)
def test_neighbours_of_one_facet_share_a_slice_and_a_layout_without_partitions_is_plain(partitions, plain, slices):
    assert Layout(partitions).slices == slices
    assert Layout(partitions).plain == plain


def test_owners_are_the_facets_that_score_the_target_and_where_it_is():
    # components of facets 0, 1 to 3 and 4 to 5: target 7 belongs to 7 mod 3 = 1 and 7 mod 2 = 1
    owners = Layout((1, 3, 2)).owners(torch.tensor([0, 7, 5]))
    assert owners.tolist() == [[0, 1, 4], [0, 2, 5], [0, 3, 5]]
    assert Layout((1, 3)).owners(torch.tensor([0, 7], device="meta")).device.type == "meta"


@pytest.mark.parametrize("width", [5, 6, 7, 8])
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


def test_in_its_own_type_the_matrix_is_w_itself_and_the_offset_b_or_nothing():
    made = lean()
    assert Buffers(made).matrix_VC is made.weight_VE
    assert Buffers(made).offset_V is made.bias_V
    assert Buffers(lean(bias=False)).offset_V is None
    assert Buffers(lean(bias=False, phi=SIGMOID)).offset_V is None


@pytest.mark.parametrize(("most", "tokens"), [(1, 1), (2, 2), (N - 1, math.ceil(N / 2)), (N, N), (10**6, N)])
def test_chunks_are_as_few_as_may_be_and_about_equally_large(most, tokens):
    assert Buffers(replace(lean(), at_once=most)).tokens == tokens
    assert Buffers(lean()).tokens == N


def test_only_a_bend_has_a_buffer_of_slopes():
    assert not Buffers(lean()).slopes
    assert len(Buffers(lean(phi=SIGMOID)).slopes) == 1


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


@pytest.mark.parametrize(
    ("weight", "bias", "columns"), [(True, True, 8), (True, False, 5), (False, True, 3), (False, False, None)]
)
def test_sums_are_as_wide_as_what_is_asked_for(weight, bias, columns):
    made = lean(dtype=torch.bfloat16)
    sums = Sums(made, Buffers(made), Needs(False, False, weight, bias))
    assert (sums.matrix is None) == (columns is None)
    if columns is not None:
        assert sums.matrix.shape == (V, columns)
        assert sums.matrix.dtype == torch.float32


@pytest.mark.parametrize("asked", [Needs(*(i == j for j in range(4))) for i in range(4)])
def test_a_gradient_does_not_depend_on_what_else_is_asked_for(asked):
    made = lean(partitions=(1, 2))
    _, found = made.gradients(torch.ones(N), asked)
    _, expected = made.gradients(torch.ones(N), Needs(True, True, True, True))
    for wanted, a, b in zip(asked, found, expected, strict=True):
        assert (a is not None) == wanted
        if wanted:
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_blocks_may_come_in_any_order():
    generator, facets = torch.Generator().manual_seed(0), [range(2), range(2, 3), range(3, 4)]
    blocks = [torch.randn(5, len(f), size, generator=generator) for f, size in zip(facets, (7, 4, 3), strict=True)]
    target_nK, prior_nK = torch.randn(5, 3, generator=generator), torch.randn(5, 3, generator=generator)
    given = [0, 1, 2, 2], target_nK, prior_nK.log_softmax(-1), 0.03
    found = [
        rows.combine_rows_([blocks[i].clone() for i in order], [facets[i] for i in order], *given)
        for order in ((0, 1, 2), (1, 0, 2), (2, 1, 0))
    ]
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


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


def test_a_sure_target_leaves_a_rest_of_full_precision():
    # 4 words of e^-30 beside a target of e^0: the rest is 4 e^-30 / (1 + 4 e^-30), where 1 - p would be 0 in float32
    block = torch.full((1, 1, 4), -30 / math.log(2))
    found = rows.combine_rows_([block], [range(1)], [0], torch.zeros(1, 1), None, None)
    assert found.rest.item() == pytest.approx(4 * math.exp(-30), rel=1e-5, abs=0)


class Summed(TorchDispatchMode):
    """The numbers of tokens that sums are taken of."""

    def __init__(self):
        super().__init__()
        self.tokens = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ == "sum":
            self.tokens.append(len(args[0]))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("shape", "cached", "dtype", "place", "pieces"),
    [
        ((8, 2, 5), 30, torch.bfloat16, torch.Tensor, [3, 3, 2]),  # 10 numbers a token
        ((8, 2, 5), 9, torch.bfloat16, torch.Tensor, [1] * 8),
        ((1, 1, 300), 1, torch.bfloat16, torch.Tensor, [1]),
        ((8, 2, 5), 30, torch.float32, torch.Tensor, [8]),
        ((8, 2, 5), 30, torch.bfloat16, SaysCuda, [8]),
    ],
)
def test_the_cpu_widens_what_it_sums_by_pieces(monkeypatch, shape, cached, dtype, place, pieces):
    monkeypatch.setattr(rows, "CACHED", cached)
    block = torch.randint(9, shape, generator=torch.Generator().manual_seed(0))
    with Summed() as summed:
        _, found = rows.exponentiate_(block.to(dtype).as_subclass(place), torch.float32)
    assert found.dtype == torch.float32
    expected = (2.0 ** (block - block.amax(-1, keepdim=True))).sum(-1).log()
    torch.testing.assert_close(found.as_subclass(torch.Tensor), expected, rtol=0, atol=1e-6)
    assert summed.tokens == pieces
