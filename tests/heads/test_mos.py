"""Mixture of Softmaxes: parameters by formula and against the paper, identities, dropout, what it refuses."""

import pytest
import torch
from torch import nn

from harness.protocols import HeadDims, Hidden
from heads.mos import MixtureOfSoftmaxes
from heads.softmax import Softmax

V, D, E = 11, 4, 6


def make(num_mixtures, *, d_top=E, vocab_size=V, **params):
    torch.manual_seed(0)
    dims = HeadDims(vocab_size=vocab_size, layer_dims=(d_top,), d_embed=E)
    return MixtureOfSoftmaxes(dims, nn.Embedding(vocab_size, E), num_mixtures=num_mixtures, **params).double()


def states(num_positions=3, width=E):
    generator = torch.Generator().manual_seed(1)
    return Hidden((torch.randn(1, num_positions, width, dtype=torch.float64, generator=generator),))


def count(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("K", [1, 2, 5])
def test_parameters_by_formula(K):
    # HEADS.md section 5: D K d + K d + D K, and the output matrix and bias; no prior for K = 1
    prior = D * K if K > 1 else 0
    assert count(make(K, d_top=D)) == D * K * E + K * E + prior + V * E + V
    assert count(make(K, d_top=D, prior_bias=True)) - count(make(K, d_top=D)) == (K if K > 1 else 0)
    assert count(make(K, d_top=D)) - count(make(K, d_top=D, bias=False)) == V


@pytest.mark.parametrize(("width", "added"), [(200, 404_000), (300, 906_000)])
def test_ten_mixtures_add_what_the_seed_paper_counts(width, added):
    # Benka et al. (2021): "nearly 1M added parameters" is 0.906M at width 300; 0.404M at the printed 200
    dims = HeadDims(vocab_size=V, layer_dims=(width,), d_embed=width)
    with torch.device("meta"):
        mos = MixtureOfSoftmaxes(dims, nn.Embedding(V, width), num_mixtures=10)
        softmax = Softmax(dims, nn.Embedding(V, width))
    assert count(mos) - count(softmax) == added
    assert added == 10 * width * width + 10 * width + 10 * width  # A_k, a_k, C


def test_one_mixture_equals_softmax_of_its_latent():
    mos = make(1)
    expected = (torch.tanh(mos.latent(states().layers[-1])) @ mos.output.weight.T + mos.output.bias).log_softmax(-1)
    assert mos.prior is None
    torch.testing.assert_close(mos(states()).log_probs(), expected, rtol=0, atol=1e-12)


def test_permuting_mixtures_changes_nothing():
    mos = make(3)
    before = mos(states()).log_probs()
    order = torch.tensor([2, 0, 1])
    with torch.no_grad():
        mos.prior.weight.copy_(mos.prior.weight[order].clone())
        for tensor in (mos.latent.weight, mos.latent.bias):
            tensor.copy_(tensor.view(3, E, -1)[order].reshape(tensor.shape).clone())
    torch.testing.assert_close(mos(states()).log_probs(), before, rtol=0, atol=1e-12)


def test_rank_of_the_log_probabilities_exceeds_the_softmax_bound():
    mos = make(3, vocab_size=60)
    with torch.no_grad():
        for parameter in mos.parameters():
            parameter.mul_(3)
    rank = torch.linalg.matrix_rank(mos(states(80)).log_probs()[0], rtol=1e-10).item()
    assert rank > E + 2


def test_dropout_acts_on_the_facets_in_training_only():
    mos = make(2, dropout=0.5)
    evaluated = mos.eval()(states()).facets_NFE
    torch.manual_seed(0)
    trained = mos.train()(states()).facets_NFE
    kept = trained != 0
    assert 0.2 < kept.double().mean().item() < 0.8
    torch.testing.assert_close(trained[kept], 2 * evaluated[kept])


@pytest.mark.parametrize(
    ("params", "message"),
    [({"num_mixtures": 0}, "num_mixtures must be at least 1, got 0"), ({"num_mixtures": 2, "dropout": 1.0}, "dropout")],
)
def test_bad_parameters_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        make(**params)
