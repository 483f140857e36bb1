"""Mixture of Contexts: what is mixed, and what dropout sees."""

import math

import torch
from small_heads import E, assert_independent, load, make, states

from harness.protocols import Hidden


def test_the_facets_are_mixed_before_the_softmax():
    # two facets tanh(+-1) at every unit, scores log 3 and 0: 3/4 tanh(1) - 1/4 tanh(1)
    latent = {"latent__weight": 0.0, "latent__bias": [1.0] * E + [-1.0] * E}
    head = load(
        make("moc", num_mixtures=2, prior_bias=True), **latent, prior__weight=0.0, prior__bias=[math.log(3), 0.0]
    )
    expected = torch.full((6, 1, E), 0.5 * math.tanh(1), dtype=torch.float64)
    torch.testing.assert_close(head(states()).facets_NFE, expected, rtol=0, atol=1e-7)


def test_bfloat16_states_give_bfloat16_facets_and_normalised_probabilities():
    distribution = make("moc", num_mixtures=3, dtype=torch.bfloat16)(Hidden((states().layers[-1].bfloat16(),)))
    assert distribution.facets_NFE.dtype == torch.bfloat16
    sums = distribution.log_probs().double().exp().sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-5)


def test_dropout_masks_are_independent_over_positions_rows_components_and_units():
    # facets 1/1000 and 1, mixed half and half, doubled where kept: a / 1000 + b, with a and b 1 where kept and 0 else
    latent = {"latent__weight": 0.0, "latent__bias": [math.atanh(0.001)] * E + [100.0] * E}  # tanh: 0.001 and 1
    head = load(make("moc", num_mixtures=2, dropout=0.5).train(), **latent, prior__weight=0.0)
    mixed = 1000 * head(states(20, 30)).facets_NFE.view(20, 30, E)
    second = mixed > 500
    first = mixed - 1000 * second > 0.5
    torch.testing.assert_close(mixed, first.double() + 1000 * second, rtol=0, atol=1e-3)
    assert_independent(torch.stack([first, second], dim=2))
