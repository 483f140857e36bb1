"""Mixture of Softmaxes: parameters by formula and against the paper, identities, gates, dropout, what it refuses."""

import math

import pytest
import rounding
import torch
from handmade import count
from torch import nn

from harness.heads.mos import MixtureOfSoftmaxes
from harness.heads.softmax import Softmax
from harness.protocols import HeadDims, Hidden

V, D, E = 11, 4, 6


def make(num_mixtures, *, layer_dims=(E,), d_model_embed=E, vocab_size=V, **params):
    torch.manual_seed(0)
    dims = HeadDims(vocab_size=vocab_size, layer_dims=layer_dims, d_embed=d_model_embed)
    embedding = nn.Embedding(vocab_size, d_model_embed)
    return MixtureOfSoftmaxes(dims, embedding, num_mixtures=num_mixtures, **params).double()


def states(*shape, width=E):
    generator = torch.Generator().manual_seed(1)
    return Hidden((torch.randn(*(shape or (1, 3)), width, dtype=torch.float64, generator=generator),))


@pytest.mark.parametrize("K", [1, 2, 5])
def test_parameters_by_formula(K):
    # HEADS.md section 5: D K d + K d + D K, and the output matrix and bias; no prior for K = 1
    prior = D * K if K > 1 else 0
    top = {"layer_dims": (9, D)}
    assert count(make(K, **top)) == D * K * E + K * E + prior + V * E + V
    assert count(make(K, prior_bias=True, **top)) - count(make(K, **top)) == (K if K > 1 else 0)
    assert count(make(K, **top)) - count(make(K, bias=False, **top)) == V
    assert count(make(K, gate="constant", **top)) == D * K * E + K * E + V * E + V
    assert count(make(K, gate="static", **top)) - count(make(K, gate="constant", **top)) == (K if K > 1 else 0)
    assert count(make(K, d_embed=3, **top)) == D * K * 3 + K * 3 + prior + V * 3 + V


@pytest.mark.parametrize(("width", "added"), [(200, 404_000), (300, 906_000)])
def test_ten_mixtures_add_what_the_seed_paper_counts(width, added):
    # Benka et al. (2021): "nearly 1M added parameters" is 0.906M at width 300; 0.404M at the printed 200
    dims = HeadDims(vocab_size=V, layer_dims=(width,), d_embed=width)
    with torch.device("meta"):
        mos = MixtureOfSoftmaxes(dims, nn.Embedding(V, width), num_mixtures=10)
        softmax = Softmax(dims, nn.Embedding(V, width))
    assert count(mos) - count(softmax) == added
    assert added == 10 * width * width + 10 * width + 10 * width  # A_k, a_k, C


def test_tied_weights_are_the_embedding_itself():
    embedding = nn.Embedding(V, E)
    dims = HeadDims(vocab_size=V, layer_dims=(D,), d_embed=E)
    assert MixtureOfSoftmaxes(dims, embedding, tie_weights=True).output.weight is embedding.weight
    assert MixtureOfSoftmaxes(dims, embedding, tie_weights=True, d_embed=E).output.weight is embedding.weight
    assert MixtureOfSoftmaxes(dims, embedding).output.weight is not embedding.weight


def test_matrices_are_xavier_uniform():
    head = make(20, layer_dims=(9, 40), d_model_embed=60, vocab_size=400)
    assert head.latent.weight.shape == (20 * 60, 40)
    for matrix in (head.output.weight, head.latent.weight, head.prior.weight):
        bound = math.sqrt(6 / sum(matrix.shape))
        assert 0.98 * bound < matrix.abs().max() <= bound * (1 + 1e-6)
        assert matrix.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_one_mixture_equals_softmax_of_its_latent():
    mos = make(1)
    expected = (torch.tanh(mos.latent(states().layers[-1])) @ mos.output.weight.T + mos.output.bias).log_softmax(-1)
    assert mos.prior is None
    torch.testing.assert_close(mos(states()).log_probs(), expected, rtol=0, atol=1e-12)


def test_facets_are_affine_without_activation_and_within_one_with_tanh():
    far = Hidden((100 * states().layers[-1],))
    affine = make(3, activation="none")
    expected = affine.latent(far.layers[-1]).view(3, 3, E)
    tolerance = rounding.bound(E + 1, 300)
    torch.testing.assert_close(affine(far).facets_NFE, expected, rtol=0, atol=tolerance)
    torch.testing.assert_close(make(3)(far).facets_NFE, torch.tanh(expected), rtol=0, atol=tolerance)


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
    rank = torch.linalg.matrix_rank(mos(states(1, 80)).log_probs()[0], rtol=1e-10).item()
    assert rank > E + 2


