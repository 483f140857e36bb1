"""Mixture of Softmaxes: its facets and its gates."""

import math

import pytest
import rounding
import torch
from small_heads import E, load, make, states

from harness.protocols import Hidden


def test_facets_are_affine_without_activation_and_within_one_with_tanh():
    far = Hidden((100 * states().layers[-1],))
    affine = make("mos", num_mixtures=3, activation="none")
    expected = affine.latent(far.layers[-1]).view(6, 3, E)
    tolerance = rounding.bound(E + 1, 300)
    torch.testing.assert_close(affine(far).facets_NFE, expected, rtol=0, atol=tolerance)
    found = make("mos", num_mixtures=3)(far).facets_NFE
    torch.testing.assert_close(found, torch.tanh(expected), rtol=0, atol=tolerance)


@pytest.mark.parametrize("gate", ["constant", "static"])
def test_a_gate_without_context_starts_even_at_every_position(gate):
    log_prior = make("mos", num_mixtures=4, gate=gate)(states()).log_prior_NK
    expected = torch.full((6, 4), -math.log(4), dtype=torch.float64)
    torch.testing.assert_close(log_prior, expected, rtol=0, atol=1e-12)


def test_a_static_gate_is_the_softmax_of_one_learned_vector():
    mos = load(make("mos", num_mixtures=3, gate="static"), static_prior=torch.tensor([1.0, 2.0, 5.0]).log())
    expected = torch.tensor([1 / 8, 2 / 8, 5 / 8], dtype=torch.float64).expand(6, 3)
    torch.testing.assert_close(mos(states()).log_prior_NK.exp(), expected, rtol=0, atol=1e-7)
    mos(states()).mean_nll(torch.tensor([[0, 1, 2]] * 2)).backward()
    assert mos.static_prior.grad.abs().max() > 0


@pytest.mark.parametrize("gate", ["constant", "static", "learned"])
def test_one_mixture_has_no_gate(gate):
    mos = make("mos", num_mixtures=1, gate=gate)
    assert mos.prior is None
    assert mos.static_prior is None
    assert mos(states()).log_prior_NK is None
