"""The reference evaluation of a Mixture against loops written from the equations."""

import math

import oracles
import pytest
import torch

from harness.distributions import Logits, Mixture, log_prior

B, T, E, V = 2, 3, 4, 9
LOGIT_MAPS = {"identity": lambda z: z, "sigsoftmax": oracles.sigsoftmax_logit}
CASES = [
    ((1,), "identity", True),
    ((1,), "sigsoftmax", True),
    ((4,), "identity", False),
    ((1, 1, 1), "identity", True),
    ((4, 1, 1), "identity", True),
    ((1, 1), "sigsoftmax", False),
    ((2, 3), "sigsoftmax", True),
]


def make(partitions, with_bias, dtype=torch.float64):
    generator = torch.Generator().manual_seed(len(partitions) + sum(partitions))

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    facets, scores = normal(B, T, sum(partitions), E), normal(B, T, len(partitions))
    return facets, scores, normal(V, E), normal(V) if with_bias else None


def targets():
    return torch.tensor([[0, 3, 8], [5, 5, 1]])


def oracle_log_probs(facets, scores, weight, bias, partitions, logit_map):
    log_priors = torch.stack([torch.stack(oracles.log_softmax(list(s))) for s in scores.reshape(B * T, -1)])
    rows = [
        torch.stack(oracles.mixture(f, log_priors[n], weight, bias, partitions, LOGIT_MAPS[logit_map]))
        for n, f in enumerate(facets.reshape(B * T, -1, E))
    ]
    return torch.stack(rows).view(B, T, V)


@pytest.mark.parametrize(("partitions", "logit_map", "with_bias"), CASES)
def test_log_probs_and_nll_equal_the_loops_in_float64(partitions, logit_map, with_bias):
    facets, scores, weight, bias = make(partitions, with_bias)
    mixture = Mixture(facets, log_prior(scores), weight, bias, partitions=partitions, logit_map=logit_map)
    expected = oracle_log_probs(facets, scores, weight, bias, partitions, logit_map)
    expected_nll = -expected.gather(-1, targets()[..., None])[..., 0]
    torch.testing.assert_close(mixture.log_probs(), expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(mixture.nll(targets()), expected_nll, rtol=0, atol=1e-9)
    torch.testing.assert_close(mixture.mean_nll(targets()), expected_nll.mean(), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("partitions", "logit_map", "with_bias"), CASES)
def test_gradients_of_the_weighted_mean_equal_autograd_through_the_loops(partitions, logit_map, with_bias):
    inputs = make(partitions, with_bias)
    facets, scores, weight, bias = inputs
    token_weight = torch.tensor([[0.0, 1.0, 2.0], [0.5, 1.0, 3.0]], dtype=torch.float64)
    mixture = Mixture(facets, log_prior(scores), weight, bias, partitions=partitions, logit_map=logit_map)
    picked = oracle_log_probs(facets, scores, weight, bias, partitions, logit_map).gather(-1, targets()[..., None])
    expected = -(token_weight * picked[..., 0]).sum() / 7.5
    wanted = [tensor for tensor in inputs if tensor is not None]
    ours = torch.autograd.grad(mixture.mean_nll(targets(), token_weight), wanted)
    theirs = torch.autograd.grad(expected, wanted)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


def test_float32_agrees_with_the_loops_to_1e_5():
    facets, scores, weight, bias = make((4, 1, 1), True)
    narrow = [tensor.detach().float() for tensor in (facets, scores, weight, bias)]
    mixture = Mixture(narrow[0], log_prior(narrow[1]), narrow[2], narrow[3], partitions=(4, 1, 1))
    expected = oracle_log_probs(facets, scores, weight, bias, (4, 1, 1), "identity")
    torch.testing.assert_close(mixture.log_probs().double(), expected, rtol=0, atol=1e-5)


def test_a_target_of_probability_below_1e_30_has_an_exact_nll():
    # One component, two words, logits 0 and 100: nll of the first = log(1 + e^100) = 100 in float64 (e^-100 = 4e-44).
    mixture = Mixture(torch.ones(1, 1, 1, 1), None, torch.tensor([[0.0], [100.0]]))
    assert mixture.nll(torch.tensor([[0]])).item() == pytest.approx(100.0, abs=1e-5)


def test_log_prior_of_bfloat16_scores_is_normalised_in_float32():
    scores = torch.randn(50, 1, 7, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert (log_prior(scores).exp().sum(-1) - 1).abs().max() < 1e-6


def test_logits_is_log_softmax_of_its_scores():
    # log_softmax([0, ln 2, ln 5]) = [ln 1/8, ln 2/8, ln 5/8]
    distribution = Logits(torch.tensor([[[0.0, math.log(2), math.log(5)]]], dtype=torch.float64))
    expected = torch.tensor([[[1 / 8, 2 / 8, 5 / 8]]], dtype=torch.float64).log()
    torch.testing.assert_close(distribution.log_probs(), expected)
    assert distribution.mean_nll(torch.tensor([[2]])).item() == pytest.approx(math.log(8 / 5))


@pytest.mark.parametrize("kind", ["mixture", "logits"])
def test_aux_loss_is_added_to_the_training_loss_only(kind):
    z = torch.zeros(1, 1, 2)
    distribution = (
        Logits(z, aux_loss=0.25) if kind == "logits" else Mixture(z.unsqueeze(2), None, torch.eye(2), aux_loss=0.25)
    )
    target = torch.tensor([[1]])
    assert distribution.mean_nll(target).item() == pytest.approx(math.log(2))
    assert distribution.training_loss(target).item() == pytest.approx(math.log(2) + 0.25)


@pytest.mark.parametrize("partitions", [(2,), (1, 1), (1, 1, 1, 1), (0, 3)])
def test_facets_that_do_not_fit_the_partitions_are_refused(partitions):
    with pytest.raises(ValueError, match="do not fit"):
        Mixture(torch.zeros(1, 1, 3, 2), torch.zeros(1, 1, 3), torch.zeros(5, 2), partitions=partitions)


def test_an_unknown_logit_map_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="identity, sigsoftmax"):
        Mixture(torch.zeros(1, 1, 1, 2), None, torch.zeros(5, 2), logit_map="relu")
