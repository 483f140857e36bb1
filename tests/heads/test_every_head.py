"""What heads have in common, a row for each case: parameters by formula, how matrices start, what is refused."""

import itertools
import math
import re

import pytest
import torch
from handmade import count
from small_heads import D, E, V, assert_fills, assert_independent, assert_scaled, load, make, states
from torch import nn

from harness.protocols import Hidden

DOC, POSTER, MFS = (3, 4, 5), (3, 4, 6, 5), (3, 4, 6)  # widths of the layers, bottom to top
OUTPUT = V * E + V
SINGLE = ("softmax", "sigsoftmax", "gss", "nce", "plif")
EPSILON = "expected a log_epsilon between 0 and 1"


def sizes_of_one_softmax():
    """A softmax's; c and k of gss are numbers; plif has a slope for each piece."""
    for name, more in [*((name, {}) for name in SINGLE[:-1]), *(("plif", {"num_pieces": M}) for M in (1, 8))]:
        pieces, projection = more.get("num_pieces", 0), {"projection": True, "layer_dims": (9, D)}
        yield name, more, OUTPUT + pieces
        yield name, {**more, "bias": False}, V * E + pieces
        yield name, {**more, "tie_weights": True}, OUTPUT + pieces
        yield name, {**more, **projection}, OUTPUT + pieces + D * E + E
        yield name, {**more, **projection, "bias": False}, V * E + pieces + D * E + E
    yield "softmax", {**projection, "d_embed": 3}, D * 3 + 3 + V * 3 + V
    for more in (
        {"mu_centering": True},
        {"mu_loss": 0.1},
        {"logit_map": "stablemax"},
        {"softcap": {"a": 2.0, "b": 1.0, "c": 3.0}},
    ):
        yield "softmax", more, OUTPUT


def sizes_of_the_heads_of_today():
    """harmonic: a softmax's without b; ngpt: a scale for each word, or one; mtp: D E + E for each word ahead; multimax:
    eight numbers.
    """
    projection = {"projection": True, "layer_dims": (9, D)}
    for name, scales in (("harmonic", 0), ("ngpt", V)):
        yield name, {}, V * E + scales
        yield name, {"tie_weights": True}, V * E + scales
        yield name, projection, V * E + scales + D * E + E
    yield "harmonic", {"exponent": 3.0}, V * E
    yield "ngpt", {"bias": True}, OUTPUT + V
    yield "ngpt", {"scale": "one"}, V * E + 1
    yield "multimax", {}, OUTPUT + 8
    yield "multimax", {"bias": False}, V * E + 8
    yield "multimax", projection, OUTPUT + 8 + D * E + E
    yield "mtp", {}, OUTPUT
    yield "mtp", {"bias": False}, V * E
    yield "mtp", {"tie_weights": True}, OUTPUT
    yield "mtp", {"further": (1.0,), **projection}, OUTPUT + D * E + E
    yield "mtp", {"further": (1.0, 1.0), "maps": "linear"}, OUTPUT + 2 * (E * E + E)
    yield "mtp", {"further": (1.0,), "maps": "linear", **projection}, OUTPUT + 2 * (D * E + E)
    for given, F in (({"d_ff": 5}, 5), ({}, 4 * E)):
        block = (4 * E * E + 4 * E) + 2 * 2 * E + (E * F + F + F * E + E)  # attention, two norms, feed-forward
        yield "mtp_module", given, OUTPUT + 3 * E + 2 * E * E + block  # with the gains of three norms, and M
        yield "mtp_module", {**given, **projection}, OUTPUT + D * E + E + D + 2 * E + (D + E) * E + block
    yield "bag_of_words", {}, OUTPUT + V * E + V
    yield "bag_of_words", {"tie_weights": True, **projection}, OUTPUT + D * E + E + V * E + V
    yield "token_order", {}, OUTPUT + V * E
    yield "token_order", {"tie_weights": True, **projection}, OUTPUT + D * E + E + V * E
    yield "byte_loss", {}, OUTPUT + 4 * 257 * (E + 1)
    yield "byte_loss", {"num_bytes": 2, "tie_weights": True, **projection}, OUTPUT + D * E + E + 2 * 257 * (E + 1)
    yield "untying", {}, OUTPUT  # the embedding is the backbone's
    yield "untying", {"bias": False, **projection}, V * E + D * E + E
    yield "early", {"layer_dims": (9, 5, E)}, OUTPUT + 5 * E + E  # the middle one of three layers
    yield "early", {"layer_dims": (9, 5, D), "layer": 0, "projection": True}, OUTPUT + D * E + E + 9 * E + E


