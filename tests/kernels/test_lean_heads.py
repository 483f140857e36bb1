"""Every head's loss and gradients through the lean evaluation: against float64 by the reference, in float32, and with
bfloat16 products.
"""

import copy
import math

import pytest
import rounding
import small_heads
import torch
from head_table import rows
from torch import nn

from harness import kernels
from harness.kernels.products import Products, using
from harness.protocols import Hidden

B, T, D, V = 4, 40, 24, 307  # 160 tokens: several chunks from K = 2 on
ROUNDING = rounding.bound(V + B * T + D, math.sqrt(B * T))  # gradients cancel to 1 / sqrt(160) of their sum


def build(name, params):
    given = {"vocab_size": V, "layer_dims": (D, D, D), "embedding": D, "dtype": None}
    head = small_heads.make(name, **given, **params).eval()
    for parameter in head.parameters():  # some start where gradients all but cancel
        nn.init.normal_(parameter, std=0.15)
    hidden = Hidden(tuple(torch.randn(B, T, D) for _ in range(3)))
    weight = torch.randint(3, (B, T)).float()
    return head, hidden, torch.randint(V, (B, T)), weight


def evaluated(head, hidden, targets, weight):
    """Loss, then its gradients for every layer's states and every parameter that has one."""
    layers = [layer.detach().requires_grad_() for layer in hidden.layers]
    head.zero_grad()
    loss = head(Hidden(tuple(layers))).mean_nll(targets, weight)
    loss.backward()
    grads = [tensor.grad for tensor in (*layers, *head.parameters())]
    return [loss.detach()] + [grad for grad in grads if grad is not None]


def expected(head, hidden, targets, weight):
    """The same in float64 by the reference."""
    wide = copy.deepcopy(head).double()
    layers = Hidden(tuple(layer.double() for layer in hidden.layers))
    with kernels.reference_only():
        return evaluated(wide, layers, targets, weight.double())


def worst(found, exact):
    """The largest error relative to float64, in norm, over loss and gradients."""
    assert len(found) == len(exact)
    return max(((a.double() - b).norm() / b.norm()).item() for a, b in zip(found, exact, strict=True) if b.norm() > 0)


@pytest.mark.parametrize(("name", "params"), rows("lean"))
def test_loss_and_gradients_are_right_to_the_rounding_of_each_precision(name, params):
    given = build(name, params)
    head, hidden, targets, weight = given
    exact = expected(*given)
    wide = Hidden(tuple(layer.double() for layer in hidden.layers))
    assert worst(evaluated(copy.deepcopy(head).double(), wide, targets, weight.double()), exact) < ROUNDING
    assert worst(evaluated(*given), exact) < 3e-6
    if name != "plif":  # its kinks: see below
        with using(Products(precision="bf16")):
            error = worst(evaluated(*given), exact)
        assert 1e-5 < error < 3e-3  # and they are bfloat16's


@pytest.mark.parametrize(
    ("name", "params"), [("plif", {"num_pieces": 9}), ("mixtape", {}), ("nce", {}), ("mos", {"loss": "binary"})]
)
def test_what_trains_on_no_lean_loss_takes_the_precision_too(name, params):
    def trained():
        head, hidden, targets, _ = build(name, params)
        torch.manual_seed(0)  # nce draws its noise
        loss = head(hidden).training_loss(targets)
        loss.backward()
        return loss.item(), head.output.weight.grad

    loss, gradient = trained()
    with using(Products(precision="bf16")):
        rounded_loss, rounded = trained()
    assert 1e-7 < abs(rounded_loss - loss) / loss < 1e-2
    assert 1e-4 < (rounded - gradient).norm() / gradient.norm() < 5e-2
