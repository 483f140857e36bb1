"""Token-order prediction by hand: which words count how much, at the end of a segment, and with token weights."""

import math

import pytest
import torch
from small_heads import E, V, make, states

from harness.heads.token_order import words_ahead
from harness.protocols import Hidden, followers

TARGETS = torch.tensor([[7, 2, 7, 2, 5]])


def order(head, hidden):
    """(T, V) -log q of the only row."""
    return -(hidden.layers[-1][0] @ head.unembedding.weight.T).log_softmax(-1)


def test_first_occurrences_within_the_window_and_the_segment():
    words, first = words_ahead(TARGETS, None, 3)
    expected = [[7, 2], [2, 7], [7, 2, 5], [2, 5], [5]]  # each word once, by its distance
    for t, distinct in enumerate(expected):
        assert words[0, t][first[0, t]].tolist() == distinct


def test_the_words_to_come_share_by_exp_of_minus_their_distance():
    head, hidden = make("token_order", window=3, weight=0.5), states(1, 5)
    losses, plain = order(head, hidden), head(hidden).mean_nll(TARGETS).item()
    a, b = 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(-1) + math.exp(-2))
    shares = [  # word: share. Scores 2, 1, 0 of the distances 1, 2, 3
        {7: a, 2: 1 - a},
        {2: a, 7: 1 - a},
        {7: b, 2: b * math.exp(-1), 5: b * math.exp(-2)},
        {2: a, 5: 1 - a},
        {5: 1.0},
    ]
    expected = 0.0
    for t, of_words in enumerate(shares):
        assert sum(of_words.values()) == pytest.approx(1)
        expected += sum(share * losses[t, word].item() for word, share in of_words.items())
    assert head(hidden).training_loss(TARGETS).item() == pytest.approx(plain + 0.5 * expected / 5, abs=1e-12)


def test_tokens_of_weight_0_are_no_words_to_come_and_their_positions_do_not_count():
    head, hidden, weight = make("token_order", window=3), states(1, 5), torch.tensor([[2.0, 0.0, 1.0, 1.0, 0.0]])
    losses = order(head, hidden)
    # at 0 only 7, which comes again at 2: the token 2 at distance 2 has no weight. At 2: 7 and 2. At 3: 2
    expected = 2 * losses[0, 7] + (losses[2, 7] + math.exp(-1) * losses[2, 2]) / (1 + math.exp(-1)) + losses[3, 2]
    loss = head(hidden).training_loss(TARGETS, weight) - head(hidden).mean_nll(TARGETS, weight)
    torch.testing.assert_close(loss, expected / 4, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="the weights of all tokens are 0"):
        head(hidden).training_loss(TARGETS, torch.zeros(1, 5))


def test_a_window_of_16_is_as_good_as_a_longer_one():
    head, longer = make("token_order"), make("token_order", window=60)
    hidden, targets = states(1, 60), torch.arange(60)[None] % V
    difference = head(hidden).training_loss(targets) - longer(hidden).training_loss(targets)
    assert abs(difference.item()) < 1e-6 * 10  # log q is above -10 here
    assert order(head, hidden).max() < 10


@pytest.mark.parametrize("params", [{"weight": 0.0}, {"fade": (0.0, 0.5)}], ids=str)
def test_without_weight_or_when_it_has_faded_the_loss_is_that_of_a_softmax(params):
    head, hidden, softmax = make("token_order", **params), states(1, 5), make("softmax")
    for module in followers(head):
        module.progress.fill_(0.5)
    expected = softmax(hidden).training_loss(TARGETS).item()  # the same output layer by the same seed
    assert head(hidden).training_loss(TARGETS).item() == pytest.approx(expected, abs=1e-12)


def test_evaluation_has_nothing_of_the_second_output_matrix():
    head, hidden = make("token_order"), states(1, 5)
    softmax = make("softmax")(hidden)
    with torch.no_grad():
        head.unembedding.weight.fill_(torch.nan)
    assert torch.equal(head(hidden).nll(TARGETS), softmax.nll(TARGETS))
    assert torch.equal(head(hidden).log_probs(), softmax.log_probs())
    assert torch.equal(head(hidden).mean_nll(TARGETS), softmax.mean_nll(TARGETS))
    assert head(hidden).training_loss(TARGETS).isnan()


def test_a_segment_of_one_token_has_the_next_word_only():
    head, hidden = make("token_order"), states(1, 1)
    targets = torch.tensor([[3]])
    expected = head(hidden).mean_nll(targets) + order(head, hidden)[0, 3]
    torch.testing.assert_close(head(hidden).training_loss(targets), expected, rtol=0, atol=1e-12)


def test_bfloat16_states_are_summed_in_float32():
    head = make("token_order", dtype=torch.bfloat16)
    hidden, targets = Hidden((states(1, 700, dtype=torch.float32).layers[-1].bfloat16(),)), torch.arange(700)[None] % V
    loss, wide = head(hidden).training_loss(targets), head.float()(Hidden((hidden.layers[-1].float(),)))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(wide.training_loss(targets).item(), rel=1e-3)
    assert head.unembedding.weight.shape == (V, E)
