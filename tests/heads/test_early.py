"""The early loss by hand: which layer, which weight, and nothing of it in evaluation."""

import pytest
import torch
from small_heads import E, V, make, states

from harness.protocols import Hidden, followers

WIDTHS = (9, 5, E)
TARGETS = torch.tensor([[0, 4, 10], [2, 2, 1]])


def made(**params):
    return make("early", layer_dims=WIDTHS, **params)


def nll_of_layer(head, hidden, layer):
    """(B, T) -log q(y)."""
    facet = hidden.layers[layer] @ head.early.weight.T + head.early.bias
    logp = (facet @ head.output.weight.T + head.output.bias).log_softmax(-1)
    return -logp.gather(-1, TARGETS[..., None])[..., 0]


@pytest.mark.parametrize(("layer", "number"), [(None, 1), (0, 0), (1, 1)])
def test_the_loss_is_that_of_the_top_layer_and_a_share_of_that_of_a_lower_one(layer, number):
    head, hidden = made(layer=layer, weight=0.25), states(widths=WIDTHS)
    distribution, weight = head(hidden), torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]])
    early = nll_of_layer(head, hidden, number)
    expected = distribution.nll(TARGETS).mean() + 0.25 * early.mean()
    torch.testing.assert_close(distribution.training_loss(TARGETS), expected, rtol=0, atol=1e-12)
    expected = (weight * (distribution.nll(TARGETS) + 0.25 * early)).sum() / 7
    torch.testing.assert_close(distribution.training_loss(TARGETS, weight), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("depth", "middle"), [(2, 0), (3, 1), (4, 1), (5, 2), (12, 5)])
def test_the_middle_layer_is_half_way_up(depth, middle):
    assert make("early", layer_dims=(E,) * depth).layer == middle


@pytest.mark.parametrize("params", [{"weight": 0.0}, {"fade": (0.0, 0.5)}], ids=str)
def test_without_weight_or_when_it_has_faded_the_loss_is_that_of_a_softmax(params):
    head, hidden = made(**params), states(widths=WIDTHS)
    softmax = make("softmax", layer_dims=WIDTHS)
    softmax.load_state_dict({key: value for key, value in head.state_dict().items() if key.startswith("output.")})
    for module in followers(head):
        module.progress.fill_(0.5)
    expected = softmax(hidden).training_loss(TARGETS).item()
    assert head(hidden).training_loss(TARGETS).item() == pytest.approx(expected, abs=1e-12)


def test_a_fade_lowers_the_share_and_the_loss_keeps_its_type():
    head = made(weight=0.5, fade=(0.25, 0.75), dtype=torch.float32)
    hidden = states(widths=WIDTHS, dtype=torch.float32)
    early, plain = nll_of_layer(head, hidden, 1).mean().item(), head(hidden).mean_nll(TARGETS).item()
    for done, share in ((0.0, 0.5), (0.25, 0.5), (0.5, 0.25), (1.0, 0.0)):
        head.share.fade.progress.fill_(done)
        loss = head(hidden).training_loss(TARGETS)
        assert loss.dtype == torch.float32
        assert loss.item() == pytest.approx(plain + share * early, rel=1e-6)


def test_evaluation_has_nothing_of_the_lower_layer():
    head, hidden = made(), states(widths=WIDTHS)
    unknown = Hidden((*(torch.full_like(layer, torch.nan) for layer in hidden.layers[:-1]), hidden.layers[-1]))
    for evaluated in (lambda found: found.nll(TARGETS), lambda found: found.log_probs()):
        assert torch.equal(evaluated(head(unknown)), evaluated(head(hidden)))
    assert head(unknown).mean_nll(TARGETS).isfinite()
    assert head(unknown).training_loss(TARGETS).isnan()


def test_the_z_loss_is_that_of_the_top_layer():
    distribution = made()(states(widths=WIDTHS))
    before, z_BTV = distribution.training_loss(TARGETS), distribution.facets_NFE @ distribution.weight_VE.T
    distribution.z_loss = 0.5
    added = 0.5 * (z_BTV + distribution.bias_V).logsumexp(-1).square().mean()
    torch.testing.assert_close(distribution.training_loss(TARGETS) - before, added, rtol=0, atol=1e-12)


@pytest.mark.parametrize("weight", [-0.1, float("inf"), float("nan")])
def test_a_weight_that_is_none_is_refused(weight):
    with pytest.raises(ValueError, match=f"weight must be a finite number of at least 0, got {weight}"):
        made(weight=weight)


def test_one_token_and_a_vocabulary_of_one():
    head, hidden = make("early", layer_dims=WIDTHS, vocab_size=1), states(1, 1, widths=WIDTHS)
    assert head(hidden).training_loss(torch.zeros(1, 1, dtype=torch.int64)).item() == pytest.approx(0, abs=1e-12)
    assert made().output.out_features == V