def sizes_of_mixtures():
    """D K d + K d + D K, and the output matrix and bias; no prior for K = 1."""
    for K in (1, 2, 5):
        given = {"num_mixtures": K, "layer_dims": (9, D)}
        facets, prior, prior_bias = D * K * E + K * E, *((D * K, K) if K > 1 else (0, 0))
        for name in ("mos", "moc"):
            yield name, given, facets + prior + OUTPUT
            yield name, {**given, "prior_bias": True}, facets + prior + prior_bias + OUTPUT
            yield name, {**given, "bias": False}, facets + prior + V * E
            yield name, {**given, "d_embed": 3}, D * K * 3 + K * 3 + prior + V * 3 + V
        yield "mos", {**given, "gate": "constant"}, facets + OUTPUT
        yield "mos", {**given, "gate": "static"}, facets + prior_bias + OUTPUT


def sizes_of_doc():
    """A_m and a_m of each layer's components, D J for the gate; no gate for J = 1. By default Takase's (15, 5)."""

    def layer(width, J):
        return J * (width * E + E)

    for components, expected in (
        ((1,), layer(5, 1)),
        ((4,), layer(5, 4) + 5 * 4),
        ((3, 2), layer(5, 3) + layer(4, 2) + 5 * 5),
        ([3, 2], layer(5, 3) + layer(4, 2) + 5 * 5),
        ((1, 0, 2), layer(5, 1) + layer(3, 2) + 5 * 3),
        ((0, 1), layer(4, 1)),
        ((0, 0, 2), layer(3, 2) + 5 * 2),
        ({"top": 3, "second": 2}, layer(5, 3) + layer(4, 2) + 5 * 5),
        ({"third": 2, "top": 1}, layer(5, 1) + layer(3, 2) + 5 * 3),
        ({"second": 1}, layer(4, 1)),
    ):
        yield "doc", {"components": components, "layer_dims": DOC}, expected + OUTPUT
        yield "doc", {"components": components, "layer_dims": DOC, "bias": False}, expected + V * E
    yield "doc", {"layer_dims": DOC}, layer(5, 15) + layer(4, 5) + 5 * 20 + OUTPUT
    narrow = 2 * (5 * 3 + 3) + (4 * 3 + 3) + 5 * 3 + V * 3 + V
    yield "doc", {"components": (2, 1), "layer_dims": DOC, "d_embed": 3}, narrow


def sizes_of_the_posters_heads():
    """doc_poster: a facet D_l d + d for each layer, the gate g K + K with g the widths' sum. mfs: with the layers' own
    widths, (w + 1) sum_l D_l in the place of I d. No gate for K = 1.
    """
    two = (6 * E + E) + (5 * E + E) + (6 + 5) * 2 + 2 + V * E
    for given, expected in (
        ({}, (4 * E + E) + (6 * E + E) + (5 * E + E) + (4 + 6 + 5) * 3 + 3 + V * E),
        ({"num_mixtures": 1}, 5 * E + E + V * E),
        ({"num_mixtures": 2}, two),
        ({"num_mixtures": 4}, (3 + 4 + 6 + 5) * E + 4 * E + (3 + 4 + 6 + 5) * 4 + 4 + V * E),
        ({"num_mixtures": 2, "bias": True}, two + V),
        ({"num_mixtures": 2, "tie_weights": True}, two),
    ):
        yield "doc_poster", {**given, "layer_dims": POSTER}, expected
    plain = V * E + (3 * 13 * E + E) + 6 * ((6 + E) * E + E) + ((6 + E) * 3 + 3)
    for given, more in (({}, 0), ({"bias": True}, V), ({"norm_inputs": True}, 0), ({"tie_weights": True}, 0)):
        yield "mfs", {**given, "layer_dims": MFS}, plain + more
    num_mixtures, layers = (1, 1, 1, 4, 3, 3, 3, 2), (1, 3, 1, 1, 3, 1, 3, 1)
    windows, partitions = (0, 2, 0, 0, 2, 0, 2, 1), (1, 1, 4, 1, 1, 4, 4, 3)
    for K, H, w, P in zip(num_mixtures, layers, windows, partitions, strict=True):
        for widths in ((6, 6, 6), MFS, DOC):
            multi_input = H * (w + 1) > 1
            query = widths[-1] + E if multi_input else widths[-1]
            block = (w + 1) * sum(widths[-H:]) * E + E if multi_input else 0
            gate = query * K + K if K > 1 else 0
            given = {"num_mixtures": K, "num_input_layers": H, "window": w, "num_partitions": P, "layer_dims": widths}
            yield "mfs", given, V * E + block + (P + K - 1) * (query * E + E) + gate


