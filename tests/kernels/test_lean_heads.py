"""Heads whose training loss is no mean nll of a mixture take the precision of products, too, and so does the head whose
products are a mixture's.
"""

import pytest
import small_heads
import torch
from torch import nn

from harness.kernels.products import Products, using
from harness.protocols import Hidden

B, T, D, V = 4, 40, 24, 307


@pytest.mark.parametrize(
    ("name", "params"),
    [("mos", {}), ("plif", {"num_pieces": 9}), ("mixtape", {}), ("nce", {}), ("mos", {"loss": "binary"})],
)
def test_a_training_loss_takes_the_precision_of_products(name, params):
    def trained():
        given = {"vocab_size": V, "layer_dims": (D, D, D), "embedding": D, "dtype": None}
        head = small_heads.make(name, **given, **params).eval()
        for parameter in head.parameters():  # some start where gradients all but cancel
            nn.init.normal_(parameter, std=0.15)
        hidden = Hidden(tuple(torch.randn(B, T, D) for _ in range(3)))
        targets = torch.randint(V, (B, T))
        torch.manual_seed(0)  # nce draws its noise
        loss = head(hidden).training_loss(targets)
        loss.backward()
        return loss.item(), head.output.weight.grad

    loss, gradient = trained()
    with using(Products(precision="bf16")):
        rounded_loss, rounded = trained()
    assert 1e-7 < abs(rounded_loss - loss) / loss < 1e-2
    assert 1e-4 < (rounded - gradient).norm() / gradient.norm() < 5e-2
