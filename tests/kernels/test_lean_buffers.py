"""Which facets score which words, by hand, and what the lean evaluation allocates: the matrix of the products, the rows
that it meets, blocks, chunks and sums.
"""

import pytest
import torch
from handmade import SaysCuda

from harness.kernels import chunked
from harness.kernels.chunked import Buffers, Lean, Needs, Sums, tokens_per_chunk
from harness.kernels.mixture import Bend, Layout, Slice, identity
from harness.kernels.products import Products

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
    assert torch.equal(matrix[:, width], made.bias_V.bfloat16())
    rest = made.bias_V.double() - matrix[:, width].double() - matrix[:, width + 1].double()
    assert (rest / made.bias_V).abs().max() <= 2**-16  # two roundings of 2^-8 at most
    assert not matrix[:, width + 2 :].any()


def test_in_its_own_type_the_matrix_is_w_itself_and_the_offset_b_or_nothing():
    made = lean()
    assert Buffers(made).matrix_VC is made.weight_VE
    assert Buffers(made).offset_V is made.bias_V
    assert Buffers(lean(bias=False)).offset_V is None
    assert Buffers(lean(bias=False, phi=SIGMOID)).offset_V is None


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
    monkeypatch.setattr(chunked, "CHUNK_ROWS", 3)
    matrix_VC = torch.empty(100, 8, dtype=dtype).as_subclass(SaysCuda)
    assert [tokens_per_chunk(matrix_VC, k) for k in (1, 3, 1000)] == [num_rows, num_rows // 3, 1]


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
