"""What the papers' equations say about one another: special cases, symmetries, shifts of the logits, and ranks."""

import math

import pytest
import rounding
import small_heads
import torch
from head_table import rows, total
from small_heads import load, randomise

V, E, LAYER_DIMS = 11, 4, (3, 5, 4)
TOP = {"num_input_layers": 1, "window": 0}  # mfs without Multi-input
ZERO = {"prior__weight": 0.0}  # a gate that learned nothing


def make(name, vocab_size=V, d_embed=E, layer_dims=LAYER_DIMS, **params):
    """A head in float64 whose parameters are all standard normal."""
    given = {"vocab_size": vocab_size, "embedding": d_embed, "layer_dims": layer_dims}
    return randomise(small_heads.make(name, **given, **params), 1.0)


def states(num=6, layer_dims=LAYER_DIMS):
    return small_heads.states(1, num, widths=layer_dims)


def of(head):
    return pytest.mark.parametrize("head", [head])  # so that the mutation script knows whom a test concerns


def log_probs(head):
    return head(states()).log_probs()


def assert_same(a, b):
    """The magnitudes of the terms of a logit sum to up to 69 here; its sums have up to 9 + 4 + 11 + 5 terms."""
    torch.testing.assert_close(a, b, rtol=0, atol=rounding.bound(30, 70))


def shared(head, *layers):
    """The parameters of its output layer and of some others, as `load` takes them."""
    found = {}
    for layer in ("output", *layers):
        found |= {f"{layer}__{name}": tensor for name, tensor in head.get_submodule(layer).named_parameters()}
    return found


SLOPE_1 = torch.tensor(math.log(math.e - 1), dtype=torch.float64)  # softplus of it
ONE = {"num_mixtures": 1}
LINEAR = {"num_mixtures": 3, "activation": "none", "prior_bias": True, "bias": False}
# a head with some tensors set, another one likewise, and which layers the other one takes beside the output
EQUAL = [
    ("mos", {**ONE, "activation": "none"}, {}, "softmax", {"projection": True}, {}, {"facet": "latent"}),
    (
        *("mos", {**ONE, "activation": "none", "logit_map": "sigsoftmax"}, {}),
        *("sigsoftmax", {"projection": True}, {}, {"facet": "latent"}),
    ),
    (
        *("mfs", {**ONE, **TOP, "num_partitions": 1}, {}),
        *("softmax", {"projection": True, "bias": False}, {}, {"facet": "facets.0"}),
    ),
    ("doc", {"components": (3, 0)}, {}, "mos", {"num_mixtures": 3}, {}, {"latent": "latents.0", "prior": "prior"}),
    ("gss", {"k": 1.0, "c": 0.7}, {}, "softmax", {}, {}, {}),
    ("gss", {"k": 2.0, "c": 0.0}, {}, "sigsoftmax", {}, {}, {}),
    ("multimax", {}, {"temperatures": 0.0}, "softmax", {}, {}, {}),
    ("plif", {"num_pieces": 8, "bound": 0.5}, {"raw_slope": SLOPE_1}, "softmax", {}, {}, {}),
    ("mos", {"num_mixtures": 3, "gate": "constant"}, {}, "mos", {"num_mixtures": 3}, ZERO, {"latent": "latent"}),
    ("softmax", {"softcap": 1.5}, {}, "softmax", {"softcap": {"a": 3.0, "b": 0.0, "c": 0.75}}, {}, {}),
    ("softmax", {"mu_centering": True}, {}, "softmax", {}, {}, {}),
]


@pytest.mark.parametrize(("head", "params", "given", "other", "of_other", "known", "taken"), EQUAL, ids=str)
def test_a_special_case_is_another_head(head, params, given, other, of_other, known, taken):
    ours, theirs = load(make(head, **params), **given), load(make(other, **of_other), **known)
    for layer, source in {"output": "output", **taken}.items():
        theirs.get_submodule(layer).load_state_dict(ours.get_submodule(source).state_dict())
    assert_same(log_probs(ours), log_probs(theirs))


