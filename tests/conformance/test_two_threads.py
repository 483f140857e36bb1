"""Bits on several threads: not among tests/heads, whose processes are forked by the mutation script."""

import pytest
import torch
from torch import nn

from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS

B, T, V, D = 20, 35, 500, 8


@pytest.mark.system
@pytest.mark.parametrize("name", [name for name in HEADS.names() if HEADS.origin(name).startswith("heads/")])
def test_training_gradients_repeat_bit_for_bit_on_two_threads(name):
    torch.manual_seed(0)
    known = {"token_counts": torch.arange(1, V + 1), "token_bytes": (b"ab",) * V}
    dims = HeadDims(vocab_size=V, layer_dims=(D, D, D), d_embed=D, **known)
    head = HEADS.get(name)(dims, nn.Embedding(V, D))
    hidden = Hidden(tuple(torch.randn(B, T, D, requires_grad=True) for _ in range(3)))
    targets, inputs = torch.randint(V, (B, T)), [*hidden.layers, *head.parameters()]
    torch.set_num_threads(2)
    repeats = []
    for _ in range(4):
        torch.manual_seed(1)
        loss = head(hidden).training_loss(targets)
        repeats.append(torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True))
    assert all(torch.equal(a, b) for again in repeats[1:] for a, b in zip(again, repeats[0], strict=True))
