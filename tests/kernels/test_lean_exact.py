"""The lean evaluation against dense float64 autograd: loss and every gradient, over several chunks, at odd sizes."""

import pytest
import rounding
import torch
from dense_mixtures import CASES, chunks_of, dense_logits, dense_nll, mixture, tensors

from harness.distributions import Mixture, log_prior
from harness.kernels import reference_only
from harness.kernels.products import Products, using

# Sums over up to 600 tokens, 31 words and 5 + 1 products of a logit. The magnitudes of the terms of a gradient add up
# to at most 3.7 times its largest entry.
ROUNDING = rounding.bound(640, 4)
every_case = pytest.mark.parametrize("case", CASES)


@pytest.fixture(autouse=True)
def _several_chunks(monkeypatch):
    chunks_of(monkeypatch, 256)


def gradients(value, inputs):
    given = [tensor for tensor in inputs if tensor is not None]
    value.backward()
    found = [tensor.grad.double() for tensor in given]
    for tensor in given:
        tensor.grad = None
    return found


def worst(found, expected):
    """The largest error of a tensor relative to its own largest entry."""
    errors = [(a.double() - b).abs().max() / b.abs().max() for a, b in zip(found, expected, strict=True)]
    return max(errors).item()


def compared(case, dtype, *, weighted=False, log_epsilon=None, level=0.0, z_loss=0.0):
    """(loss and gradients of the lean form, those of the dense one in float64)."""
    partitions, logit_map, *rest = case
    *inputs, targets, weights = tensors(partitions, *rest, dtype=dtype, level=level)
    wide = [None if tensor is None else tensor.detach().double().requires_grad_() for tensor in inputs]
    nll = dense_nll(*wide, targets, partitions, logit_map, log_epsilon)
    if z_loss:
        facets, _, weight, bias = wide
        log_z = dense_logits(facets, weight, bias, partitions, logit_map).logsumexp(-1)
        nll = nll + z_loss * (log_z**2).mean(1)
    expected = (weights.double() * nll).sum() / weights.double().sum() if weighted else nll.mean()
    expected = [expected.detach(), *gradients(expected, wide)]
    made = mixture(*inputs, partitions, logit_map, log_epsilon)
    made.z_loss = z_loss
    loss = made.training_loss(targets[None], weights[None] if weighted else None)
    return [loss.detach(), *gradients(loss, inputs)], expected


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("log_epsilon", [None, 0.01])
@pytest.mark.parametrize("z_loss", [0.0, 0.3])
@every_case
def test_loss_and_gradients_equal_dense_autograd_in_float64(case, z_loss, log_epsilon, weighted):
    found, expected = compared(case, torch.float64, weighted=weighted, log_epsilon=log_epsilon, z_loss=z_loss)
    assert worst(found, expected) < ROUNDING
    if z_loss or log_epsilon:
        plain, _ = compared(case, torch.float64, weighted=weighted)
        assert worst(found, plain) > 1e-3
        assert not z_loss or worst(found[:1], plain[:1]) > 1e-2


@pytest.mark.parametrize("z_loss", [0.0, 0.3])
@every_case
def test_float32_is_exact_to_its_rounding_on_every_exact_route(case, z_loss, exact_route):
    with using(Products(route=exact_route)):
        assert worst(*compared(case, torch.float32, z_loss=z_loss)) < 3e-6


@every_case
def test_the_z_loss_of_the_plain_equations_is_the_same(case):
    with reference_only():
        assert worst(*compared(case, torch.float64, weighted=True, z_loss=0.3)) < ROUNDING


def usual(num_tokens=20):
    """Two components with a prior and a bias: (inputs, the mixture, targets (1, N), weights (1, N))."""
    *inputs, targets, weights = tensors((1, 1), True, True, num_tokens, 9)
    return inputs, mixture(*inputs, (1, 1), "identity"), targets[None], weights[None]


def test_a_z_loss_is_no_part_of_mean_nll_and_gives_the_prior_no_gradient():
    inputs, made, targets, _ = usual()
    before = made.mean_nll(targets)
    made.z_loss = 0.7
    mean = made.mean_nll(targets)
    assert torch.equal(mean, before)
    with_z, without = (
        torch.autograd.grad(loss, inputs[1], retain_graph=True)[0] for loss in (made.training_loss(targets), mean)
    )
    torch.testing.assert_close(with_z, without, rtol=0, atol=rounding.bound(20))
    (alone,) = torch.autograd.grad(made.z_term(), inputs[1], allow_unused=True, materialize_grads=True)
    assert not alone.any()


@pytest.mark.parametrize("level", [-5000.0, 5000.0])
@pytest.mark.parametrize("logit_map", ["identity", "sigsoftmax"])
def test_no_level_of_the_logits_overflows(logit_map, level):
    found, expected = compared(((1, 1), logit_map, True, True, 20, 9), torch.float32, level=level)
    assert all(torch.isfinite(tensor).all() for tensor in found)
    assert worst(found, expected) < 4 * 5000 * 2**-24  # the rounding of logits of that size


