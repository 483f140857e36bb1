"""The combination of rows of logits where it is tight, and by how many tokens it is done."""

import math

import pytest
import rounding
import torch
from handmade import SaysCuda
from torch.utils._python_dispatch import TorchDispatchMode

from harness.kernels import rows


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


def test_an_epsilon_is_added_to_the_probability():
    found = rows.plus_epsilon(torch.tensor([0.5], dtype=torch.float64).log(), 0.25)
    assert found.item() == pytest.approx(math.log(0.75), rel=0, abs=rounding.bound(4))