def sizes_of_mixtape():
    """H 4 E D; U 3 d_gate D; u 3 D; v d_gate and e 3 for each gate, of which there are R + 1; W and b."""

    def parts(d_gate, R, V=20):
        return 4 * E * D + 3 * d_gate * D + 3 * D + (R + 1) * (d_gate + 3) + V * E + V

    of_20_words = {"layer_dims": (9, D), "vocab_size": 20}
    for own_gates, R in ((0.0, 0), (0.1, 2), (0.13, 3), (0.5, 10), (1.0, 20)):  # R: own_gates V to the nearest
        given = {"d_gate": 3, "own_gates": own_gates, **of_20_words}
        yield "mixtape", given, parts(3, R)
        yield "mixtape", {**given, "bias": False}, parts(3, R) - 20
        yield "mixtape", {**given, "tie_weights": True}, parts(3, R)
    yield "mixtape", of_20_words, parts(32, 2)  # by default gates 32 wide for a tenth of the words


FORMULAS = (
    *(sizes_of_one_softmax, sizes_of_mixtures, sizes_of_doc, sizes_of_the_posters_heads, sizes_of_mixtape),
    sizes_of_the_heads_of_today,
)
SIZES = [row for sizes in FORMULAS for row in sizes()]


@pytest.mark.parametrize(("name", "given", "expected"), SIZES, ids=str)
def test_parameters_follow_the_formulas_of_heads_md(name, given, expected):
    assert count(make(name, **given)) == expected


@pytest.mark.parametrize(
    ("name", "params", "matrices", "near"),
    [
        *(
            (name, {"projection": True}, "output facet", (0.98, 0.05))
            for name in (*SINGLE, "harmonic", "ngpt", "multimax")
        ),
        ("mtp", {"projection": True, "maps": "linear"}, "output facet ahead.0 ahead.1", (0.98, 0.05)),
        ("mtp_module", {"projection": True}, "output facet merge", (0.98, 0.05)),
        ("bag_of_words", {"projection": True}, "output facet unembedding", (0.98, 0.05)),
        ("token_order", {"projection": True}, "output facet unembedding", (0.98, 0.05)),
        ("early", {"projection": True}, "output facet early", (0.98, 0.05)),
        ("byte_loss", {"projection": True}, "output facet spelling", (0.98, 0.05)),
        ("untying", {"projection": True}, "facet", (0.98, 0.05)),
        *((name, {"num_mixtures": 20}, "output latent prior", (0.98, 0.05)) for name in ("mos", "moc")),
        ("doc", {"components": (4, 2)}, "output latents.0 latents.1 prior", (0.98, 0.1)),
        ("mixtape", {"d_gate": 20}, "output latent gate_hidden gate_context", (0.95, 0.15)),
    ],
)
def test_matrices_start_xavier_uniform(name, params, matrices, near):
    head = make(name, layer_dims=(9, 30, 40), embedding=60, vocab_size=400, dtype=None, **params)
    for matrix in matrices.split():
        weight = head.get_submodule(matrix).weight
        assert_fills(weight, math.sqrt(6 / sum(weight.shape)), nearly=near[0], rel=near[1])


def assert_torchs_default(layers):
    for layer in layers:
        assert_fills(layer.weight, 1 / math.sqrt(layer.in_features))
        assert 0 < layer.bias.abs().max() <= 1 / math.sqrt(layer.in_features)


