"""Softmax: parameters by formula, what it refuses, and that it is shift-invariant."""

import pytest
import torch
from torch import nn

from harness.protocols import HeadDims, Hidden
from heads.softmax import Softmax

V, D, E = 11, 4, 6


def count(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, V * E + V),
        ({"bias": False}, V * E),
        ({"projection": True}, V * E + V + E * E + E),
    ],
)
def test_parameters_by_formula(params, expected):
    head = Softmax(HeadDims(vocab_size=V, layer_dims=(E,), d_embed=E), nn.Embedding(V, E), **params)
    assert count(head) == expected


def test_tied_weights_are_the_embedding_itself():
    embedding = nn.Embedding(V, E)
    head = Softmax(HeadDims(vocab_size=V, layer_dims=(E,), d_embed=E), embedding, tie_weights=True)
    assert head.output.weight is embedding.weight


def test_another_width_without_projection_is_refused():
    with pytest.raises(ValueError, match="projection: the top layer is 4 wide and the output embedding 6"):
        Softmax(HeadDims(vocab_size=V, layer_dims=(D,), d_embed=E), nn.Embedding(V, E))


def test_projection_maps_the_top_width_to_the_embedding_width():
    dims = HeadDims(vocab_size=V, layer_dims=(9, D), d_embed=E)
    head = Softmax(dims, nn.Embedding(V, E), projection=True)
    assert count(head) == D * E + E + V * E + V
    assert head(Hidden((torch.zeros(1, 2, 9), torch.zeros(1, 2, D)))).log_probs().shape == (1, 2, V)


def test_a_shift_of_all_logits_changes_nothing():
    head = Softmax(HeadDims(vocab_size=V, layer_dims=(E,), d_embed=E), nn.Embedding(V, E)).double()
    hidden = Hidden((torch.randn(1, 3, E, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),))
    before = head(hidden).log_probs()
    with torch.no_grad():
        head.output.bias += 3
    torch.testing.assert_close(head(hidden).log_probs(), before, rtol=0, atol=1e-12)


def test_rank_of_the_log_probabilities_is_at_most_d_plus_two():
    head = Softmax(HeadDims(vocab_size=40, layer_dims=(E,), d_embed=E), nn.Embedding(40, E)).double()
    hidden = Hidden((torch.randn(1, 60, E, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),))
    assert torch.linalg.matrix_rank(head(hidden).log_probs()[0], rtol=1e-10).item() == E + 2  # d + 1, + 1 for the bias
