"""The lean evaluation among other functions of autograd: tied weights, accumulation, double use."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from harness import kernels
from harness.corpora.batching import Segment
from harness.distributions import Mixture
from harness.kernels.products import Products, using
from harness.model import build
from harness.plan.specs import ComponentSpec

V, B, T = 29, 4, 30
BACKBONE = ComponentSpec(name="lstm", params={"d_model": 8, "num_layers": 1, "dropout": 0.0})
with_bias_or_without = pytest.mark.parametrize("with_bias", [False, True])


def model(dtype=torch.float64, **head):
    mos = ComponentSpec(name="mos", params={"num_mixtures": 3, **head})
    return build(BACKBONE, mos, vocab_size=V, seed=1).to(dtype)


def batch(seed, rows=B):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(V, (2, rows, T), generator=generator)


def loss(built, tokens, targets):
    distribution, _ = built(Segment(tokens, tokens))
    return distribution.mean_nll(targets)


def combined(built, tokens, targets):
    distribution, _ = built(Segment(tokens, tokens))
    return 3 * distribution.mean_nll(targets) - 0.5 * distribution.mean_nll(targets.flip(0))


def grads(built):
    return [parameter.grad.clone() for parameter in built.parameters()]


def assert_equal(found, expected, tolerance=1e-12):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


def leaves(with_bias, dtype=torch.float32):
    """Facets, log-priors, W and perhaps b, for which autograd keeps gradients, and targets."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(1, 6, 2, 8), (1, 6, 2), (7, 8), *([(7,)] if with_bias else [])]
    made = [torch.randn(*shape, generator=generator, dtype=dtype, requires_grad=True) for shape in shapes]
    return made, torch.randint(7, (1, 6), generator=generator)


@pytest.mark.parametrize("tie_weights", [False, True])
def test_accumulation_of_two_losses_of_one_graph_over_batches_equals_the_reference(tie_weights):
    lean, plain = (model(tie_weights=tie_weights) for _ in range(2))
    for seed in range(3):
        combined(lean, *batch(seed)).backward()
        with kernels.reference_only():
            combined(plain, *batch(seed)).backward()
    assert_equal(grads(lean), grads(plain))


@with_bias_or_without
def test_a_kept_graph_survives_what_is_done_to_the_gradients(with_bias):
    """Leaves everywhere: autograd keeps gradients that nobody else holds, and adds to them in place."""
    inputs, targets = leaves(with_bias)
    value = Mixture(inputs[0], inputs[1].log_softmax(-1), *inputs[2:]).mean_nll(targets)
    value.backward(retain_graph=True)
    first = [leaf.grad.clone() for leaf in inputs]
    for _ in range(2):
        for leaf in inputs:
            leaf.grad.zero_()
        value.backward(retain_graph=True)
        assert_equal([leaf.grad for leaf in inputs], first, tolerance=0)


def test_a_graph_is_used_once_unless_kept_and_never_differentiated_twice():
    tensor, targets = torch.randn(1, 5, 1, 4, requires_grad=True), torch.zeros(1, 5, dtype=torch.long)
    mixture = Mixture(tensor, None, torch.randn(7, 4))
    value = mixture.mean_nll(targets)
    value.backward()
    with pytest.raises(RuntimeError, match="second time"):
        value.backward()
    for value in (mixture.mean_nll(targets), mixture.nll(targets).sum()):
        with pytest.raises(RuntimeError, match="no second derivative"):
            torch.autograd.grad(value, tensor, create_graph=True)


def test_an_autocast_around_it_does_not_reach_into_its_sums():
    built = model(torch.float32)
    tokens, targets = batch(0)
    plain, head = loss(built, tokens, targets), built.head(built.backbone(tokens))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(head.mean_nll(targets), plain)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("head", ["plif", "mos"])
def test_a_backward_pass_in_a_thread_of_its_own_multiplies_as_the_forward_pass_did(head, precision):
    """Autograd has such a thread for a GPU, and no context variable reaches it. plif is evaluated anew there."""
    found = []
    for elsewhere in (False, True):
        built = build(BACKBONE, ComponentSpec(name=head), vocab_size=V, seed=1)
        with using(Products(precision=precision)), ThreadPoolExecutor(1) as pool:
            value = loss(built, *batch(0))
            pool.submit(value.backward).result() if elsewhere else value.backward()
        found.append(grads(built))
    assert_equal(*found, tolerance=0)