@pytest.mark.parametrize("gate", ["constant", "static"])
def test_a_gate_without_context_starts_even_at_every_position(gate):
    log_prior = make(4, gate=gate)(states(2, 3)).log_prior_NK
    expected = torch.full((6, 4), -math.log(4), dtype=torch.float64)
    torch.testing.assert_close(log_prior, expected, rtol=0, atol=1e-12)


def test_a_static_gate_is_the_softmax_of_one_learned_vector():
    mos = make(3, gate="static")
    with torch.no_grad():
        mos.static_prior.copy_(torch.tensor([1.0, 2.0, 5.0]).log())  # softmax: 1/8, 2/8, 5/8
    expected = torch.tensor([1 / 8, 2 / 8, 5 / 8], dtype=torch.float64).expand(6, 3)
    torch.testing.assert_close(mos(states(2, 3)).log_prior_NK.exp(), expected, rtol=0, atol=1e-7)
    mos(states()).mean_nll(torch.tensor([[0, 1, 2]])).backward()
    assert mos.static_prior.grad.abs().max() > 0


@pytest.mark.parametrize("gate", ["constant", "static", "learned"])
def test_one_mixture_has_no_gate(gate):
    mos = make(1, gate=gate)
    assert mos.static_prior is None
    assert mos(states()).log_prior_NK is None


def test_the_binary_loss_trains_on_every_word_and_evaluates_on_the_target():
    # W = 0: p = 1/V for every word, whatever the gate; binary: log V - (V - 1) log(1 - 1/V)
    targets = torch.tensor([[0, 4, V - 1]])
    for loss, expected in {"nll": math.log(V), "binary": math.log(V) - (V - 1) * math.log(1 - 1 / V)}.items():
        mos = make(2, bias=False, loss=loss)
        nn.init.zeros_(mos.output.weight)
        assert mos(states()).training_loss(targets).item() == pytest.approx(expected, abs=1e-12)
        assert mos(states()).mean_nll(targets).item() == pytest.approx(math.log(V), abs=1e-12)


def test_the_published_epsilon_is_added_to_the_probability_when_asked_for():
    expected = (make(2)(states()).log_probs().exp() + 1e-3).log()
    found = make(2, compat={"log_epsilon": 1e-3})(states()).log_probs()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_dropout_acts_in_training_only_and_scales_what_it_keeps():
    mos = make(3, dropout=0.2)
    hidden = states(20, 30)
    evaluated = mos.eval()(hidden).facets_NFE
    torch.testing.assert_close(evaluated, make(3)(hidden).facets_NFE, rtol=0, atol=0)
    trained = mos.train()(hidden).facets_NFE
    kept = trained != 0
    assert kept.double().mean().item() == pytest.approx(0.8, abs=5 * 0.4 / math.sqrt(kept.numel()))
    torch.testing.assert_close(trained[kept], evaluated[kept] / 0.8, rtol=0, atol=1e-12)


def test_dropout_masks_are_independent_over_positions_rows_components_and_units():
    kept = make(3, dropout=0.5).train()(states(20, 30)).facets_NFE.view(20, 30, 3, E) != 0
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
        (
            {"prior_bias": True, "gate": "constant"},
            "prior_bias is possible for gate 'learned' only, got gate 'constant'",
        ),
        ({"prior_bias": True, "gate": "static"}, "prior_bias is possible for gate 'learned' only, got gate 'static'"),
        ({"compat": {"log_epsilon": 0.0}}, "expected a log_epsilon between 0 and 1"),
    ],
)
def test_bad_parameters_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        make(**{"num_mixtures": 2, **params})


@pytest.mark.parametrize(
    "params",
    [
        {"num_mixtures": 1},
        {"dropout": 0.0},
        {"dropout": 0.99},
        {"d_embed": 1},
        {"prior_bias": True, "gate": "learned"},
        {"prior_bias": False, "gate": "constant"},
    ],
)
def test_values_at_the_bounds_are_accepted(params):
    assert make(**{"num_mixtures": 2, **params})(states()).log_probs().shape == (1, 3, V)
