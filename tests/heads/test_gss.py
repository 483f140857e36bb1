"""Generalised SigSoftmax: its two special cases, the map at chosen points, parameters, what it refuses."""

import math

import pytest
import torch
from handmade import count
from torch import nn

from harness.heads.gss import GeneralisedSigSoftmax
from harness.protocols import HeadDims, Hidden

V, D, E = 11, 4, 6
LOGITS = torch.linspace(-30, 30, 101, dtype=torch.float64)


def make(*, layer_dims=(E,), d_embed=E, vocab_size=V, **params):
    torch.manual_seed(0)
    dims = HeadDims(vocab_size=vocab_size, layer_dims=layer_dims, d_embed=d_embed)
    return GeneralisedSigSoftmax(dims, nn.Embedding(vocab_size, d_embed), **params)


@pytest.mark.parametrize(
    # softmax's: HEADS.md section 5, "+0"; c and k are numbers
    ("params", "expected"),
    [
        ({}, V * E + V),
        ({"bias": False}, V * E),
        ({"projection": True}, V * E + V + D * E + E),
        ({"tie_weights": True}, V * E + V),
    ],
)
def test_parameters_are_softmaxs(params, expected):
    assert count(make(layer_dims=(9, D if params.get("projection") else E), **params)) == expected


def test_slope_one_everywhere_is_softmax():
    torch.testing.assert_close(make(c=-1.5, k=1.0).phi(LOGITS), LOGITS, rtol=0, atol=1e-12)


def test_slope_two_below_zero_is_sigsoftmax():
    # z + log sigmoid(z) = z - log(1 + exp(-z))
    expected = LOGITS - torch.log1p(torch.exp(-LOGITS))
    torch.testing.assert_close(make(c=0.0, k=2.0).phi(LOGITS), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("c", "k"), [(-1.5, 2.5), (-1.5, 3.0), (2.0, 0.5)])
def test_the_map_bends_at_c_from_slope_k_to_slope_one(c, k):
    def phi(z):
        return make(c=c, k=k).phi(torch.tensor(z, dtype=torch.float64)).item()

    assert phi(c) == pytest.approx(c - (k - 1) * math.log(2), abs=1e-12)
    assert phi(c - 50) == pytest.approx(c - 50 * k, abs=1e-12)  # softplus(-50) is 2e-22
    assert phi(c + 50) == pytest.approx(c + 50, abs=1e-12)  # k 50 - (k - 1) 50


def test_the_map_is_applied_to_the_logits():
    # two words with logits 1 and -3: odds exp(phi(1) - phi(-3)), phi by its formula for c = -1, k = 3
    head = make(vocab_size=2, c=-1.0, k=3.0).double()
    nn.init.zeros_(head.output.weight)
    with torch.no_grad():
        head.output.bias.copy_(torch.tensor([1.0, -3.0]))
    first, second = head(Hidden((torch.ones(1, 1, E, dtype=torch.float64),))).log_probs()[0, 0].tolist()
    high = 3 * 2 - 1 - 2 * math.log(1 + math.exp(2))
    low = 3 * -2 - 1 - 2 * math.log(1 + math.exp(-2))
    assert first - second == pytest.approx(high - low, abs=1e-12)


def test_matrices_are_xavier_uniform_and_tied_ones_the_embedding():
    head = make(layer_dims=(9, 40), d_embed=60, vocab_size=400, projection=True)
    for matrix in (head.output.weight, head.facet.weight):
        bound = math.sqrt(6 / sum(matrix.shape))
        assert 0.98 * bound < matrix.abs().max() <= bound
        assert matrix.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    embedding = nn.Embedding(V, E)
    dims = HeadDims(vocab_size=V, layer_dims=(E,), d_embed=E)
    assert GeneralisedSigSoftmax(dims, embedding, tie_weights=True).output.weight is embedding.weight


@pytest.mark.parametrize("k", [0, -0.5, -1])
def test_a_map_that_does_not_increase_is_refused(k):
    with pytest.raises(ValueError, match=f"k must be more than 0, got {k}"):
        make(k=k)


@pytest.mark.parametrize("k", [0.01, 1.0])
def test_any_slope_above_zero_is_accepted(k):
    assert make(k=k).phi(LOGITS).diff().min() > 0


def test_another_width_without_projection_is_refused():
    with pytest.raises(ValueError, match="projection: the top layer has width 4, the output embedding 6"):
        make(layer_dims=(E, D))
