"""Every head of ours against its loop oracle in float64: log-probabilities and every gradient."""

import oracles
import pytest
import torch
from torch import nn

from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS

B, T, V, D = 2, 2, 7, 5
TARGETS = torch.tensor([[0, 6], [3, 3]])
VARIANTS = [
    ("softmax", {}),
    ("softmax", {"bias": False}),
    ("softmax", {"projection": True}),
    ("softmax", {"tie_weights": True}),
    ("mos", {"num_mixtures": 1}),
    ("mos", {"num_mixtures": 2}),
    ("mos", {"num_mixtures": 3, "prior_bias": True}),
    ("mos", {"num_mixtures": 3, "activation": "none", "bias": False}),
    ("mos", {"num_mixtures": 2, "tie_weights": True}),
]


def build(name, params, dtype=torch.float64):
    torch.manual_seed(0)
    dims = HeadDims(vocab_size=V, layer_dims=(D, D), d_embed=D, token_counts=torch.arange(1, V + 1))
    head = HEADS.get(name)(dims, nn.Embedding(V, D), **params).to(dtype).eval()
    layers = tuple(torch.randn(B, T, D).to(dtype).requires_grad_() for _ in range(2))
    return head, Hidden(layers)


def oracle(name, params, head, hidden):
    kwargs = {"activation": params["activation"]} if "activation" in params else {}
    named = dict(head.named_parameters())
    rows = [torch.stack(oracles.HEADS[name](h, named, V, **kwargs)) for h in hidden.layers[-1].reshape(B * T, D)]
    return torch.stack(rows).view(B, T, V)


def test_every_head_of_ours_has_an_oracle():
    ours = {name for name in HEADS.names() if HEADS.origin(name).startswith("heads/")}
    assert ours == set(oracles.HEADS)
    assert ours == {name for name, _ in VARIANTS}


@pytest.mark.parametrize(("name", "params"), VARIANTS, ids=str)
def test_log_probs_equal_the_loops(name, params):
    head, hidden = build(name, params)
    torch.testing.assert_close(head(hidden).log_probs(), oracle(name, params, head, hidden), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("name", "params"), VARIANTS, ids=str)
def test_every_gradient_equals_autograd_through_the_loops(name, params):
    head, hidden = build(name, params)
    inputs = [hidden.layers[-1], *head.parameters()]
    picked = oracle(name, params, head, hidden).gather(-1, TARGETS[..., None])
    ours = torch.autograd.grad(head(hidden).training_loss(TARGETS), inputs)
    theirs = torch.autograd.grad(-picked.mean(), inputs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("name", "params"), VARIANTS, ids=str)
def test_float32_equals_the_float64_loops_to_1e_5(name, params):
    wide, hidden = build(name, params)
    head = build(name, params)[0].float()
    narrow = Hidden(tuple(layer.detach().float() for layer in hidden.layers))
    expected = oracle(name, params, wide, hidden)
    torch.testing.assert_close(head(narrow).log_probs().double(), expected, rtol=0, atol=1e-5)