@every_case
def test_nll_takes_any_upstream_gradient_and_is_the_same_without(case):
    partitions, logit_map, *rest = case
    *inputs, targets, _ = tensors(partitions, *rest)
    upstream = torch.randn(len(targets), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected_nll = dense_nll(*inputs, targets, partitions, logit_map)
    expected = [expected_nll.detach(), *gradients((upstream * expected_nll).sum(), inputs)]
    made = mixture(*inputs, partitions, logit_map)
    with torch.no_grad():
        alone = [made.nll(targets[None])[0], made.mean_nll(targets[None])]
    assert worst(alone, [expected[0], expected[0].mean()]) < ROUNDING
    nll = made.nll(targets[None])[0]
    found = [nll.detach(), *gradients((upstream * nll).sum(), inputs)]
    assert worst(found, expected) < ROUNDING


def test_token_weights_that_ask_for_a_gradient_get_it():
    inputs, made, targets, weights = usual()
    weights = (weights + 1).requires_grad_()
    made.mean_nll(targets, weights).backward()
    nll = dense_nll(*inputs, targets[0], (1, 1), "identity").detach()
    expected = (nll - (weights * nll).sum() / weights.sum()) / weights.sum()  # of a weighted mean, by hand
    torch.testing.assert_close(weights.grad[0], expected.detach(), rtol=0, atol=1e-12)


def test_a_learned_logit_map_gets_its_gradients_over_several_chunks(monkeypatch):
    chunks_of(monkeypatch, 16)
    *inputs, targets, _ = tensors((1, 1), True, True, 50, 9)
    slope = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    facets, scores, weight, bias = inputs
    made = Mixture(facets[None], log_prior(scores)[None], weight, bias, logit_map=lambda z: slope * z)
    found = gradients(made.mean_nll(targets[None]), [*inputs, slope])
    bent = [slope * facets, scores, weight, None if bias is None else slope * bias]
    expected = gradients(dense_nll(*bent, targets, (1, 1), "identity").mean(), [*inputs, slope])
    assert worst(found, expected) < ROUNDING


@pytest.mark.parametrize("evaluated", ["mean_nll", "nll"])
def test_gradients_come_in_the_types_of_their_inputs(evaluated):
    *inputs, targets, _ = tensors((1, 2), True, True, 150, 9, dtype=torch.bfloat16)
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    expected = gradients(dense_nll(*wide, targets, (1, 2), "identity").mean(), wide)
    value = getattr(mixture(*inputs, (1, 2), "identity"), evaluated)(targets[None]).mean()
    assert value.dtype == torch.float32
    found = torch.autograd.grad(value, inputs)
    assert {tensor.dtype for tensor in found} == {torch.bfloat16}
    assert worst(found, expected) < 0.02


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_the_size_of_chunks_changes_nothing_but_rounding(monkeypatch, rows):
    case = ((2, 1, 1), "bend", True, True, 40, 9)
    whole, _ = compared(case, torch.float64)
    chunks_of(monkeypatch, rows)
    assert worst(compared(case, torch.float64)[0], whole) < ROUNDING


def test_the_same_bits_every_time():
    case = ((4, 1, 1), "identity", True, True, 173, 15)
    (first, _), (second, _) = (compared(case, torch.float32) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(("precision", "bound"), [("fp32", 3e-6), ("bf16", 1.2e-2)])
@pytest.mark.parametrize("confidence", [1.0, 2.0, 3.0])  # mean nll of 3.1, 0.4 and 0.03 nats
def test_nothing_cancels_where_the_model_is_sure(confidence, precision, bound):
    generator = torch.Generator().manual_seed(0)
    N, K, V, width = 100, 3, 500, 64
    weight = torch.randn(V, width, generator=generator)
    targets = torch.randint(V, (N,), generator=generator)
    facets = 0.3 * torch.randn(N, K, width, generator=generator) + confidence * weight[targets][:, None] / width**0.5
    scores, bias = torch.randn(N, K, generator=generator), torch.randn(V, generator=generator)
    narrow = [tensor.requires_grad_() for tensor in (facets, scores, weight, bias)]
    wide = [tensor.detach().double().requires_grad_() for tensor in narrow]
    exact = dense_nll(*wide, targets, (1,) * K, "identity").mean()
    expected = gradients(exact, wide)
    with using(Products(precision=precision)):
        loss = mixture(*narrow, (1,) * K, "identity").mean_nll(targets[None])
        found = gradients(loss, narrow)
    assert abs(loss.item() - exact.item()) < bound * max(exact.item(), 0.1)
    for i in (0, 2, 3):  # the gate's gradient vanishes: all components are as sure as each other
        assert (found[i] - expected[i]).norm() / expected[i].norm() < bound


def test_no_tokens_are_nothing_to_evaluate():
    inputs, _, targets, _ = usual(4)
    none = mixture(inputs[0][:0], inputs[1][:0], *inputs[2:], (1, 1), "identity")
    assert none.nll(targets[:, :0]).shape == (1, 0)
    assert none.mean_nll(targets[:, :0]).isnan()


def test_as_many_targets_and_weights_as_tokens():
    _, made, targets, weights = usual()
    one_more = torch.cat([targets, targets[:, :1]], dim=1)
    for evaluate, number in (
        (lambda: made.mean_nll(targets[:, 1:]), 19),
        (lambda: made.mean_nll(targets, weights[:, 1:]), 19),
        (lambda: made.nll(one_more), 21),
    ):
        with pytest.raises(ValueError, match=f"{number} targets or weights for the 20 tokens"):
            evaluate()


def test_targets_changed_before_the_backward_pass_are_noticed():
    _, made, targets, _ = usual()
    loss = made.nll(targets).sum()
    targets.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
