"""Every head of ours where arithmetic is tight: finite, and what the float64 loops give at the same inputs."""

import math

import oracles
import pytest
import rounding
import small_heads
import torch
from head_table import rows
from small_heads import randomise

from harness.protocols import Hidden

B, T, V, E, LAYER_DIMS = 2, 3, 6, 4, (3, 5, 4)
PARAMS = dict(rows("stable"))  # small, and all with an output bias
FLOAT32 = 2**-21  # of the largest number involved: 8 roundings of 2^-24
BFLOAT16 = 2**-8  # likewise 2 roundings of 2^-9, of facets and logits; what comes after is float32
every_head = pytest.mark.parametrize("name", list(PARAMS))


def make(name, *, layer_dims=LAYER_DIMS, dtype=torch.float32, **params):
    """A head whose parameters are all normal, of standard deviation 1/2."""
    given = {"vocab_size": V, "embedding": E, **PARAMS[name], **params}
    return randomise(small_heads.make(name, layer_dims=layer_dims, dtype=dtype, **given), 0.5, dtype=torch.float32)


def states(shape=(B, T), *, layer_dims=LAYER_DIMS, dtype=torch.float32):
    layers = small_heads.states(*shape, widths=layer_dims, dtype=torch.float32).layers
    return Hidden(tuple(layer.to(dtype).requires_grad_() for layer in layers))


def words(shape=(B, T), vocab_size=V):
    return torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(2))


def gradients(loss, inputs):
    return torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)


def by_loops(name, head, hidden, targets, params):
    """Log-probabilities and the gradients of the mean nll, in float64 at the head's own parameters and inputs."""
    named = {key: parameter.detach().double().requires_grad_() for key, parameter in head.named_parameters()}
    layers = [layer.detach().double().requires_grad_() for layer in hidden.layers]
    known = {"token_counts": list(range(1, head.output.out_features + 1)), **PARAMS[name], **params}
    logp = oracles.log_probs(name, layers, named, **known)
    loss = oracles.word_loss(logp, layers, targets.tolist(), named)
    return oracles.stacked(logp).detach(), gradients(loss, [*layers, *named.values()])


def assert_right(name, head, hidden, targets, tolerance, *, largest=1.0, **params):
    """Within `tolerance` of the largest number involved: `largest`, or that of the result."""
    inputs = [*hidden.layers, *head.parameters()]
    distribution = head(hidden)
    logp, nll = distribution.log_probs(), distribution.nll(targets)
    expected, expected_gradients = by_loops(name, head, hidden, targets, params)
    bound = tolerance * max(largest, expected.abs().max().item())
    torch.testing.assert_close(logp.double(), expected, rtol=0, atol=bound)
    torch.testing.assert_close(nll.double(), -expected.gather(-1, targets[..., None])[..., 0], rtol=0, atol=bound)
    # an error e of a log-probability is a relative error e of the probability, and so of a gradient; with one word
    # there is no gradient, and what is left are the roundings of sums of responsibilities, of 1 in all, that cancel
    only_word = logp.shape[-1] == 1
    scale = 1.0 if only_word else max(0.1, *(gradient.abs().max().item() for gradient in expected_gradients))
    for ours, theirs in zip(gradients(distribution.mean_nll(targets), inputs), expected_gradients, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=bound * scale)
    trained = gradients(head(hidden).training_loss(targets), inputs)
    assert all(torch.isfinite(gradient).all() for gradient in trained)
    return expected


@pytest.mark.parametrize("level", [-60.0, 80.0])
@every_head
def test_logits_all_near_a_far_level_are_right(name, level):
    head = make(name)
    with torch.no_grad():
        head.output.bias += level
    assert_right(name, head, states(), words(), FLOAT32, largest=2 * abs(level))


@every_head
def test_bfloat16_states_and_parameters_are_right_to_their_rounding_and_normalised_far_off(name):
    head, hidden = make(name, dtype=torch.bfloat16), states(dtype=torch.bfloat16)
    assert head(hidden).log_probs().dtype == torch.float32
    assert_right(name, head, hidden, words(), BFLOAT16)
    with torch.no_grad():
        head.output.bias -= 60
    total = head(hidden).log_probs().exp().sum(-1)
    torch.testing.assert_close(total, torch.ones(B, T), rtol=0, atol=FLOAT32)


@every_head
def test_the_only_word_is_certain(name):
    params = {"num_partitions": 1} if name == "mfs" else {}  # no more parts than words
    head, hidden, targets = make(name, vocab_size=1, **params), states(), words(vocab_size=1)
    expected = assert_right(name, head, hidden, targets, FLOAT32, **params)
    assert expected.abs().max() <= rounding.bound(8)  # the log of a sum of up to 3 priors
    inputs = [*hidden.layers, *head.parameters()]
    assert all(gradient.abs().max() <= FLOAT32 for gradient in gradients(head(hidden).mean_nll(targets), inputs))


MANY = [
    ("mos", LAYER_DIMS, {"num_mixtures": 64}),
    ("mos", LAYER_DIMS, {"num_mixtures": 64, "logit_map": "sigsoftmax"}),
    ("moc", LAYER_DIMS, {"num_mixtures": 64}),
    ("doc", LAYER_DIMS, {"components": (40, 0, 24)}),
    ("doc", LAYER_DIMS, {"components": (63, 1), "balance": "code"}),
    ("doc_poster", (2,) * 65, {"num_mixtures": 64}),
    ("mfs", LAYER_DIMS, {"num_mixtures": 64}),
]


@pytest.mark.system
@pytest.mark.parametrize(("name", "layer_dims", "params"), MANY, ids=str)
def test_64_components_are_right(name, layer_dims, params):
    head, hidden = make(name, layer_dims=layer_dims, **params), states((1, 2), layer_dims=layer_dims)
    assert_right(name, head, hidden, words((1, 2)), FLOAT32, **params)


@every_head
def test_a_target_below_1e_30_is_right(name):
    head = make(name)
    with torch.no_grad():
        head.output.bias[4] -= 200
    expected = assert_right(name, head, states(), torch.full((B, T), 4), FLOAT32, largest=400.0)
    assert expected[..., 4].max() < -30 * math.log(10)


@pytest.mark.parametrize("name", ["mos", "doc", "doc_poster", "mfs"])
def test_a_component_below_1e_30_of_the_gate_is_right(name):
    head, hidden = make(name), states()
    with torch.no_grad():
        head.prior.weight.mul_(60)
    log_prior = head(hidden).log_prior_NK
    assert log_prior.min() < -30 * math.log(10)
    assert_right(name, head, hidden, words(), FLOAT32, largest=log_prior.abs().max().item())
