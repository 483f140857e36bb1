"""Direct Output Connection: parameters, which layer feeds which component, dropout, balance loss, what it refuses."""

import math

import pytest
import torch
from handmade import count
from torch import nn

from harness.heads.doc import DirectOutputConnection
from harness.protocols import HeadDims, Hidden

V, E = 11, 6
WIDTHS = (3, 4, 5)  # bottom to top


def make(components, *, layer_dims=WIDTHS, d_model_embed=E, vocab_size=V, **params):
    torch.manual_seed(0)
    dims = HeadDims(vocab_size=vocab_size, layer_dims=layer_dims, d_embed=d_model_embed)
    embedding = nn.Embedding(vocab_size, d_model_embed)
    return DirectOutputConnection(dims, embedding, components=components, **params).double()


def states(*shape, widths=WIDTHS):
    generator = torch.Generator().manual_seed(1)
    shape = shape or (2, 3)
    return Hidden(tuple(torch.randn(*shape, width, dtype=torch.float64, generator=generator) for width in widths))


def from_layer(width, components):
    """A_m and a_m of one layer's components."""
    return components * (width * E + E)


@pytest.mark.parametrize(
    # HEADS.md section 5: mos on the top layer, n_2 J_2 d + J_2 d for the second, D J for the gate; no gate for J = 1
    ("components", "expected"),
    [
        ((1,), from_layer(5, 1)),
        ((4,), from_layer(5, 4) + 5 * 4),
        ((3, 2), from_layer(5, 3) + from_layer(4, 2) + 5 * 5),
        ((1, 0, 2), from_layer(5, 1) + from_layer(3, 2) + 5 * 3),
        ((0, 1), from_layer(4, 1)),
        ((0, 0, 2), from_layer(3, 2) + 5 * 2),
        ({"top": 3, "second": 2}, from_layer(5, 3) + from_layer(4, 2) + 5 * 5),
        ({"third": 2, "top": 1}, from_layer(5, 1) + from_layer(3, 2) + 5 * 3),
        ({"second": 1}, from_layer(4, 1)),
    ],
)
def test_parameters_by_formula(components, expected):
    assert count(make(components)) == expected + V * E + V
    assert count(make(components, bias=False)) == expected + V * E


def test_defaults_are_takases_fifteen_and_five():
    dims = HeadDims(vocab_size=V, layer_dims=WIDTHS, d_embed=E)
    expected = from_layer(5, 15) + from_layer(4, 5) + 5 * 20
    assert count(DirectOutputConnection(dims, nn.Embedding(V, E))) == expected + V * E + V


def test_components_may_be_given_as_a_list():
    assert make([3, 2]).counts == make((3, 2)).counts == (3, 2)


def test_another_embedding_width_is_the_facets_and_the_output_matrixs():
    assert count(make((2, 1), d_embed=3)) == 2 * (5 * 3 + 3) + (4 * 3 + 3) + 5 * 3 + V * 3 + V


def test_tied_weights_are_the_embedding_itself():
    embedding = nn.Embedding(V, E)
    dims = HeadDims(vocab_size=V, layer_dims=WIDTHS, d_embed=E)
    assert DirectOutputConnection(dims, embedding, tie_weights=True).output.weight is embedding.weight
    assert DirectOutputConnection(dims, embedding).output.weight is not embedding.weight


def test_matrices_are_xavier_uniform():
    head = make((4, 2), layer_dims=(9, 30, 40), d_model_embed=60, vocab_size=400)
    assert [latent.weight.shape for latent in head.latents] == [(4 * 60, 40), (2 * 60, 30)]
    for matrix in (head.output.weight, *(latent.weight for latent in head.latents), head.prior.weight):
        bound = math.sqrt(6 / sum(matrix.shape))
        assert 0.98 * bound < matrix.abs().max() <= bound * (1 + 1e-6)
        assert matrix.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