@of("mfs")
def test_facets_of_the_top_state_alone_equal_an_affine_mos(head):
    mfs = make(head, num_mixtures=3, **TOP, num_partitions=1)
    parts = ("weight", "bias")
    latent = {f"latent__{part}": torch.cat([getattr(facet, part) for facet in mfs.facets]) for part in parts}
    assert_same(log_probs(mfs), log_probs(load(make("mos", **LINEAR), **latent, **shared(mfs, "prior"))))


@of("softmax")
def test_a_cap_sees_what_centring_takes_away(head):
    capped = make(head, softcap=1.5)
    both = load(make(head, mu_centering=True, softcap=1.5), **shared(capped))
    assert_same(both(states()).weight_VE.mean(0), torch.zeros(E).double())
    assert (log_probs(both) - log_probs(capped)).abs().max() > 0.1


@of("mos")
def test_one_softmax_mixed_equals_the_softmax_of_its_latent(head):
    mos = make(head, num_mixtures=1)
    latent = torch.tanh(states().layers[-1] @ mos.latent.weight.T + mos.latent.bias)
    assert_same(log_probs(mos), (latent @ mos.output.weight.T + mos.output.bias).log_softmax(-1))
    assert mos(states()).log_prior_NK is None  # and costs as much: no weights are computed


@of("mfs")
def test_equal_facets_of_the_partitions_equal_one_partition(head):
    mfs = make(head, num_mixtures=1, **TOP, num_partitions=3)
    first = {"weight": mfs.facets[0].weight, "bias": mfs.facets[0].bias}
    for i in (1, 2):
        load(mfs.facets[i], **first)
    single = make(head, num_mixtures=1, **TOP, num_partitions=1)
    load(single.facets[0], **first)
    assert_same(log_probs(mfs), log_probs(load(single, **shared(mfs))))


@of("multimax")
def test_a_temperature_that_undoes_the_logits_above_a_bound_makes_them_all_equal(head):
    # t_d1 = -1 and d_1 far below: sigma(z) = z - (z - d_1) = d_1 for every word
    flat = log_probs(load(make(head), temperatures=[0.0, -1.0, 0.0, 0.0], bounds=[0.0, -100.0, 0.0, 0.0]))
    torch.testing.assert_close(flat, torch.full_like(flat, -math.log(V)), rtol=0, atol=1e-12)


@of("harmonic")
def test_distances_in_another_unit_change_no_harmonic_probability(head):
    harmonic = make(head, projection=True)
    before = log_probs(harmonic)
    assert_same(log_probs(load(harmonic, **{k: 8 * v for k, v in shared(harmonic, "facet").items()})), before)


@of("ngpt")
def test_cosines_do_not_see_norms(head):
    ngpt = make(head, projection=True)
    before = log_probs(ngpt)
    longer = torch.arange(1, V + 1)[:, None] * ngpt.output.weight
    facet = {"facet__weight": 3 * ngpt.facet.weight, "facet__bias": 3 * ngpt.facet.bias}
    assert_same(log_probs(load(ngpt, output__weight=longer, **facet)), before)
    assert_same(log_probs(load(ngpt, scale=torch.zeros(V))), torch.full((1, 6, V), -math.log(V), dtype=torch.float64))


d, TOKENS, WORDS, P = 5, 90, 70, 4


def rank(name, top, **params):
    """The numerical rank of the N x V log-probabilities, E = d, with a top layer of that width.

    What the equations leave at zero shows as some 1e-16 of the largest singular value (float64), the smallest that they
    mean are above 1e-5 of it here; 1e-11 lies far from both.
    """
    widths = (d, d, top)
    head = make(name, WORDS, d, widths, **params)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.mul_(1.5)
    return torch.linalg.matrix_rank(head(states(TOKENS, widths)).log_probs()[0], rtol=1e-11).item()


def bound(formula):
    return total(formula, d=d, P=P)


@pytest.mark.parametrize(("name", "top", "params", "expected"), rows("rank"), ids=str)
def test_rank_of_the_log_probabilities_equals_the_bound(name, top, params, expected):
    assert rank(name, top, **params) == bound(expected)


@pytest.mark.parametrize(("name", "params", "exceeded"), rows("rank_above"), ids=str)
def test_rank_of_the_log_probabilities_exceeds_the_bound_of_a_softmax(name, params, exceeded):
    assert rank(name, d, **params) > bound(exceeded)
