"""What the papers' equations say about one another: special cases, symmetries, shifts of the logits, and ranks."""

import math

import pytest
import rounding
import small_heads
import torch
from head_table import rows, total
from small_heads import load, randomise
from torch import nn

V, E, LAYER_DIMS = 11, 4, (3, 5, 4)
TOP = {"num_input_layers": 1, "window": 0}  # mfs without Multi-input


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


@of("mos")
def test_one_softmax_mixed_equals_the_softmax_of_its_latent(head):
    mos = make(head, num_mixtures=1)
    latent = torch.tanh(states().layers[-1] @ mos.latent.weight.T + mos.latent.bias)
    assert_same(log_probs(mos), (latent @ mos.output.weight.T + mos.output.bias).log_softmax(-1))
    assert mos(states()).log_prior_NK is None  # and costs as much: no weights are computed


@pytest.mark.parametrize(("mixed", "single"), [("identity", "softmax"), ("sigsoftmax", "sigsoftmax")])
@of("mos")
def test_one_affine_component_equals_the_single_head_with_projection(head, mixed, single):
    mos = make(head, num_mixtures=1, activation="none", logit_map=mixed)
    facet = {"facet__weight": mos.latent.weight, "facet__bias": mos.latent.bias}
    assert_same(log_probs(mos), log_probs(load(make(single, projection=True), **facet, **shared(mos))))


@of("mfs")
def test_one_facet_of_the_top_state_equals_softmax_with_projection(head):
    mfs = make(head, num_mixtures=1, **TOP, num_partitions=1)
    facet = {"facet__weight": mfs.facets[0].weight, "facet__bias": mfs.facets[0].bias}
    softmax = make("softmax", projection=True, bias=False)
    assert_same(log_probs(mfs), log_probs(load(softmax, **facet, **shared(mfs))))


@of("mfs")
def test_facets_of_the_top_state_alone_equal_an_affine_mos(head):
    mfs = make(head, num_mixtures=3, **TOP, num_partitions=1)
    latent = {
        f"latent__{part}": torch.cat([getattr(facet, part) for facet in mfs.facets]) for part in ("weight", "bias")
    }
    mos = make("mos", num_mixtures=3, activation="none", prior_bias=True, bias=False)
    assert_same(log_probs(mfs), log_probs(load(mos, **latent, **shared(mfs, "prior"))))


@of("mfs")
def test_equal_facets_of_the_partitions_equal_one_partition(head):
    mfs = make(head, num_mixtures=1, **TOP, num_partitions=3)
    first = {"weight": mfs.facets[0].weight, "bias": mfs.facets[0].bias}
    for i in (1, 2):
        load(mfs.facets[i], **first)
    single = make(head, num_mixtures=1, **TOP, num_partitions=1)
    load(single.facets[0], **first)
    assert_same(log_probs(mfs), log_probs(load(single, **shared(mfs))))


@pytest.mark.parametrize("components", [(3,), (3, 0), {"top": 3}], ids=str)
@of("doc")
def test_components_of_the_top_layer_alone_equal_mos(head, components):
    doc = make(head, components=components)
    latent = {"latent__weight": doc.latents[0].weight, "latent__bias": doc.latents[0].bias}
    assert_same(log_probs(doc), log_probs(load(make("mos", num_mixtures=3), **latent, **shared(doc, "prior"))))


@of("gss")
@pytest.mark.parametrize(("params", "other"), [({"k": 1.0, "c": 0.7}, "softmax"), ({"k": 2.0, "c": 0.0}, "sigsoftmax")])
def test_the_generalised_sigsoftmax_of_two_slopes_is_a_known_head(head, params, other):
    assert_same(log_probs(make(head, **params)), log_probs(make(other)))


