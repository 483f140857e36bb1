"""Adaptive softmax: ranks of words, z-loss, numbers far from zero, what it needs."""

import copy

import pytest
import small_heads
import torch
from small_heads import randomise

from harness.protocols import Hidden

V, D = 11, 8
COUNTS = [5, 0, 9, 5, 1, 2, 9, 1, 3, 4, 0]  # by frequency: 2 6 0 3 9 8 5 4 7 1 10
TARGETS = torch.tensor([[2, 10, 0, 3], [7, 6, 9, 1]])  # frequent words and words of both clusters


def make(*, vocab_size=V, counts=COUNTS, width=D, **params):
    """With parameters of standard deviation 1/2, in float64."""
    counted = None if counts is None else torch.tensor(counts)
    given = {"vocab_size": vocab_size, "layer_dims": (3, width), "embedding": 5, "counts": counted}
    return randomise(small_heads.make("adaptive", **given, **params), 0.5).train()


def states(scale=1.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    h = scale * torch.randn(2, 4, D, dtype=torch.float64, generator=generator)
    return Hidden((torch.zeros(2, 4, 3, dtype=dtype), h.to(dtype)))


@pytest.mark.parametrize(("vocab_size", "frequent"), [(2, 1), (3, 1), (4, 1), (8, 2), (400, 100)])
def test_by_default_a_quarter_of_the_vocabulary_is_frequent(vocab_size, frequent):
    head = make(vocab_size=vocab_size, counts=list(range(vocab_size)))
    assert head.layers.cutoffs == [frequent, vocab_size]


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 2**-20), (torch.bfloat16, 2**-5)])
def test_narrow_types_are_right_to_their_rounding_and_give_float32(dtype, bound):
    head, hidden = make().to(dtype), states(dtype=dtype)
    found = copy.deepcopy(head)(hidden)
    assert found.log_probs().dtype == found.nll(TARGETS).dtype == torch.float32
    exact = head.double()(Hidden(tuple(layer.double() for layer in hidden.layers)))
    torch.testing.assert_close(found.nll(TARGETS).double(), exact.nll(TARGETS), rtol=bound, atol=bound)
    assert (found.log_probs().double().exp().sum(-1) - 1).abs().max() < 1e-5