TOP = {"num_input_layers": 1, "window": 0}  # mfs without Multi-input
with_facets = pytest.mark.parametrize(("name", "given"), [("mfs", {}), ("mfs", TOP), ("doc_poster", {})], ids=str)


@with_facets
def test_facets_of_the_embeddings_width_start_as_their_state_with_noise_on_all_but_the_last(name, given):
    head = make(name, layer_dims=(40, 40, 40), embedding=40, dtype=None, **given)
    *noisy, last = head.facets
    state = torch.eye(*last.weight.shape)  # [identity | 0]
    assert torch.equal(last.weight, state)
    noises = [(facet.weight - state).detach() for facet in noisy]
    for noise in noises:
        assert 4.9e-5 < noise.max().item() <= 5.01e-5  # 1e-4 (U(0, 1) - 0.5), on 1: rounded to 6e-8
        assert -5.01e-5 <= noise.min().item() < -4.9e-5
        assert abs(noise.mean().item()) < 5 * 1e-4 / math.sqrt(12 * noise.numel())
    assert not torch.equal(*noises[:2])
    assert not any(facet.bias.any() for facet in head.facets)
    assert_torchs_default([head.prior, *([head.block] if (name, given) == ("mfs", {}) else [])])
    only = make(name, num_mixtures=1, **given, **({"num_partitions": 1} if name == "mfs" else {})).facets[0].weight
    assert torch.equal(only, torch.eye(*only.shape, dtype=torch.float64))


@with_facets
def test_facets_of_another_width_the_block_and_the_gate_keep_torchs_default(name, given):
    head = make(name, layer_dims=(30, 60, 40), embedding=60, vocab_size=7, dtype=None, **given)
    facets = list(head.facets)
    if name == "doc_poster":
        state = facets.pop(1)  # of the layer whose width is the embedding's
        assert (state.weight - torch.eye(60)).abs().max() <= 5.01e-5
        assert not state.bias.any()
    assert_torchs_default([*facets, head.prior, *([head.block] if (name, given) == ("mfs", {}) else [])])


@pytest.mark.parametrize("name", ["mfs", "doc_poster"])
@pytest.mark.parametrize("draw", [0.0, 1.0])
def test_the_noise_of_a_facet_spans_half_a_ten_thousandth_to_either_side(monkeypatch, name, draw):
    monkeypatch.setattr(torch, "rand_like", lambda tensor: torch.full_like(tensor, draw))
    alone = {"num_partitions": 1, **TOP} if name == "mfs" else {}
    first = make(name, layer_dims=(E, E), num_mixtures=2, **alone).facets[0].weight
    expected = torch.eye(E, dtype=torch.float64) + 1e-4 * (draw - 0.5)
    torch.testing.assert_close(first.detach(), expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("name", "params"), [("doc", {"components": (1, 1)}), ("doc_poster", {"num_mixtures": 2})])
def test_fewer_layers_than_a_head_was_built_for_are_an_error(name, params):
    with pytest.raises(ValueError, match="zip"):
        make(name, layer_dims=(5, 5), **params)(states(widths=(5,)))


@pytest.mark.parametrize(("name", "num_mixtures"), [("mos", 3), ("moc", 1)])  # one facet is dropped as it is, not mixed
def test_dropout_acts_in_training_only_and_scales_what_it_keeps(name, num_mixtures):
    head, hidden = make(name, num_mixtures=num_mixtures, dropout=0.2), states(20, 30)
    evaluated = head.eval()(hidden).facets_NFE
    assert torch.equal(evaluated, make(name, num_mixtures=num_mixtures)(hidden).facets_NFE)
    assert_scaled(head.train()(hidden).facets_NFE, evaluated, 0.2, masks=evaluated.numel())


@pytest.mark.parametrize("name", ["mos"])
def test_dropout_masks_are_independent_over_positions_rows_components_and_units(name):
    facets_NFE = make(name, num_mixtures=3, dropout=0.5).train()(states(20, 30)).facets_NFE
    assert_independent(facets_NFE.view(20, 30, 3, E) != 0)


