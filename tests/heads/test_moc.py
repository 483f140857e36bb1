"""Mixture of Contexts: parameters, rank, initialisation, dropout, what it refuses."""

import math

import pytest
import torch
from handmade import count
from torch import nn

from harness.heads.moc import MixtureOfContexts
from harness.protocols import HeadDims, Hidden

V, D, E = 11, 4, 6


def make(num_mixtures, *, layer_dims=(E,), d_model_embed=E, vocab_size=V, **params):
    torch.manual_seed(0)
    dims = HeadDims(vocab_size=vocab_size, layer_dims=layer_dims, d_embed=d_model_embed)
    embedding = nn.Embedding(vocab_size, d_model_embed)
    return MixtureOfContexts(dims, embedding, num_mixtures=num_mixtures, **params).double()


def states(*shape, width=E):
    generator = torch.Generator().manual_seed(1)
    return Hidden((torch.randn(*(shape or (1, 3)), width, dtype=torch.float64, generator=generator),))


@pytest.mark.parametrize("K", [1, 2, 5])
def test_parameters_are_those_of_mos(K):
    # HEADS.md section 5: D K d + K d + D K, and the output matrix and bias; no prior for K = 1
    prior = D * K if K > 1 else 0
    top = {"layer_dims": (9, D)}
    assert count(make(K, **top)) == D * K * E + K * E + prior + V * E + V
    assert count(make(K, prior_bias=True, **top)) - count(make(K, **top)) == (K if K > 1 else 0)
    assert count(make(K, **top)) - count(make(K, bias=False, **top)) == V
    assert count(make(K, d_embed=3, **top)) == D * K * 3 + K * 3 + prior + V * 3 + V


def test_tied_weights_are_the_embedding_itself():
    embedding = nn.Embedding(V, E)
    dims = HeadDims(vocab_size=V, layer_dims=(D,), d_embed=E)
    assert MixtureOfContexts(dims, embedding, tie_weights=True).output.weight is embedding.weight
    assert MixtureOfContexts(dims, embedding).output.weight is not embedding.weight


def test_matrices_are_xavier_uniform():
    head = make(20, layer_dims=(9, 40), d_model_embed=60, vocab_size=400)
    assert head.latent.weight.shape == (20 * 60, 40)
    for matrix in (head.output.weight, head.latent.weight, head.prior.weight):
        bound = math.sqrt(6 / sum(matrix.shape))
        assert 0.98 * bound < matrix.abs().max() <= bound * (1 + 1e-6)
        assert matrix.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_the_facets_are_mixed_before_the_softmax():
    # two facets tanh(+-1) at every unit, scores log 3 and 0: 3/4 tanh(1) - 1/4 tanh(1)
    head = make(2, prior_bias=True)
    with torch.no_grad():
        head.latent.weight.zero_()
        head.latent.bias.copy_(torch.tensor([1.0] * E + [-1.0] * E))
        head.prior.weight.zero_()
        head.prior.bias.copy_(torch.tensor([math.log(3), 0.0]))
    facets = head(states()).facets_NFE
    expected = torch.full((3, 1, E), 0.5 * math.tanh(1), dtype=torch.float64)
    torch.testing.assert_close(facets, expected, rtol=0, atol=1e-7)


def test_one_mixture_equals_softmax_of_its_latent():
    moc = make(1)
    expected = (torch.tanh(moc.latent(states().layers[-1])) @ moc.output.weight.T + moc.output.bias).log_softmax(-1)
    assert moc.prior is None
    torch.testing.assert_close(moc(states()).log_probs(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("bias", "rank"), [(False, E + 1), (True, E + 2)])
def test_rank_of_the_log_probabilities_is_a_softmaxs(bias, rank):
    moc = make(5, vocab_size=60, bias=bias)
    with torch.no_grad():
        for parameter in moc.parameters():
            parameter.mul_(3)
    assert torch.linalg.matrix_rank(moc(states(1, 80)).log_probs()[0], rtol=1e-10).item() == rank


def test_bfloat16_states_give_bfloat16_facets_and_normalised_probabilities():
    distribution = make(3).bfloat16()(Hidden((states().layers[-1].bfloat16(),)))
    assert distribution.facets_NFE.dtype == torch.bfloat16
    sums = distribution.log_probs().double().exp().sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-5)


def test_dropout_acts_in_training_only_and_scales_what_it_keeps():
    # one mixture: the facet is dropped as it is, not mixed
    moc = make(1, dropout=0.2)
    hidden = states(20, 30)
    evaluated = moc.eval()(hidden).facets_NFE
    torch.testing.assert_close(evaluated, make(1)(hidden).facets_NFE, rtol=0, atol=0)
    trained = moc.train()(hidden).facets_NFE
    kept = trained != 0
    assert kept.double().mean().item() == pytest.approx(0.8, abs=5 * 0.4 / math.sqrt(kept.numel()))
    torch.testing.assert_close(trained[kept], evaluated[kept] / 0.8, rtol=0, atol=1e-12)


def test_dropout_masks_are_independent_over_positions_rows_components_and_units():
    # facets 1/1000 and 1, mixed half and half, doubled where kept: a / 1000 + b, with a and b 1 where kept and 0 else
    head = make(2, dropout=0.5).train()
    with torch.no_grad():
        head.latent.weight.zero_()
        head.latent.bias.copy_(torch.tensor([math.atanh(0.001)] * E + [100.0] * E))  # tanh: 0.001 and 1
        head.prior.weight.zero_()
    mixed = 1000 * head(states(20, 30)).facets_NFE.view(20, 30, E)
    second = mixed > 500
    first = mixed - 1000 * second > 0.5
    torch.testing.assert_close(mixed, first.double() + 1000 * second, rtol=0, atol=1e-3)
    kept = torch.stack([first, second], dim=-1)
    for axis in range(4):
        agreeing = (kept.narrow(axis, 0, 1) == kept.narrow(axis, 1, 1)).double().mean().item()
        assert 0.3 < agreeing < 0.7, axis  # 1 if they shared a mask


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"num_mixtures": 0}, "num_mixtures must be at least 1, got 0"),
        ({"num_mixtures": -1}, "num_mixtures must be at least 1, got -1"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1\.0"),
        ({"dropout": 1.5}, r"dropout must be in \[0, 1\), got 1\.5"),
        ({"dropout": -0.1}, r"dropout must be in \[0, 1\), got -0\.1"),
        ({"d_embed": 0}, "d_embed must be at least 1, got 0"),
        ({"tie_weights": True, "d_embed": E - 1}, "tie_weights: the embedding has width 6, d_embed is 5"),
    ],
)
def test_bad_parameters_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        make(**{"num_mixtures": 2, **params})


@pytest.mark.parametrize("params", [{"num_mixtures": 1}, {"dropout": 0.0}, {"dropout": 0.99}, {"d_embed": 1}])
def test_values_at_the_bounds_are_accepted(params):
    assert make(**{"num_mixtures": 2, **params})(states()).log_probs().shape == (1, 3, V)
