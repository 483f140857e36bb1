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


def test_any_increasing_function_may_bend_the_logits():
    # p proportional to exp(z^3): logits 0, ln(2)^(1/3), ln(5)^(1/3) give 1/8, 2/8, 5/8
    weight = torch.tensor([[0.0], [math.log(2) ** (1 / 3)], [math.log(5) ** (1 / 3)]], dtype=torch.float64)
    facets = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    mixture = Mixture(facets, None, weight, logit_map=lambda z: z**3)
    torch.testing.assert_close(mixture.log_probs()[0, 0].exp(), torch.tensor([1 / 8, 2 / 8, 5 / 8]).double())
    assert mixture.nll(torch.tensor([[2]])).item() == pytest.approx(math.log(8 / 5), abs=1e-12)


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


def test_binary_log_loss_by_hand():
    # p = 1/8, 2/8, 5/8, target the last: -log 5/8 - log(1 - 1/8) - log(1 - 2/8) = log(8/5 * 8/7 * 4/3) = log(256/105)
    distribution = binary_log_loss(1 / 8, 2 / 8, 5 / 8, aux_loss=0.25)
    target = torch.tensor([[2]])
    assert distribution.training_loss(target).item() == pytest.approx(math.log(256 / 105) + 0.25, abs=1e-12)
    assert distribution.nll(target).item() == pytest.approx(math.log(8 / 5), abs=1e-12)
    assert distribution.mean_nll(target).item() == pytest.approx(math.log(8 / 5), abs=1e-12)
    assert distribution.log_probs()[0, 0].exp().tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=1e-12)


def test_binary_log_loss_is_averaged_with_the_tokens_weights():
    # two words, p = 1/4 and 3/4: the loss is -2 log p(y), log 16 for the first and 2 log 4/3 for the second
    distribution = binary_log_loss(1 / 4, 3 / 4, positions=2)
    first, second = math.log(16), 2 * math.log(4 / 3)
    loss = distribution.training_loss(torch.tensor([[0, 1]]))
    weighted = distribution.training_loss(torch.tensor([[0, 1]]), torch.tensor([[3.0, 1.0]], dtype=torch.float64))
    assert loss.item() == pytest.approx((first + second) / 2, abs=1e-12)
    assert weighted.item() == pytest.approx((3 * first + second) / 4, abs=1e-12)


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