@pytest.mark.parametrize("name", ["mos", "moc"])
def test_a_dropout_mask_of_a_sequence_is_shared_by_its_positions_only(name):
    torch.manual_seed(0)
    head = make(name, num_mixtures=1, dropout=0.5, dropout_mask="sequence").train()
    kept_BTE = head(states(40, 5)).facets_NFE.view(40, 5, -1) != 0
    assert torch.equal(kept_BTE, kept_BTE[:, :1].expand_as(kept_BTE))
    assert 0.3 < kept_BTE.double().mean() < 0.7
    assert len({tuple(row) for row in kept_BTE[:, 0].tolist()}) > 10


@pytest.mark.parametrize("name", ["moc"])
def test_dropout_masks_of_facets_that_are_mixed_are_independent_too(name):
    # facets 1/1000 and 1, mixed half and half, doubled where kept: a / 1000 + b, with a and b 1 where kept and 0 else
    latent = {"latent__weight": 0.0, "latent__bias": [math.atanh(0.001)] * E + [100.0] * E}  # tanh: 0.001 and 1
    head = load(make(name, num_mixtures=2, dropout=0.5).train(), **latent, prior__weight=0.0)
    mixed = 1000 * head(states(20, 30)).facets_NFE.view(20, 30, E)
    second = mixed > 500
    first = mixed - 1000 * second > 0.5
    torch.testing.assert_close(mixed, first.double() + 1000 * second, rtol=0, atol=1e-3)
    assert_independent(torch.stack([first, second], dim=2))


@pytest.mark.parametrize("name", ["moc"])
def test_bfloat16_states_give_bfloat16_facets_and_normalised_probabilities(name):
    distribution = make(name, num_mixtures=3, dtype=torch.bfloat16)(Hidden((states().layers[-1].bfloat16(),)))
    assert distribution.facets_NFE.dtype == torch.bfloat16
    sums = distribution.log_probs().double().exp().sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["mos"])
@pytest.mark.parametrize("gate", ["constant", "static"])
def test_a_gate_without_context_starts_even_at_every_position(name, gate):
    log_prior = make(name, num_mixtures=4, gate=gate)(states()).log_prior_NK
    expected = torch.full((6, 4), -math.log(4), dtype=torch.float64)
    torch.testing.assert_close(log_prior, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["softmax", "mos"])
@pytest.mark.parametrize("loss", ["nll", "binary"])
def test_training_minimises_the_chosen_loss_and_evaluation_the_likelihood(name, loss):
    # W = 0: p = 1/V for every word, whatever the gate; binary: log V - (V - 1) log(1 - 1/V)
    expected = {"nll": math.log(V), "binary": math.log(V) - (V - 1) * math.log(1 - 1 / V)}
    head, targets = make(name, bias=False, loss=loss), torch.tensor([[0, 4, V - 1], [2, 2, 2]])
    nn.init.zeros_(head.output.weight)
    distribution = head(states())
    assert distribution.training_loss(targets).item() == pytest.approx(expected[loss], abs=1e-12)
    assert distribution.mean_nll(targets).item() == pytest.approx(math.log(V), abs=1e-12)