@pytest.mark.parametrize("bound", [0.5, 20.0])
@of("plif")
def test_pieces_of_slope_one_equal_softmax(head, bound):
    # softplus(log(e - 1)) = 1, inside the range and beyond it
    plif = load(make(head, num_pieces=8, bound=bound), raw_slope=math.log(math.e - 1) * torch.ones(8).double())
    assert_same(log_probs(plif), log_probs(load(make("softmax"), **shared(plif))))


@of("multimax")
def test_temperatures_of_zero_equal_softmax(head):
    multimax = load(make(head), temperatures=0.0)
    assert_same(log_probs(multimax), log_probs(load(make("softmax"), **shared(multimax))))


@of("multimax")
def test_a_temperature_that_undoes_the_logits_above_a_bound_makes_them_all_equal(head):
    # t_d1 = -1 and d_1 far below: sigma(z) = z - (z - d_1) = d_1 for every word
    flat = log_probs(load(make(head), temperatures=[0.0, -1.0, 0.0, 0.0], bounds=[0.0, -100.0, 0.0, 0.0]))
    torch.testing.assert_close(flat, torch.full_like(flat, -math.log(V)), rtol=0, atol=1e-12)


@of("moc")
def test_equal_facets_mixed_equal_the_softmax_of_one(head):
    moc, one = make(head, num_mixtures=3), make(head, num_mixtures=1)
    load(moc, latent__weight=one.latent.weight.repeat(3, 1), latent__bias=one.latent.bias.repeat(3))
    latent = torch.tanh(states().layers[-1] @ one.latent.weight.T + one.latent.bias)
    expected = (latent @ moc.output.weight.T + moc.output.bias).log_softmax(-1)
    assert_same(log_probs(moc), expected)
    assert_same(log_probs(load(one, **shared(moc))), expected)


@of("mos")
@pytest.mark.parametrize("gate", ["constant", "static"])
def test_a_gate_without_context_equals_a_learned_one_of_zero_weights(head, gate):
    learned = make(head, num_mixtures=3, prior_bias=gate == "static")
    load(learned, prior__weight=torch.zeros(3, E))
    found = load(make(head, num_mixtures=3, gate=gate), **shared(learned, "latent"))
    if gate == "static":
        load(found, static_prior=learned.prior.bias)
    assert_same(log_probs(found), log_probs(learned))


@of("softmax")
def test_a_soft_cap_is_a_sigmoid_cap_less_a_constant(head):
    capped = make(head, softcap=1.5)
    same = load(make(head, softcap={"a": 3.0, "b": 0.0, "c": 0.75}), **shared(capped))
    assert_same(log_probs(same), log_probs(capped))
    assert (log_probs(load(make(head), **shared(capped))) - log_probs(capped)).abs().max() > 0.1


@of("softmax")
def test_centring_changes_logits_by_a_constant_that_only_a_cap_sees(head):
    plain, capped = make(head), make(head, softcap=1.5)
    centred = load(make(head, mu_centering=True), **shared(plain))
    assert_same(log_probs(centred), log_probs(plain))
    assert_same(centred(states()).weight_VE.mean(0), torch.zeros(E).double())
    both = load(make(head, mu_centering=True, softcap=1.5), **shared(capped))
    assert (log_probs(both) - log_probs(capped)).abs().max() > 0.1


@of("harmonic")
def test_distances_in_another_unit_change_no_harmonic_probability(head):
    harmonic = make(head, projection=True)
    before = log_probs(harmonic)
    assert_same(log_probs(load(harmonic, **{k: 8 * v for k, v in shared(harmonic, "facet").items()})), before)


@of("harmonic")
def test_a_word_at_the_state_is_certain_with_any_exponent(head):
    for exponent in (1.0, 30.0):
        harmonic = make(head, exponent=exponent)
        load(harmonic.output, weight=torch.cat([states().layers[-1][0], 9 * torch.ones(V - 6, E).double()]))
        certain = harmonic(states()).nll(torch.arange(6)[None])
        assert certain.max() < (1e-2 if exponent == 1 else 1e-12)


