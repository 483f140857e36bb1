"""Multi-token prediction: the training loss by hand, with weights, at the end of a segment."""

import math

import pytest
import torch
from small_heads import E, V, load, make, states

from harness.protocols import Hidden

TARGETS = torch.tensor([[0, 4, 10], [2, 2, 1]])


def nll(head, hidden):
    """(B, T, V) -log p_0."""
    return -head(hidden).log_probs()


def test_words_ahead_count_with_their_weights_and_beyond_the_end_none_does():
    head, hidden = make("mtp", further=(0.5, 0.25)), states()
    words = nll(head, hidden)
    expected = 0.0
    for b in range(2):
        for t in range(3):
            for k, share in enumerate((1.0, 0.5, 0.25)):
                if t + k < 3:
                    expected += share * words[b, t, TARGETS[b, t + k]].item()
    distribution = head(hidden)
    assert distribution.training_loss(TARGETS).item() == pytest.approx(expected / 6, abs=1e-12)
    assert distribution.mean_nll(TARGETS).item() == pytest.approx(words.gather(-1, TARGETS[..., None]).mean().item())


def test_a_token_counts_with_its_weight_wherever_it_is_predicted():
    head, hidden, weight = make("mtp", further=(0.5,)), states(), torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]])
    words, expected = nll(head, hidden), 0.0
    for b in range(2):
        for t in range(3):
            expected += weight[b, t].item() * words[b, t, TARGETS[b, t]].item()
            if t < 2:
                expected += 0.5 * weight[b, t + 1].item() * words[b, t, TARGETS[b, t + 1]].item()
    assert head(hidden).training_loss(TARGETS, weight).item() == pytest.approx(expected / 7, abs=1e-12)
    with pytest.raises(ValueError, match="the weights of all tokens are 0"):
        head(hidden).training_loss(TARGETS, torch.zeros(2, 3))


@pytest.mark.parametrize("maps", ["shared", "linear"])
def test_a_segment_of_one_token_has_the_loss_of_a_softmax_and_every_parameter_a_gradient(maps):
    head, hidden = make("mtp", maps=maps), states(2, 1)
    loss = head(hidden).training_loss(TARGETS[:, :1])
    assert loss.item() == pytest.approx(head(hidden).mean_nll(TARGETS[:, :1]).item(), abs=1e-12)
    loss.backward()
    assert all(parameter.grad is not None for parameter in head.parameters())


def test_each_word_ahead_has_its_own_map():
    # W = I on the first V = E words, f_k = A_k h + a_k: one map says word 1, the other word 2
    head = make("mtp", vocab_size=E, maps="linear", further=(1.0, 1.0))
    load(head, output__weight=50 * torch.eye(E), output__bias=0.0)
    for k, word in ((0, 1), (1, 2)):
        load(head, **{f"ahead__{k}__weight": 0.0, f"ahead__{k}__bias": torch.eye(E)[word]})
    hidden = Hidden((torch.zeros(1, 3, E).double(),))
    # at t = 0 the next word costs log E; the words after it are certain
    loss = head(hidden).training_loss(torch.tensor([[3, 1, 2]])).item()
    wrong = 50.0  # at t = 1 the word after the next is 2, and map 0 says 1
    assert loss == pytest.approx((3 * math.log(E) + wrong) / 3, abs=1e-9)


def test_float32_weights_are_summed_in_at_least_float32():
    head = make("mtp", dtype=torch.bfloat16)
    hidden = Hidden((states(1, 700).layers[-1].bfloat16(),))
    targets = torch.arange(700)[None] % V
    loss, wide = head(hidden).training_loss(targets), head.float()(Hidden((hidden.layers[-1].float(),)))
    assert loss.item() == pytest.approx(wide.training_loss(targets).item(), rel=1e-3)
