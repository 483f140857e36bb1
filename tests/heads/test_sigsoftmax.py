"""SigSoftmax: no parameters of its own, initialisation, what it refuses, that the logits' level matters."""

import math

import pytest
import torch
from handmade import count
from torch import nn

from harness.heads.sigsoftmax import SigSoftmax
from harness.protocols import HeadDims, Hidden

V, D, E = 11, 4, 6


def make(*, layer_dims=(E,), d_embed=E, vocab_size=V, **params):
    torch.manual_seed(0)
    dims = HeadDims(vocab_size=vocab_size, layer_dims=layer_dims, d_embed=d_embed)
    return SigSoftmax(dims, nn.Embedding(vocab_size, d_embed), **params)


@pytest.mark.parametrize(
    # softmax's: HEADS.md section 5, "+0"
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


def test_tied_weights_are_the_embedding_itself():
    embedding = nn.Embedding(V, E)
    dims = HeadDims(vocab_size=V, layer_dims=(E,), d_embed=E)
    assert SigSoftmax(dims, embedding, tie_weights=True).output.weight is embedding.weight
    assert SigSoftmax(dims, embedding).output.weight is not embedding.weight


def test_matrices_are_xavier_uniform():
    head = make(layer_dims=(9, 40), d_embed=60, vocab_size=400, projection=True)
    for matrix in (head.output.weight, head.facet.weight):
        bound = math.sqrt(6 / sum(matrix.shape))
        assert 0.98 * bound < matrix.abs().max() <= bound
        assert matrix.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_another_width_without_projection_is_refused():
    with pytest.raises(ValueError, match="projection: the top layer has width 4, the output embedding 6"):
        make(layer_dims=(E, D))


def two_words(level):
    """P(first word) of two, its logit `level` + 1, the other's `level`."""
    head = make(vocab_size=2).double()
    nn.init.zeros_(head.output.weight)
    with torch.no_grad():
        head.output.bias.copy_(torch.tensor([level + 1.0, level]))
    return head(Hidden((torch.ones(1, 1, E, dtype=torch.float64),))).log_probs()[0, 0, 0].exp().item()


@pytest.mark.parametrize("level", [0.0, -2.0, 3.0])
def test_two_words_have_the_probabilities_of_the_formula(level):
    # p(x) proportional to exp(z_x) sigmoid(z_x) (Kanai 2018)
    weights = [math.exp(z) / (1 + math.exp(-z)) for z in (level + 1, level)]
    assert two_words(level) == pytest.approx(weights[0] / sum(weights), abs=1e-12)


def test_a_shift_of_all_logits_matters():
    # z far below 0: sigmoid(z) is exp(z), the odds are e^2; far above: e, as under softmax
    assert two_words(-60.0) == pytest.approx(math.e**2 / (1 + math.e**2), abs=1e-12)
    assert two_words(60.0) == pytest.approx(math.e / (1 + math.e), abs=1e-12)


def test_the_published_epsilon_is_added_to_the_probability_when_asked_for():
    hidden = Hidden((torch.randn(1, 3, E, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),))
    plain, added = (make(compat=compat).double() for compat in (None, {"log_epsilon": 1e-3}))
    added.load_state_dict(plain.state_dict())
    expected = (plain(hidden).log_probs().exp() + 1e-3).log()
    torch.testing.assert_close(added(hidden).log_probs(), expected, rtol=0, atol=1e-12)
    targets = torch.tensor([[0, 2, 1]])
    picked = expected.gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(added(hidden).mean_nll(targets), -picked.mean(), rtol=0, atol=1e-12)


def test_an_epsilon_that_is_no_probability_is_refused():
    with pytest.raises(ValueError, match="compat: expected a log_epsilon between 0 and 1"):
        make(compat={"log_epsilon": 0.0})