@of("ngpt")
def test_cosines_do_not_see_norms(head):
    ngpt = make(head, projection=True)
    before = log_probs(ngpt)
    longer = torch.arange(1, V + 1)[:, None] * ngpt.output.weight
    facet = {"facet__weight": 3 * ngpt.facet.weight, "facet__bias": 3 * ngpt.facet.bias}
    assert_same(log_probs(load(ngpt, output__weight=longer, **facet)), before)
    assert_same(log_probs(load(ngpt, scale=torch.zeros(V))), torch.full((1, 6, V), -math.log(V), dtype=torch.float64))


@pytest.mark.parametrize("maps", ["shared", "linear"])
@of("mtp")
def test_multi_token_prediction_evaluates_as_a_softmax(head, maps):
    mtp = make(head, maps=maps)
    assert_same(log_probs(mtp), log_probs(load(make("softmax"), **shared(mtp))))


@of("nce")
def test_nce_evaluates_as_a_softmax(head):
    targets = torch.tensor([[0, 10, 3, 3, 1, 7]])
    nce, softmax = make(head)(states()), make("softmax")(states())
    assert_same(nce.log_probs(), softmax.log_probs())
    assert_same(nce.nll(targets), softmax.nll(targets))
    assert_same(nce.mean_nll(targets), softmax.mean_nll(targets))
    assert nce.training_loss(targets) - nce.mean_nll(targets) > 0.1


def permuted(tensor, order, width=1):
    """The groups of `width` rows in another order."""
    return tensor.view(len(order), width, -1)[order].reshape(tensor.shape).clone()


@of("mos")
def test_permuting_the_mixtures_changes_nothing(head):
    mos, order = make(head, num_mixtures=3, prior_bias=True), [2, 0, 1]
    before = log_probs(mos)
    load(mos, latent__weight=permuted(mos.latent.weight, order, E), latent__bias=permuted(mos.latent.bias, order, E))
    assert (log_probs(mos) - before).abs().max() > 0.01
    load(mos, prior__weight=permuted(mos.prior.weight, order), prior__bias=permuted(mos.prior.bias, order))
    assert_same(log_probs(mos), before)


@of("doc")
def test_permuting_the_components_of_a_layer_changes_nothing(head):
    doc, order = make(head, components=(2, 3)), [2, 0, 1]
    before = log_probs(doc)
    second = doc.latents[1]
    load(second, weight=permuted(second.weight, order, E), bias=permuted(second.bias, order, E))
    assert (log_probs(doc) - before).abs().max() > 0.01
    load(doc, prior__weight=permuted(doc.prior.weight, [0, 1, 4, 2, 3]))
    assert_same(log_probs(doc), before)


@of("mfs")
def test_permuting_the_components_without_partitions_changes_nothing(head):
    mfs, order = make(head, num_mixtures=4, num_partitions=2), [0, 3, 1, 2]
    before = log_probs(mfs)
    mfs.facets = nn.ModuleList(mfs.facets[i] for i in (0, 1, 4, 2, 3))
    assert (log_probs(mfs) - before).abs().max() > 0.01
    load(mfs, prior__weight=permuted(mfs.prior.weight, order), prior__bias=permuted(mfs.prior.bias, order))
    assert_same(log_probs(mfs), before)


def after_a_shift_of_the_logits(head):
    with torch.no_grad():
        head.output.bias -= 3
    return log_probs(head)


@pytest.mark.parametrize(("name", "params"), rows("shift_invariant"), ids=str)
def test_a_shift_of_all_logits_changes_nothing(name, params):
    head = make(name, **params)
    assert_same(log_probs(head), after_a_shift_of_the_logits(head))


@pytest.mark.parametrize(("name", "params"), rows("shift_sensitive"), ids=str)
def test_a_shift_of_all_logits_changes_the_probabilities_under_a_logit_map(name, params):
    head = make(name, **params)
    assert (log_probs(head).exp() - after_a_shift_of_the_logits(head).exp()).abs().max() > 0.01


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
