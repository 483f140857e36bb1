"""Direct Output Connection: dropout, and gates whose balance costs nothing."""

import pytest
import torch
from small_heads import E, assert_scaled, make, states

WIDTHS = (3, 4, 5)  # bottom to top


def doc(*components, layer_dims=WIDTHS, **params):
    return make("doc", components=components, layer_dims=layer_dims, **params)


def test_one_dropout_mask_a_sequence_is_shared_by_time_and_components_and_differs_between_rows():
    head, hidden = doc(2, 1, dropout=0.5), states(2000, 5, widths=WIDTHS)
    evaluated = head.eval()(hidden).facets_NFE
    assert torch.equal(evaluated, doc(2, 1)(hidden).facets_NFE)
    trained = head.train()(hidden).facets_NFE
    assert_scaled(trained, evaluated, 0.5, masks=2000 * E)
    kept = trained.view(2000, 5, 3, E) != 0
    mask = kept[:, :1, :1]
    assert torch.equal(kept, mask.expand_as(kept))
    assert 0.3 < (mask[:-1] == mask[1:]).double().mean().item() < 0.7
    assert 0.3 < (mask[..., :-1] == mask[..., 1:]).double().mean().item() < 0.7


def test_rows_that_use_components_in_turn_cost_nothing_in_the_papers_form_only():
    # one row all on the first, one all on the second: beta = (1, 1); S = (1, 0; 0, 1), var 1/3, (1/3) 1 / (1/2)^2 = 4/3
    prior = torch.eye(2, dtype=torch.float64)[:, None]
    assert doc(2).imbalance(prior).item() == pytest.approx(0, abs=1e-15)
    assert doc(2, balance="code").imbalance(prior).item() == pytest.approx(4 / 3, abs=1e-12)