def refusals():
    """(head, what it is made with, the sentence)."""
    projection = "projection: the top layer has width 4, the output embedding 6"
    yield from (
        (name, {"layer_dims": (E, D)}, projection)
        for name in (
            *SINGLE,
            "harmonic",
            "ngpt",
            "mtp",
            "multimax",
            "early",
            "token_order",
            "bag_of_words",
            "mtp_module",
            "byte_loss",
            "untying",
        )
    )
    yield from ((name, {"compat": {"log_epsilon": 0.0}}, EPSILON) for name in ("softmax", "sigsoftmax", "mos"))
    for loss in ({"mu_loss": -0.1}, {"mu_loss": 0.1, "mu_centering": True}):
        yield "softmax", loss, f"mu_loss must be at least 0, and 0 with mu_centering, got {loss['mu_loss']}"
    for name in ("softmax", "mos"):
        told = "softcap: the logit map is stablemax already; give one of the two"
        yield name, {"softcap": 30.0, "logit_map": "stablemax"}, told
    yield "multimax", {"init_std": -0.1}, "init_std must be at least 0, got -0.1"
    yield "softmax", {"z_loss": -0.1}, "z_loss must be at least 0, got -0.1"
    for scale in ({"input_gradient_scale": 2.0}, {"input_gradient_scale": 0.0, "tie_weights": True}):
        told = f"1 without tie_weights, got {scale['input_gradient_scale']}"
        yield "softmax", scale, f"input_gradient_scale must be more than 0, and {told}"
    for number in (0.0, -1.0, math.inf, math.nan):
        yield "harmonic", {"exponent": number}, f"exponent must be a finite number above 0, got {number}"
        yield "ngpt", {"scale_start": number}, f"scale_start must be a finite number above 0, got {number}"
    for further in ((), (0.5, 0.0), (-0.5,)):
        yield (
            "mtp",
            {"further": further},
            f"further must have at least one weight, all of them more than 0, got {further}",
        )
    for layer in (-1, 1, 2):
        yield "early", {"layer": layer}, f"layer must be below the top one, which is 1 of this backbone, got {layer}"
    yield "early", {"layer_dims": (E,)}, "layer must be below the top one, which is 0 of this backbone, got 0"
    yield from (("token_order", {"window": size}, f"window must be at least 1, got {size}") for size in (0, -1))
    yield from (("bag_of_words", {"window": size}, f"window must be at least 2, got {size}") for size in (1, 0))
    yield from (("byte_loss", {"num_bytes": n}, f"num_bytes must be at least 1, got {n}") for n in (0, -1))
    for share in (-0.1, 1.0, math.nan):
        told = f"share must be at least 0 and less than 1, got {share}"
        yield "untying", {"share": share}, told
    for heads in (0, -1, 4):
        told = f"num_heads must be at least 1 and divide E = 6, got {heads}"
        yield "mtp_module", {"num_heads": heads}, told
    yield "mtp_module", {"d_ff": 0}, "d_ff must be at least 1, got 0"
    for name in ("softmax", "mos", "moc", "doc", "doc_poster", "mfs", "mtp"):
        yield (
            name,
            {"softcap": {"a": 1.0, "b": 2.0}},
            "softcap: expected a number, or a, b and c, got {'a': 1.0, 'b': 2.0}",
        )
        yield name, {"softcap": -1.0}, "softcap must be a finite number above 0, got -1.0"
    for name in ("mos", "moc", "doc", "mixtape"):
        for dropout in (1.0, 1.5, -0.1):
            yield name, {"dropout": dropout}, f"dropout must be in [0, 1), got {dropout}"
    for name in ("mos", "moc", "doc"):
        yield name, {"d_embed": 0}, "d_embed must be at least 1, got 0"
        yield name, {"tie_weights": True, "d_embed": E - 1}, "tie_weights: the embedding has width 6, d_embed is 5"
    at_least_one = {
        "num_mixtures": ("mos", "moc", "doc_poster", "mfs"),
        "num_input_layers": ("mfs",),
        "num_partitions": ("mfs",),
        "d_gate": ("mixtape",),
        "num_pieces": ("plif",),
        "num_noise": ("nce",),
    }
    for parameter, names in at_least_one.items():
        for name, bad in itertools.product(names, (0, -1)):
            yield name, {parameter: bad}, f"{parameter} must be at least 1, got {bad}"
    for gate in ("constant", "static"):
        told = f"prior_bias is possible for gate 'learned' only, got gate '{gate}'"
        yield "mos", {"prior_bias": True, "gate": gate}, told
    for components, told in (
        ((), "at least 1 in total, got ()"),
        ({}, "at least 1 in total, got ()"),
        ((0, 0), "at least 1 in total, got (0, 0)"),
        ({"second": 0}, "at least 1 in total, got (0, 0)"),
        ((2, -1), "at least 0 each, and at least 1 in total, got (2, -1)"),
        ((1, 1, 1, 1), "components: 4 layers are named, but the backbone has 3"),
    ):
        yield "doc", {"components": components}, told
    too_deep = {"components": {"third": 1}, "layer_dims": (4, 5)}
    yield "doc", too_deep, "components: 3 layers are named, but the backbone has 2"
    yield "doc", {"balance_weight": -0.1}, "balance_weight must be at least 0, got -0.1"
    yield "doc_poster", {"num_mixtures": 5}, "num_mixtures: 5 layers are read, but the backbone has 4"
    yield "mfs", {"window": -1}, "window must be at least 0, got -1"
    yield "mfs", {"num_input_layers": 4}, "num_input_layers: 4 are read, but the backbone has 3"
    yield "mfs", {"num_partitions": V + 1}, "num_partitions must be at most V = 11, got 12"
    yield from (("mixtape", {"own_gates": R}, f"own_gates must be in [0, 1], got {R}") for R in (-0.1, 1.1))
    yield from (("plif", {"bound": bound}, f"bound must be more than 0, got {bound}") for bound in (0.0, -1.0))
    yield "plif", {"noise": -0.1}, "noise must be at least 0, got -0.1"
    yield "plif", {"slope_rate": 0.0}, "slope_rate must be more than 0, got 0.0"
    yield from (("gss", {"k": k}, f"k must be more than 0, got {k}") for k in (0, -0.5, -1))


