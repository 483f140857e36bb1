"""What heads have in common, by the table of all heads: parameters by formula, names, starts, what is refused."""

import math
import re

import pytest
import torch
from handmade import count
from head_table import ENTRIES, refused, rows, total, usual, widths
from oracles import HEADS as ORACLES
from small_heads import D, E, V, assert_fills, assert_independent, assert_scaled, load, make, states

from harness.plan.names import names_of
from harness.plan.specs import ComponentSpec
from harness.registry import HEADS

LACKING = {  # what no row of the table says of these heads: tests of their own do
    "start": {"adaptive", "harmonic", "untying", "mfs", "doc_poster"},  # the last two start as the embedding
    "stable": {"adaptive", "harmonic", "multimax"},  # no bias for each word, or a map that squares
    "parameters": set(),
}
LACKING |= {section: set() for section in ("signature", "suite", "labels", "oracle")}


@pytest.mark.parametrize(("section", "lacking"), LACKING.items())
def test_the_table_has_every_head_of_ours(section, lacking):
    ours = {name for name in HEADS.names() if HEADS.origin(name).startswith("heads/")}
    assert ours == set(ORACLES)
    assert ours == set(ENTRIES) - {"kneser_ney"}
    assert {name for name, *_ in rows(section)} - {"kneser_ney"} == ours - lacking


@pytest.mark.parametrize(("name", "given", "formula"), rows("parameters"), ids=str)
def test_parameters_are_counted_by_hand(name, given, formula):
    assert count(make(name, **widths(name) | given)) == total(formula, V=V, D=D, E=E)


@pytest.mark.parametrize(("name", "label", "params"), rows("labels"), ids=str)
def test_a_head_says_its_parameters_in_words(name, label, params):
    spec = ComponentSpec(name=name, params=params)
    assert names_of([spec], HEADS) == {str(spec): label}


@pytest.mark.parametrize(("name", "parameter", "label"), rows("chosen"))
def test_what_is_chosen_later_is_not_said(name, parameter, label):
    spec = ComponentSpec(name=name)
    assert names_of([spec], HEADS, chosen=[parameter]) == {str(spec): label}


@pytest.mark.parametrize(("name", "given", "told"), refused(), ids=str)
def test_bad_parameters_are_refused(name, given, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        make(name, **usual(name, given))


@pytest.mark.parametrize(("name", "given"), rows("accepted"), ids=str)
def test_values_at_the_bounds_are_accepted(name, given):
    made = usual(name, given)
    assert make(name, **made)(states(widths=made["layer_dims"])).log_probs().shape == (2, 3, V)


@pytest.mark.parametrize(("name", "given", "matrices"), rows("xavier"), ids=str)
def test_matrices_start_xavier_uniform(name, given, matrices):
    head = make(name, layer_dims=(9, 30, 40), embedding=60, vocab_size=400, dtype=None, **given)
    for matrix in matrices.split():
        weight = head.get_submodule(matrix).weight
        nearly, rel = (0.98, 0.05) if weight.numel() > 2000 else (0.95, 0.15)
        assert_fills(weight, math.sqrt(6 / sum(weight.shape)), nearly=nearly, rel=rel)


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


@pytest.mark.parametrize(
    ("name", "depth", "chosen", "expected"),
    [
        *(("mfs", depth, "num_input_layers", read) for depth, read in ((1, 1), (2, 2), (5, 3))),
        *(("early", depth, "layer", middle) for depth, middle in ((2, 0), (3, 1), (4, 1), (12, 5))),
    ],
)
def test_the_layers_that_are_read_by_default(name, depth, chosen, expected):
    assert getattr(make(name, layer_dims=(E,) * depth), chosen) == expected


@pytest.mark.parametrize(
    ("name", "given"), [("adaptive", {}), ("mixtape", {}), ("nce", {"init_bias": "unigram"}), ("byte_loss", {})]
)
def test_what_the_corpus_lacks_is_said_when_it_is_needed(name, given):
    needed = "token_bytes" if name == "byte_loss" else "token_counts"
    head = make(name, counts=None, texts=None, **given)
    with pytest.raises(RuntimeError, match=rf"{name} needs HeadDims\.{needed}"):
        head(states()).training_loss(torch.zeros(2, 3, dtype=torch.int64))


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


@pytest.mark.parametrize("name", ["mos"])
@pytest.mark.parametrize("gate", ["constant", "static"])
def test_a_gate_without_context_starts_even_at_every_position(name, gate):
    log_prior = make(name, num_mixtures=4, gate=gate)(states()).log_prior_NK
    expected = torch.full((6, 4), -math.log(4), dtype=torch.float64)
    torch.testing.assert_close(log_prior, expected, rtol=0, atol=1e-12)
