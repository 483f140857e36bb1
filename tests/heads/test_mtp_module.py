"""The MTP module of DeepSeek-V3: what it sees, what it learns, and nothing of it in evaluation."""

import pytest
import torch
from small_heads import E, V, make, states
from torch import nn

from harness.protocols import followers

TARGETS = torch.tensor([[0, 4, 10, 4], [2, 2, 1, 7]])


def test_a_position_sees_the_states_and_words_up_to_its_own_and_no_later_ones():
    head, hidden = make("mtp_module", num_heads=2), states(2, 4)
    h_BTD = hidden.layers[-1].requires_grad_()
    g_BTE = head.ahead(h_BTD, TARGETS)
    for t in range(4):
        (gradient,) = torch.autograd.grad(g_BTE[:, t].sum(-1).square().sum(), h_BTD, retain_graph=True)
        assert not gradient[:, t + 1 :].any()
        assert gradient[:, : t + 1].abs().amax((0, 2)).min() > 0
    other = TARGETS.clone()
    other[:, 2] = 3
    changed = (head.ahead(h_BTD, other) - g_BTE).abs().amax((0, 2))
    assert changed[:2].max() < 1e-12
    assert changed[2:].min() > 1e-6


def test_the_embedding_and_the_output_matrix_are_the_models_and_learn_from_it():
    embedding = nn.Embedding(V, E).double()
    head, hidden = make("mtp_module", embedding=embedding), states(2, 4)
    assert not [name for name, _ in head.named_parameters() if name.startswith("embedding")]
    assert not [name for name in head.state_dict() if name.startswith("embedding")]
    head(hidden).training_loss(TARGETS).backward()
    seen = set(TARGETS[:, :-1].flatten().tolist())  # the last word of a row has no word after it
    learned = {word for word in range(V) if embedding.weight.grad[word].any()}
    assert learned == seen


def test_a_token_counts_with_its_weight_where_the_module_predicts_it():
    head, hidden, weight = make("mtp_module", weight=0.5), states(2, 4), torch.tensor([[1.0, 0, 2, 0], [0, 3, 1, 1]])
    g_BTE = head.ahead(hidden.layers[-1], TARGETS)
    words = -(g_BTE @ head.output.weight.T + head.output.bias).log_softmax(-1)
    expected = (weight * head(hidden).nll(TARGETS)).sum().item()
    for b in range(2):
        for t in range(3):
            expected += 0.5 * weight[b, t + 1].item() * words[b, t, TARGETS[b, t + 1]].item()
    assert head(hidden).training_loss(TARGETS, weight).item() == pytest.approx(expected / 8, abs=1e-12)
    with pytest.raises(ValueError, match="the weights of all tokens are 0"):
        head(hidden).training_loss(TARGETS, torch.zeros(2, 4))


@pytest.mark.parametrize("params", [{"weight": 0.0}, {"fade": (0.0, 0.5)}], ids=str)
def test_without_weight_or_when_it_has_faded_the_loss_is_that_of_a_softmax(params):
    head, hidden, softmax = make("mtp_module", **params), states(2, 4), make("softmax")
    for module in followers(head):
        module.progress.fill_(0.5)
    expected = softmax(hidden).training_loss(TARGETS).item()  # the same output layer by the same seed
    assert head(hidden).training_loss(TARGETS).item() == pytest.approx(expected, abs=1e-12)


def test_evaluation_does_not_run_the_module(monkeypatch):
    head, hidden = make("mtp_module"), states(2, 4)
    softmax = make("softmax")(hidden)

    def refuse(*_):
        raise AssertionError("the module ran")

    monkeypatch.setattr(head, "ahead", refuse)
    distribution = head(hidden)
    assert torch.equal(distribution.nll(TARGETS), softmax.nll(TARGETS))
    assert torch.equal(distribution.log_probs(), softmax.log_probs())
    assert torch.equal(distribution.mean_nll(TARGETS), softmax.mean_nll(TARGETS))
    with pytest.raises(AssertionError, match="the module ran"):
        distribution.training_loss(TARGETS)


def test_a_segment_of_one_token_has_the_loss_of_a_softmax():
    head, hidden, targets = make("mtp_module"), states(3, 1), torch.tensor([[3], [0], [3]])
    loss = head(hidden).training_loss(targets)
    assert loss.item() == pytest.approx(head(hidden).mean_nll(targets).item(), abs=1e-12)
    loss.backward()
    assert not head.merge.weight.grad.any()


def test_the_z_loss_is_that_of_the_next_word():
    distribution = make("mtp_module")(states(2, 4))
    before, z_BTV = distribution.training_loss(TARGETS), distribution.facets_NFE @ distribution.weight_VE.T
    distribution.z_loss = 0.5
    added = 0.5 * (z_BTV + distribution.bias_V).logsumexp(-1).square().mean()
    torch.testing.assert_close(distribution.training_loss(TARGETS) - before, added, rtol=0, atol=1e-12)