WIDTHS = {"doc": DOC, "doc_poster": POSTER, "mfs": MFS}
TWO = {"num_mixtures": 2}
USUAL = {"mos": TWO, "moc": TWO, "doc": {"components": (1, 1)}, "plif": {"num_pieces": 8}}


def usual(name, given):
    return {"layer_dims": WIDTHS.get(name, (9, E)), **USUAL.get(name, {}), **given}


@pytest.mark.parametrize(("name", "given", "told"), list(refusals()), ids=str)
def test_bad_parameters_are_refused(name, given, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        make(name, **usual(name, given))


def accepted():
    for name in ("mos", "moc", "doc"):
        yield from ((name, given) for given in ({"dropout": 0.0}, {"dropout": 0.99}, {"d_embed": 1}))
        yield name, {"tie_weights": True, "d_embed": E}
    for name, values in {
        "mos": [
            {"num_mixtures": 1},
            {"prior_bias": True, "gate": "learned"},
            {"prior_bias": False, "gate": "constant"},
        ],
        "moc": [{"num_mixtures": 1}],
        "doc": [
            *({"components": components} for components in ((1, 1, 1), (1,), {"top": 1, "second": 0, "third": 1})),
            {"components": {"top": 2}, "layer_dims": (5,)},
            {"components": {"second": 1}, "layer_dims": (4, 5)},
            {"balance_weight": 0.0},
        ],
        "doc_poster": [{"num_mixtures": 1}, {"num_mixtures": 4}],
        "mfs": [
            *({parameter: 1} for parameter in ("num_mixtures", "num_input_layers", "num_partitions")),
            *({"num_input_layers": 3}, {"num_partitions": V}, {"window": 0}),
        ],
        "softmax": [
            {"mu_loss": 1e-4},
            {"z_loss": 1e-4},
            {"mu_centering": True},
            {"input_gradient_scale": 0.1, "tie_weights": True},
        ],
        "harmonic": [{"exponent": 0.1}],
        "multimax": [{"init_std": 0.0}, {"init_std": 0.1}],
        "ngpt": [{"scale_start": 0.1}],
        "mtp": [{"further": (0.1,)}],
        "mtp_module": [{"num_heads": E}, {"d_ff": 1}, {"weight": 0.0}],
        "bag_of_words": [{"window": 2}, {"weight": 0.0}],
        "token_order": [{"window": 1}, {"weight": 0.0}],
        "early": [{"layer": 0}, {"weight": 0.0}],
        "byte_loss": [{"num_bytes": 1}, {"weight": 0.0}],
        "untying": [{"share": 0.0}, {"share": 0.999}],
        "mixtape": [{"d_gate": 1}, {"own_gates": 0.0}, {"own_gates": 1.0}, {"dropout": 0.0}, {"dropout": 0.99}],
        "plif": [{"num_pieces": 1}, {"bound": 0.5}, {"noise": 0.0}, {"noise": 0.1}],
    }.items():
        yield from ((name, given) for given in values)


@pytest.mark.parametrize(("name", "given"), list(accepted()), ids=str)
def test_values_at_the_bounds_are_accepted(name, given):
    head = make(name, **usual(name, given))
    widths = usual(name, given)["layer_dims"]
    assert head(states(widths=widths)).log_probs().shape == (2, 3, V)
