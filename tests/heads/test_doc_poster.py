"""The poster's DOC: parameters, which layer feeds which facet, its start as the top state, what it refuses."""

import math

import pytest
import torch
from handmade import count
from torch import nn

from harness.heads.doc_poster import DirectOutputConnectionPoster
from harness.protocols import HeadDims, Hidden

V, E = 11, 6
WIDTHS = (3, 4, 6, 5)  # bottom to top


def make(*, layer_dims=WIDTHS, d_embed=E, vocab_size=V, **params):
    torch.manual_seed(0)
    dims = HeadDims(vocab_size=vocab_size, layer_dims=layer_dims, d_embed=d_embed)
    embedding = nn.Embedding(vocab_size, d_embed)
    return DirectOutputConnectionPoster(dims, embedding, **params), embedding


def states(widths=WIDTHS):
    generator = torch.Generator().manual_seed(1)
    return Hidden(tuple(torch.randn(2, 3, width, dtype=torch.float64, generator=generator) for width in widths))


def assert_fills(tensor, bound):
    """Uniform on [-bound, bound]: nothing beyond, the largest near it, the standard deviation bound / sqrt(3)."""
    assert 0.98 * bound < tensor.abs().max().item() <= bound * (1 + 1e-6)
    assert tensor.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


@pytest.mark.parametrize(
    # HEADS.md section 5: a facet D_l d + d for each layer, the gate g K + K with g the widths' sum; no gate for K = 1
    ("params", "expected"),
    [
        ({}, (4 * E + E) + (6 * E + E) + (5 * E + E) + (4 + 6 + 5) * 3 + 3 + V * E),
        ({"num_mixtures": 1}, 5 * E + E + V * E),
        ({"num_mixtures": 2}, (6 * E + E) + (5 * E + E) + (6 + 5) * 2 + 2 + V * E),
        ({"num_mixtures": 4}, (3 + 4 + 6 + 5) * E + 4 * E + (3 + 4 + 6 + 5) * 4 + 4 + V * E),
        ({"num_mixtures": 2, "bias": True}, (6 * E + E) + (5 * E + E) + (6 + 5) * 2 + 2 + V * E + V),
        ({"num_mixtures": 2, "tie_weights": True}, (6 * E + E) + (5 * E + E) + (6 + 5) * 2 + 2 + V * E),
    ],
)
def test_parameters_by_formula(params, expected):
    assert count(make(**params)[0]) == expected


def test_the_output_matrix_starts_as_a_copy_of_the_embedding_or_is_it():
    head, embedding = make()
    assert torch.equal(head.output.weight, embedding.weight)
    assert head.output.weight.data_ptr() != embedding.weight.data_ptr()
    tied, embedding = make(tie_weights=True)
    assert tied.output.weight is embedding.weight


def test_facets_of_the_embeddings_width_start_as_their_state_with_noise_below_the_top():
    head, _ = make(layer_dims=(40, 40, 40), d_embed=40)
    *lower, top = head.facets
    assert torch.equal(top.weight, torch.eye(40))
    noises = [(facet.weight - torch.eye(40)).detach() for facet in lower]
    for noise in noises:
        assert 4.9e-5 < noise.max().item() <= 5.01e-5  # 1e-4 (U(0, 1) - 0.5), on 1: rounded to 6e-8
        assert -5.01e-5 <= noise.min().item() < -4.9e-5
        assert abs(noise.mean().item()) < 5 * 1e-4 / math.sqrt(12 * noise.numel())
    assert not torch.equal(*noises)
    assert all(torch.equal(facet.bias, torch.zeros(40)) for facet in head.facets)


@pytest.mark.parametrize("draw", [0.0, 1.0])
def test_noise_spans_half_a_ten_thousandth_to_either_side(monkeypatch, draw):
    monkeypatch.setattr(torch, "rand_like", lambda tensor: torch.full_like(tensor, draw))
    lower = make(layer_dims=(E, E), num_mixtures=2)[0].facets[0].weight
    torch.testing.assert_close(lower.detach(), torch.eye(E) + 1e-4 * (draw - 0.5), rtol=0, atol=1e-7)


def test_facets_of_another_width_and_the_gate_keep_torchs_default():
    head, _ = make(layer_dims=(30, 60, 40), d_embed=60, vocab_size=7)
    default, state, top = head.facets
    for layer in (default, top, head.prior):
        assert_fills(layer.weight, 1 / math.sqrt(layer.in_features))
        assert 0 < layer.bias.abs().max() <= 1 / math.sqrt(layer.in_features)
    assert (state.weight - torch.eye(60)).abs().max() <= 5.01e-5
    assert torch.equal(state.bias, torch.zeros(60))


def test_each_facet_reads_its_own_layer_and_the_gate_all_of_them_the_lowest_first():
    head, hidden = make()[0].double(), states()
    distribution = head(hidden)
    facets = distribution.facets_NFE.view(2, 3, 3, E)
    for k, layer in enumerate(hidden.layers[1:]):
        torch.testing.assert_close(facets[:, :, k], head.facets[k](layer), rtol=0, atol=1e-12)
    expected = head.prior(torch.cat(hidden.layers[1:], dim=-1)).log_softmax(-1)
    torch.testing.assert_close(distribution.log_prior_NK.view(2, 3, 3), expected, rtol=0, atol=1e-12)


def test_one_mixture_is_a_softmax_of_the_top_layers_facet():
    head, hidden = make(num_mixtures=1)[0].double(), states()
    expected = (head.facets[0](hidden.layers[-1]) @ head.output.weight.T).log_softmax(-1)
    assert head.prior is None
    torch.testing.assert_close(head(hidden).log_probs(), expected, rtol=0, atol=1e-12)


def test_fewer_layers_than_it_was_built_for_are_an_error():
    head = make(layer_dims=(5, 5), num_mixtures=2)[0].double()
    with pytest.raises(ValueError, match="zip"):
        head(states((5,)))


def test_the_published_epsilon_is_added_to_the_probability_when_asked_for():
    expected = (make()[0].double()(states()).log_probs().exp() + 1e-3).log()
    found = make(compat={"log_epsilon": 1e-3})[0].double()(states()).log_probs()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("num_mixtures", "message"),
    [
        (0, "num_mixtures must be at least 1, got 0"),
        (-1, "num_mixtures must be at least 1, got -1"),
        (5, "num_mixtures: 5 layers are read, but the backbone has 4"),
    ],
)
def test_bad_numbers_of_mixtures_are_refused(num_mixtures, message):
    with pytest.raises(ValueError, match=message):
        make(num_mixtures=num_mixtures)


@pytest.mark.parametrize("num_mixtures", [1, 4])
def test_one_mixture_and_as_many_as_layers_are_accepted(num_mixtures):
    assert make(num_mixtures=num_mixtures)[0].double()(states()).log_probs().shape == (2, 3, V)