def test_components_read_their_layers_from_the_top_down():
    head, hidden = make((2, 0, 1)), states()
    facets = head(hidden).facets_NFE.view(2, 3, 3, E)
    top, third = head.latents
    torch.testing.assert_close(facets[:, :, :2].flatten(2), torch.tanh(top(hidden.layers[2])), rtol=0, atol=1e-12)
    torch.testing.assert_close(facets[:, :, 2], torch.tanh(third(hidden.layers[0])), rtol=0, atol=1e-12)


def test_the_gate_sees_the_top_layer_only():
    head, hidden = make((2, 1, 1)), states()
    before = head(hidden).log_prior_NK
    torch.testing.assert_close(before.view(2, 3, 4), head.prior(hidden.layers[2]).log_softmax(-1), rtol=0, atol=1e-12)
    lower = Hidden((hidden.layers[0] + 1, hidden.layers[1] + 1, hidden.layers[2]))
    assert torch.equal(head(lower).log_prior_NK, before)


def test_one_component_has_no_gate_and_nothing_to_balance():
    head = make((0, 1))
    assert head.prior is None
    assert head(states()).log_prior_NK is None
    assert head(states()).aux_loss == 0


def test_fewer_layers_than_it_was_built_for_are_an_error():
    with pytest.raises(ValueError, match="zip"):
        make((1, 1), layer_dims=(5, 5))(Hidden(states(widths=(5,)).layers))


def test_dropout_acts_in_training_only_and_scales_what_it_keeps():
    head, hidden = make((2, 1), dropout=0.2), states(2000, 2)
    evaluated = head.eval()(hidden).facets_NFE
    torch.testing.assert_close(evaluated, make((2, 1))(hidden).facets_NFE, rtol=0, atol=0)
    trained = head.train()(hidden).facets_NFE
    kept = trained != 0
    # 2000 x 6 masks are drawn
    assert kept.double().mean().item() == pytest.approx(0.8, abs=5 * 0.4 / math.sqrt(2000 * E))
    torch.testing.assert_close(trained[kept], evaluated[kept] / 0.8, rtol=0, atol=1e-12)


def test_one_dropout_mask_a_sequence_is_shared_by_time_and_components_and_differs_between_rows():
    kept = make((2, 1), dropout=0.5).train()(states(40, 5)).facets_NFE.view(40, 5, 3, E) != 0
    mask = kept[:, :1, :1]
    assert torch.equal(kept, mask.expand_as(kept))
    assert 0.3 < (mask[:-1] == mask[1:]).double().mean().item() < 0.7
    assert 0.3 < (mask[..., :-1] == mask[..., 1:]).double().mean().item() < 0.7


GATE_BTJ = [  # two rows of two positions, three components
    [[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]],
    [[0.25, 0.375, 0.375], [0.25, 0.625, 0.125]],
]
# paper: beta = (1.5, 1.5, 1), mean 4/3, deviations (1/6, 1/6, -1/3), var (1/6) / 2 = 1/12;  (1/12) / (4/3)^2 = 3/64
# code: S = (1, .5, .5; .5, 1, .5), mean 2/3, deviations 1/3 twice and -1/6 four times, var (1/3) / 5 = 1/15;
#     (1/15) (3 - 1) / (2/3)^2 = 3/10
IMBALANCE = {"paper": 3 / 64, "code": 3 / 10}


def gated(balance, **params):
    """The distribution of a head whose gate is GATE_BTJ."""
    head = make((2, 1), layer_dims=(4, 3), balance=balance, **params)
    with torch.no_grad():
        head.prior.weight.copy_(torch.eye(3))
    gate = torch.tensor(GATE_BTJ, dtype=torch.float64)
    return head(Hidden((torch.ones(2, 2, 4, dtype=torch.float64), gate.log())))


@pytest.mark.parametrize("balance", ["paper", "code"])
def test_balance_loss_is_the_hand_calculation(balance):
    for weight in (0.0, 0.5, 1.0):
        found = gated(balance, balance_weight=weight).aux_loss.item()
        assert found == pytest.approx(weight * IMBALANCE[balance], abs=1e-12)
    assert gated(balance).aux_loss.item() == pytest.approx(0.001 * IMBALANCE[balance], abs=1e-12)


