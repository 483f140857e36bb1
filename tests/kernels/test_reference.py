"""The reference evaluation of a Mixture against loops written from the equations."""

import math

import oracles
import pytest
import torch
from torch._subclasses import FakeTensorMode

from harness.distributions import LOGIT_MAPS, BinaryLogLoss, Mixture, log_prior
from harness.kernels import reference, reference_only

B, T, E, V = 2, 3, 4, 9
CASES = [
    ((1,), "identity", True),
    ((1,), "sigsoftmax", True),
    ((4,), "identity", False),
    ((1, 1, 1), "identity", True),
    ((4, 1, 1), "identity", True),
    ((1, 1), "sigsoftmax", False),
    ((2, 3), "sigsoftmax", True),
]


@pytest.fixture(autouse=True)
def _by_the_reference():
    with reference_only():
        yield


def make(partitions, with_bias, dtype=torch.float64):
    generator = torch.Generator().manual_seed(len(partitions) + sum(partitions))

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    facets, scores = normal(B, T, sum(partitions), E), normal(B, T, len(partitions))
    return facets, scores, normal(V, E), normal(V) if with_bias else None


def targets():
    return torch.tensor([[0, 3, 8], [5, 5, 1]])


def oracle_log_probs(facets, scores, weight, bias, partitions, logit_map, log_epsilon=None):
    p = {"output.weight": weight} if bias is None else {"output.weight": weight, "output.bias": bias}
    compat = None if log_epsilon is None else {"log_epsilon": log_epsilon}
    rows = []
    for f, s in zip(facets.reshape(B * T, -1, E), scores.reshape(B * T, -1), strict=True):
        by_component = f.split(list(partitions))
        rows.append(
            torch.stack(oracles.mixture(p, by_component, oracles.log_softmax(s), oracles.LOGIT_MAPS[logit_map], compat))
        )
    return torch.stack(rows).view(B, T, V)


@pytest.mark.parametrize("log_epsilon", [None, 0.05])
@pytest.mark.parametrize(("partitions", "logit_map", "with_bias"), CASES)
def test_it_equals_the_loops_in_float64_and_its_gradients_autograd_through_them(
    partitions, logit_map, with_bias, log_epsilon
):
    given = make(partitions, with_bias)
    facets, scores, weight, bias = given
    options = {"partitions": partitions, "logit_map": LOGIT_MAPS[logit_map], "log_epsilon": log_epsilon}
    mixture = Mixture(facets, log_prior(scores), weight, bias, **options)
    expected = oracle_log_probs(*given, partitions, logit_map)
    if log_epsilon is not None:
        expected = (expected.exp() + log_epsilon).log()
        by_loops = oracle_log_probs(*given, partitions, logit_map, log_epsilon)
        torch.testing.assert_close(by_loops, expected, rtol=0, atol=1e-12)
    nll = -expected.gather(-1, targets()[..., None])[..., 0]
    torch.testing.assert_close(mixture.log_probs(), expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(mixture.nll(targets()), nll, rtol=0, atol=1e-9)
    torch.testing.assert_close(mixture.mean_nll(targets()), nll.mean(), rtol=0, atol=1e-9)
    token_weight = torch.tensor([[0.0, 1.0, 2.0], [0.5, 1.0, 3.0]], dtype=torch.float64)
    inputs = [tensor for tensor in given if tensor is not None]
    for ours, theirs in (
        (mixture.mean_nll(targets()), nll.mean()),
        (mixture.mean_nll(targets(), token_weight), (token_weight * nll).sum() / 7.5),
    ):
        gradients = (torch.autograd.grad(loss, inputs, retain_graph=True) for loss in (ours, theirs))
        for a, b in zip(*gradients, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


def test_float32_agrees_with_the_loops_to_1e_5():
    facets, scores, weight, bias = make((4, 1, 1), True)
    narrow = [tensor.detach().float() for tensor in (facets, scores, weight, bias)]
    mixture = Mixture(narrow[0], log_prior(narrow[1]), narrow[2], narrow[3], partitions=(4, 1, 1))
    expected = oracle_log_probs(facets, scores, weight, bias, (4, 1, 1), "identity")
    torch.testing.assert_close(mixture.log_probs().double(), expected, rtol=0, atol=1e-5)


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
