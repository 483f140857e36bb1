"""The bag of the words to come by hand: what is in it, its start, and token weights."""

import math

import pytest
import torch
from small_heads import E, V, make, states

from harness.protocols import Hidden, followers

TARGETS = torch.tensor([[7, 2, 2, 5]])


def entropies(head, hidden, bags):
    """For each position with a bag, the binary cross-entropy summed over the words."""
    odds = (hidden.layers[-1][0] @ head.unembedding.weight.T + head.unembedding.bias).sigmoid().tolist()
    found = []
    for t, bag in enumerate(bags):
        found.append(-sum(math.log(odds[t][v] if v in bag else 1 - odds[t][v]) for v in range(V)))
    return found


@pytest.mark.parametrize(
    ("window", "bags"), [(2, ({2}, {2}, {5})), (3, ({2}, {2, 5}, {5})), (9, ({2, 5}, {2, 5}, {5}))]
)
def test_a_bag_has_each_word_after_the_next_one_once_and_the_last_position_has_none(window, bags):
    head, hidden = make("bag_of_words", window=window, weight=0.5), states(1, 4)
    expected = head(hidden).mean_nll(TARGETS).item() + 0.5 * sum(entropies(head, hidden, bags)) / 4
    assert head(hidden).training_loss(TARGETS).item() == pytest.approx(expected, abs=1e-12)


def test_a_position_counts_with_the_weight_of_its_bags_first_token_and_tokens_without_weight_are_in_no_bag():
    head, hidden, weight = (
        make("bag_of_words", window=4, weight=1.0),
        states(1, 4),
        torch.tensor([[0.0, 3.0, 0.0, 1.0]]),
    )
    targets = torch.tensor([[7, 2, 4, 5]])
    first, _, third = entropies(head, hidden, ({2, 5}, set(), {5}))
    loss = head(hidden).training_loss(targets, weight) - head(hidden).mean_nll(targets, weight)
    assert loss.item() == pytest.approx((3 * first + third) / 4, abs=1e-12)
    with pytest.raises(ValueError, match="the weights of all tokens are 0"):
        head(hidden).training_loss(targets, torch.zeros(1, 4))


def test_at_the_start_each_word_is_about_as_probable_as_a_word_of_the_bag():
    head = make("bag_of_words", window=5, weight=1.0)
    hidden = Hidden((torch.zeros(1, 2, E).double(),))
    p = 1 / (1 + V / 4)  # the odds are 4 / V
    targets = torch.tensor([[0, 1]])
    expected = (-math.log(p) - (V - 1) * math.log(1 - p)) / 2  # the bag of the first position has one word
    loss = head(hidden).training_loss(targets) - head(hidden).mean_nll(targets)
    assert loss.item() == pytest.approx(expected, abs=1e-6)  # the bias starts in float32


@pytest.mark.parametrize("params", [{"weight": 0.0}, {"fade": (0.0, 0.5)}], ids=str)
def test_without_weight_or_when_it_has_faded_the_loss_is_that_of_a_softmax(params):
    head, hidden, softmax = make("bag_of_words", **params), states(1, 4), make("softmax")
    for module in followers(head):
        module.progress.fill_(0.5)
    expected = softmax(hidden).training_loss(TARGETS).item()  # the same output layer by the same seed
    assert head(hidden).training_loss(TARGETS).item() == pytest.approx(expected, abs=1e-12)


def test_evaluation_has_nothing_of_the_second_output_layer():
    head, hidden = make("bag_of_words"), states(1, 4)
    softmax = make("softmax")(hidden)
    with torch.no_grad():
        head.unembedding.weight.fill_(torch.nan)
    assert torch.equal(head(hidden).nll(TARGETS), softmax.nll(TARGETS))
    assert torch.equal(head(hidden).log_probs(), softmax.log_probs())
    assert torch.equal(head(hidden).mean_nll(TARGETS), softmax.mean_nll(TARGETS))
    assert head(hidden).training_loss(TARGETS).isnan()


def test_a_segment_of_one_token_has_the_loss_of_a_softmax():
    head, hidden, targets = make("bag_of_words"), states(3, 1), torch.tensor([[3], [0], [3]])
    loss = head(hidden).training_loss(targets)
    assert loss.item() == pytest.approx(head(hidden).mean_nll(targets).item(), abs=1e-12)
    loss.backward()
    assert not head.unembedding.weight.grad.any()


def test_bfloat16_states_are_summed_in_float32():
    head = make("bag_of_words", dtype=torch.bfloat16)
    hidden, targets = Hidden((states(1, 700, dtype=torch.float32).layers[-1].bfloat16(),)), torch.arange(700)[None] % V
    loss, wide = head(hidden).training_loss(targets), head.float()(Hidden((hidden.layers[-1].float(),)))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(wide.training_loss(targets).item(), rel=1e-3)
