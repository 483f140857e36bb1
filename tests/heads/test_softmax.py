"""Softmax and SigSoftmax: where biases start, and the start as the embedding."""

import math

import pytest
import torch
from small_heads import D, E, V, assert_fills, make
from torch import nn

from harness.protocols import Hidden


def test_biases_start_as_torch_would():
    head = make("softmax", layer_dims=(9, 40), embedding=60, vocab_size=400, projection=True)
    assert_fills(head.output.bias, 1 / math.sqrt(60))
    assert head.facet.bias.abs().max() <= 1 / math.sqrt(40)


@pytest.mark.parametrize("name", ["softmax", "sigsoftmax"])
@pytest.mark.parametrize("params", [{"projection": True, "bias": False}, {"projection": True}, {}, {"bias": False}])
def test_started_as_the_embedding_the_logits_are_its_products_with_the_top_state(name, params):
    embedding = nn.Embedding(V, E)
    head = make(name, embedding=embedding, start="embedding", dtype=None, **params)
    h_BTE = torch.randn(1, 3, E, generator=torch.Generator().manual_seed(0))
    z_BTV = h_BTE @ embedding.weight.T
    expected = (z_BTV if name == "softmax" else z_BTV + z_BTV.sigmoid().log()).log_softmax(-1)
    found = head(Hidden((torch.zeros(1, 3, 9), h_BTE))).log_probs()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert head.output.weight is not embedding.weight
    assert head.output.weight.requires_grad


@pytest.mark.parametrize("name", ["softmax", "sigsoftmax"])
def test_started_as_the_embedding_a_tied_matrix_stays_tied_and_another_width_is_refused(name):
    embedding = nn.Embedding(V, E)
    assert make(name, embedding=embedding, tie_weights=True, start="embedding").output.weight is embedding.weight
    with pytest.raises(ValueError, match=r"start: 'embedding' needs .* the projection maps 4 to 6"):
        make(name, layer_dims=(9, D), projection=True, start="embedding")