def test_the_papers_form_is_the_default():
    head = make((2, 1))
    prior = torch.tensor(GATE_BTJ, dtype=torch.float64)
    assert head.imbalance(prior).item() == pytest.approx(IMBALANCE["paper"], abs=1e-12)


def test_the_balance_loss_is_part_of_the_training_loss_only():
    distribution, targets = gated("paper", balance_weight=2.0), torch.tensor([[0, 1], [2, V - 1]])
    added = distribution.training_loss(targets) - distribution.mean_nll(targets)
    assert added.item() == pytest.approx(2 * IMBALANCE["paper"], abs=1e-12)
    assert distribution.mean_nll(targets).item() == pytest.approx(distribution.nll(targets).mean().item(), abs=1e-12)


@pytest.mark.parametrize("balance", ["paper", "code"])
def test_an_even_gate_costs_nothing(balance):
    head = make((2, 1), balance=balance, balance_weight=1.0)
    nn.init.zeros_(head.prior.weight)
    assert head(states()).aux_loss.item() == pytest.approx(0, abs=1e-24)


def test_rows_that_use_components_in_turn_cost_nothing_in_the_papers_form_only():
    # one row all on the first, one all on the second: beta = (1, 1); S = (1, 0; 0, 1), var 1/3, (1/3) 1 / (1/2)^2 = 4/3
    prior = torch.eye(2, dtype=torch.float64)[:, None]
    assert make((2,)).imbalance(prior).item() == pytest.approx(0, abs=1e-15)
    assert make((2,), balance="code").imbalance(prior).item() == pytest.approx(4 / 3, abs=1e-12)


def test_the_published_epsilon_is_added_to_the_probability_when_asked_for():
    expected = (make((2, 1))(states()).log_probs().exp() + 1e-3).log()
    found = make((2, 1), compat={"log_epsilon": 1e-3})(states()).log_probs()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"components": ()}, r"at least 1 in total, got \(\)"),
        ({"components": {}}, r"at least 1 in total, got \(\)"),
        ({"components": (0, 0)}, r"at least 1 in total, got \(0, 0\)"),
        ({"components": {"second": 0}}, r"at least 1 in total, got \(0, 0\)"),
        ({"components": (2, -1)}, r"at least 0 each, and at least 1 in total, got \(2, -1\)"),
        ({"components": (1, 1, 1, 1)}, "components: 4 layers are named, but the backbone has 3"),
        ({"components": {"third": 1}, "layer_dims": (4, 5)}, "components: 3 layers are named, but the backbone has 2"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1\.0"),
        ({"dropout": 1.5}, r"dropout must be in \[0, 1\), got 1\.5"),
        ({"dropout": -0.1}, r"dropout must be in \[0, 1\), got -0\.1"),
        ({"balance_weight": -0.1}, r"balance_weight must be at least 0, got -0\.1"),
        ({"d_embed": 0}, "d_embed must be at least 1, got 0"),
        ({"tie_weights": True, "d_embed": E - 1}, "tie_weights: the embedding has width 6, d_embed is 5"),
    ],
)
def test_bad_parameters_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        make(**{"components": (1, 1), **params})


@pytest.mark.parametrize(
    "params",
    [
        {"components": (1, 1, 1)},
        {"components": (1,)},
        {"components": {"top": 2}, "layer_dims": (5,)},
        {"components": {"second": 1}, "layer_dims": (4, 5)},
        {"components": {"top": 1, "second": 0, "third": 1}},
        {"dropout": 0.0},
        {"dropout": 0.99},
        {"balance_weight": 0.0},
        {"d_embed": 1},
    ],
)
def test_values_at_the_bounds_are_accepted(params):
    head = make(**{"components": (1, 1), **params})
    assert head(states(widths=params.get("layer_dims", WIDTHS))).log_probs().shape == (2, 3, V)
