"""The reference evaluation by hand, and the binary log-loss. Against loops: test_lean_property.py."""

import math

import pytest
import torch
from torch._subclasses import FakeTensorMode

from harness.distributions import BinaryLogLoss, Mixture, log_prior
from harness.kernels import reference, reference_only


@pytest.fixture(autouse=True)
def _by_the_reference():
    with reference_only():
        yield


def test_log_prior_of_bfloat16_scores_is_normalised_in_float32():
    scores = torch.randn(50, 1, 7, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert (log_prior(scores).exp().sum(-1) - 1).abs().max() < 1e-6


def test_a_target_of_probability_below_1e_30_has_an_exact_nll_of_which_log_epsilon_is_the_floor():
    # two words, logits 0 and 100: nll of the first = log(1 + e^100) = 100 in float64 (e^-100 = 4e-44); with an epsilon
    # -log(e^-100 + 1e-8) = 8 ln 10
    for log_epsilon, expected in ((None, 100.0), (1e-8, 8 * math.log(10))):
        mixture = Mixture(torch.ones(1, 1, 1, 1), None, torch.tensor([[0.0], [100.0]]), log_epsilon=log_epsilon)
        assert mixture.nll(torch.tensor([[0]])).item() == pytest.approx(expected, abs=1e-5)
        assert mixture.log_probs()[0, 0, 0].item() == pytest.approx(-expected, abs=1e-5)


def binary_log_loss(*probabilities, positions=1, aux_loss=0.0):
    """One softmax with the same probabilities at all positions."""
    weight = torch.tensor([[math.log(p)] for p in probabilities], dtype=torch.float64)
    return BinaryLogLoss(torch.ones(1, positions, 1, 1, dtype=torch.float64), None, weight, aux_loss=aux_loss)


def test_binary_log_loss_of_a_word_that_takes_all_probability_is_held_at_16_nats():
    # target of p = 1e-9, the other of p = 1: 9 ln 10, and -log(1 - (1 - 1e-7)) = 7 ln 10
    loss = binary_log_loss(1e-9, 1 - 1e-9).training_loss(torch.tensor([[0]]))
    assert loss.item() == pytest.approx(16 * math.log(10), abs=1e-6)


@pytest.mark.parametrize("weight", [torch.ones(0), torch.zeros(3, device="meta")], ids=["no token", "no values"])
def test_weights_that_cannot_be_known_to_be_zero_are_not_refused(weight):
    reference.refuse_weightless(weight)


def test_weights_without_content_are_not_asked_whether_all_are_0():
    with FakeTensorMode():  # as FLOPs are counted
        reference.refuse_weightless(torch.zeros(3))
