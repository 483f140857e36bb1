"""The lean evaluation beside the property of test_lean_property.py: many tokens, sure models, bits, and misfits."""

import pytest
import rounding
import torch

from harness.distributions import Mixture, log_prior
from harness.kernels import chunked, reference_only
from harness.kernels.products import Products, using


def made(num_tokens=20, num_words=9, width=5, partitions=(1, 1), dtype=torch.float64, confidence=0.0):
    """Facets, prior scores, W and b, targets and weights (1, N); confident: facets towards the target's word."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator).to(dtype)

    weight, targets = normal(num_words, width), torch.randint(num_words, (1, num_tokens), generator=generator)
    facets = normal(num_tokens, sum(partitions), width)
    if confidence:
        facets = 0.3 * facets + confidence * weight[targets[0]][:, None] / width**0.5
    inputs = [facets, normal(num_tokens, len(partitions)), weight, normal(num_words)]
    weights = torch.randint(4, (1, num_tokens), generator=generator).to(dtype)  # a quarter of them 0
    return [each.requires_grad_() for each in inputs], targets, weights


def mixture(facets, scores, weight, bias, partitions=(1, 1), z_loss=0.0):
    found = Mixture(facets[None], log_prior(scores)[None], weight, bias, partitions=partitions)
    found.z_loss = z_loss
    return found


def evaluated(inputs, targets, weights=None, **params):
    """The training loss and its gradients."""
    loss = mixture(*inputs, **params).training_loss(targets, weights)
    return [loss.detach(), *torch.autograd.grad(loss, inputs)]


def in_float64(inputs, *given, **params):
    """The same by the equations."""
    with reference_only():
        return evaluated([each.detach().double().requires_grad_() for each in inputs], *given, **params)


def worst(found, expected):
    """The largest error of a tensor relative to its own largest entry."""
    errors = [(a.double() - b).abs().max() / b.abs().max() for a, b in zip(found, expected, strict=True)]
    return max(errors).item()


@pytest.mark.parametrize("z_loss", [0.0, 0.3])
@pytest.mark.parametrize("partitions", [(1,) * 5, (4, 1, 1), (1, 1, 4), (3, 3)], ids=str)
def test_hundreds_of_tokens_in_chunks_are_exact_on_every_exact_route(monkeypatch, exact_route, partitions, z_loss):
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 0)
    monkeypatch.setattr(chunked, "LEAST_ROWS", 256)
    params = {"partitions": partitions, "z_loss": z_loss}
    for dtype, bound in ((torch.float32, 3e-6), (torch.float64, rounding.bound(640, 4))):
        inputs, targets, weights = made(300, 23, partitions=partitions, dtype=dtype)
        with using(Products(route=exact_route)):
            found = evaluated(inputs, targets, weights, **params)
        assert worst(found, in_float64(inputs, targets, weights, **params)) < bound


def test_a_z_loss_is_no_part_of_mean_nll_and_gives_the_prior_no_gradient():
    inputs, targets, _ = made()
    with_z, without = mixture(*inputs, z_loss=0.7), mixture(*inputs)
    assert torch.equal(with_z.mean_nll(targets), without.mean_nll(targets))
    (alone,) = torch.autograd.grad(with_z.z_term(), inputs[1], allow_unused=True, materialize_grads=True)
    assert not alone.any()


def test_the_same_bits_every_time():
    first, second = (evaluated(*made(173, 15, partitions=(4, 1, 1)), partitions=(4, 1, 1)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(("precision", "bound"), [("fp32", 3e-6), ("bf16", 1.2e-2)])
@pytest.mark.parametrize("confidence", [1.0, 2.0, 3.0])  # mean nll of 3.1, 0.4 and 0.03 nats
def test_nothing_cancels_where_the_model_is_sure(confidence, precision, bound):
    inputs, targets, _ = made(100, 500, 64, (1, 1, 1), torch.float32, confidence)
    exact, *expected = in_float64(inputs, targets, partitions=(1, 1, 1))
    with using(Products(precision=precision)):
        loss, *found = evaluated(inputs, targets, partitions=(1, 1, 1))
    assert abs(loss - exact) < bound * max(exact, 0.1)
    for i in (0, 2, 3):  # the gate's gradient vanishes: all components are as sure as each other
        assert (found[i] - expected[i]).norm() / expected[i].norm() < bound


def test_no_tokens_are_nothing_to_evaluate():
    (facets, scores, *rest), targets, _ = made()
    none = mixture(facets[:0], scores[:0], *rest)
    assert none.nll(targets[:, :0]).shape == (1, 0)
    assert none.mean_nll(targets[:, :0]).isnan()
    assert [tuple(values.shape) for values in none.statistics()] == [(1, 0, 2), (1, 0), (1, 0), (1, 0)]


def test_as_many_targets_and_weights_as_tokens():
    inputs, targets, weights = made()
    given = mixture(*inputs)
    for evaluate, number in (
        (lambda: given.mean_nll(targets[:, 1:]), 19),
        (lambda: given.mean_nll(targets, weights[:, 1:]), 19),
        (lambda: given.nll(targets.repeat(1, 2)), 40),
    ):
        with pytest.raises(ValueError, match=f"{number} targets or weights for the 20 tokens"):
            evaluate()


def test_targets_changed_before_the_backward_pass_are_noticed():
    inputs, targets, _ = made()
    loss = mixture(*inputs).nll(targets).sum()
    targets.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
