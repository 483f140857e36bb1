"""Direct Output Connection: dropout and balance loss."""

import pytest
import torch
from small_heads import E, V, assert_scaled, load, make, states
from torch import nn

from harness.protocols import Hidden

WIDTHS = (3, 4, 5)  # bottom to top


def doc(*components, layer_dims=WIDTHS, **params):
    return make("doc", components=components, layer_dims=layer_dims, **params)


def test_the_counts_are_the_heads_own_though_the_list_that_gave_them_changes():
    given = [2, 1]
    head = make("doc", components=given, layer_dims=WIDTHS)
    given.append(1)
    assert head.counts == (2, 1)


def test_dropout_acts_in_training_only_and_scales_what_it_keeps():
    head, hidden = doc(2, 1, dropout=0.2), states(2000, 2, widths=WIDTHS)
    evaluated = head.eval()(hidden).facets_NFE
    assert torch.equal(evaluated, doc(2, 1)(hidden).facets_NFE)
    assert_scaled(head.train()(hidden).facets_NFE, evaluated, 0.2, masks=2000 * E)


def test_one_dropout_mask_a_sequence_is_shared_by_time_and_components_and_differs_between_rows():
    kept = doc(2, 1, dropout=0.5).train()(states(40, 5, widths=WIDTHS)).facets_NFE.view(40, 5, 3, E) != 0
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


def gated(**params):
    """The distribution of a head whose gate is GATE_BTJ."""
    head = load(doc(2, 1, layer_dims=(4, 3), **params), prior__weight=torch.eye(3))
    gate = torch.tensor(GATE_BTJ, dtype=torch.float64)
    return head(Hidden((torch.ones(2, 2, 4, dtype=torch.float64), gate.log())))


@pytest.mark.parametrize(
    ("given", "form"), [({}, "paper"), ({"balance": "paper"}, "paper"), ({"balance": "code"}, "code")]
)
def test_balance_loss_is_the_hand_calculation_and_part_of_the_training_loss_only(given, form):
    assert gated(**given).aux_loss.item() == pytest.approx(0.001 * IMBALANCE[form], abs=1e-12)
    targets = torch.tensor([[0, 1], [2, V - 1]])
    for weight in (0.0, 0.5, 1.0, 2.0):
        distribution = gated(**given, balance_weight=weight)
        assert distribution.aux_loss.item() == pytest.approx(weight * IMBALANCE[form], abs=1e-12)
        mean = distribution.mean_nll(targets)
        assert (distribution.training_loss(targets) - mean).item() == pytest.approx(weight * IMBALANCE[form], abs=1e-12)
        assert mean.item() == pytest.approx(distribution.nll(targets).mean().item(), abs=1e-12)


@pytest.mark.parametrize("balance", ["paper", "code"])
def test_an_even_gate_costs_nothing(balance):
    head = doc(2, 1, balance=balance, balance_weight=1.0)
    nn.init.zeros_(head.prior.weight)
    assert head(states(widths=WIDTHS)).aux_loss.item() == pytest.approx(0, abs=1e-24)


def test_rows_that_use_components_in_turn_cost_nothing_in_the_papers_form_only():
    # one row all on the first, one all on the second: beta = (1, 1); S = (1, 0; 0, 1), var 1/3, (1/3) 1 / (1/2)^2 = 4/3
    prior = torch.eye(2, dtype=torch.float64)[:, None]
    assert doc(2).imbalance(prior).item() == pytest.approx(0, abs=1e-15)
    assert doc(2, balance="code").imbalance(prior).item() == pytest.approx(4 / 3, abs=1e-12)
