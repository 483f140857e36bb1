"""Softmax: parameters by formula, initialisation, its two losses, what it refuses, and that it is shift-invariant."""

import math

import pytest
import torch
from handmade import count
from torch import nn

from harness.heads.sigsoftmax import SigSoftmax
from harness.heads.softmax import Softmax
from harness.protocols import HeadDims, Hidden

V, D, E = 11, 4, 6


def make(*, layer_dims=(E,), d_embed=E, vocab_size=V, **params):
    torch.manual_seed(0)
    dims = HeadDims(vocab_size=vocab_size, layer_dims=layer_dims, d_embed=d_embed)
    return Softmax(dims, nn.Embedding(vocab_size, d_embed), **params)


def assert_fills(tensor, bound):
    """Uniform on [-bound, bound]: nothing beyond, the largest near it, the standard deviation bound / sqrt(3)."""
    assert 0.98 * bound < tensor.abs().max().item() <= bound * (1 + 1e-6)
    assert tensor.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, V * E + V),
        ({"bias": False}, V * E),
        ({"projection": True}, V * E + V + E * E + E),
        ({"projection": True, "bias": False, "loss": "binary"}, V * E + E * E + E),
        ({"tie_weights": True}, V * E + V),
    ],
)
def test_parameters_by_formula(params, expected):
    assert count(make(**params)) == expected


def test_tied_weights_are_the_embedding_itself_as_it_was():
    embedding = nn.Embedding(V, E)
    before = embedding.weight.detach().clone()
    head = Softmax(HeadDims(vocab_size=V, layer_dims=(E,), d_embed=E), embedding, tie_weights=True)
    assert head.output.weight is embedding.weight
    assert torch.equal(embedding.weight, before)


def test_untied_weights_are_its_own():
    embedding = nn.Embedding(V, E)
    head = Softmax(HeadDims(vocab_size=V, layer_dims=(E,), d_embed=E), embedding)
    assert head.output.weight is not embedding.weight


def test_matrices_are_xavier_uniform_and_biases_linear_default():
    head = make(layer_dims=(9, 40), d_embed=60, vocab_size=400, projection=True)
    assert_fills(head.output.weight, math.sqrt(6 / (400 + 60)))
    assert_fills(head.facet.weight, math.sqrt(6 / (40 + 60)))
    assert_fills(head.output.bias, 1 / math.sqrt(60))
    assert head.facet.bias.abs().max() <= 1 / math.sqrt(40)


def test_another_width_without_projection_is_refused():
    with pytest.raises(ValueError, match="projection: the top layer has width 4, the output embedding 6"):
        make(layer_dims=(E, D))


def test_only_the_top_layers_width_must_fit():
    assert count(make(layer_dims=(9, 3, E))) == V * E + V


def test_projection_maps_the_top_width_to_the_embedding_width():
    head = make(layer_dims=(9, D), projection=True)
    assert count(head) == D * E + E + V * E + V
    assert head(Hidden((torch.zeros(1, 2, 9), torch.zeros(1, 2, D)))).log_probs().shape == (1, 2, V)


@pytest.mark.parametrize(
    # all words equally likely, p = 1/V: nll log V; binary log V - (V - 1) log(1 - 1/V)
    ("params", "expected"),
    [
        ({}, math.log(V)),
        ({"loss": "nll"}, math.log(V)),
        ({"loss": "binary"}, math.log(V) - (V - 1) * math.log(1 - 1 / V)),
    ],
)
def test_training_minimises_the_chosen_loss_and_evaluation_the_likelihood(params, expected):
    head = make(**params).double()
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    distribution = head(Hidden((torch.ones(1, 2, E, dtype=torch.float64),)))
    targets = torch.tensor([[0, V - 1]])
    assert distribution.training_loss(targets).item() == pytest.approx(expected, abs=1e-12)
    assert distribution.mean_nll(targets).item() == pytest.approx(math.log(V), abs=1e-12)


@pytest.mark.parametrize("cls", [Softmax, SigSoftmax])
@pytest.mark.parametrize("params", [{"projection": True, "bias": False}, {"projection": True}, {}, {"bias": False}])
def test_started_as_the_embedding_the_logits_are_its_products_with_the_top_state(cls, params):
    embedding = nn.Embedding(V, E)
    head = cls(HeadDims(vocab_size=V, layer_dims=(9, E), d_embed=E), embedding, start="embedding", **params)
    h_BTE = torch.randn(1, 3, E, generator=torch.Generator().manual_seed(0))
    z_BTV = h_BTE @ embedding.weight.T
    expected = (z_BTV if cls is Softmax else z_BTV + z_BTV.sigmoid().log()).log_softmax(-1)
    found = head(Hidden((torch.zeros(1, 3, 9), h_BTE))).log_probs()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert head.output.weight is not embedding.weight
    assert head.output.weight.requires_grad


@pytest.mark.parametrize("cls", [Softmax, SigSoftmax])
def test_started_as_the_embedding_a_tied_matrix_stays_tied_and_another_width_is_refused(cls):
    embedding = nn.Embedding(V, E)
    dims = HeadDims(vocab_size=V, layer_dims=(E,), d_embed=E)
    assert cls(dims, embedding, tie_weights=True, start="embedding").output.weight is embedding.weight
    dims = HeadDims(vocab_size=V, layer_dims=(D,), d_embed=E)
    with pytest.raises(ValueError, match=r"start: 'embedding' needs .* the projection maps 4 to 6"):
        cls(dims, embedding, projection=True, start="embedding")


def test_a_shift_of_all_logits_changes_nothing():
    head = make().double()
    hidden = Hidden((torch.randn(1, 3, E, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),))
    before = head(hidden).log_probs()
    with torch.no_grad():
        head.output.bias += 3
    torch.testing.assert_close(head(hidden).log_probs(), before, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("bias", "rank"), [(False, E + 1), (True, E + 2)])
def test_rank_of_the_log_probabilities_is_d_plus_one_and_one_more_with_a_bias(bias, rank):
    head = make(vocab_size=40, bias=bias).double()
    hidden = Hidden((torch.randn(1, 60, E, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),))
    assert torch.linalg.matrix_rank(head(hidden).log_probs()[0], rtol=1e-10).item() == rank


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
