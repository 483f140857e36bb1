"""Direct Output Connection: dropout, and gates whose balance costs nothing."""

import pytest
import torch
from small_heads import E, assert_scaled, make, states
from torch import nn

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
