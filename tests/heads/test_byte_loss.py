"""The loss of bytes by hand: which symbols a token has, how they count, and nothing of it in evaluation."""

import math

import pytest
import torch
from small_heads import E, make, states

from harness.heads.byte_loss import first_symbols
from harness.protocols import Hidden, followers

TEXTS = (b"", b"a", b"ab", b"abcd", "\u6f22".encode(), b"\x00\xff", b"", b"b", b"ca", b"abc", b"z")  # of 11 tokens
TARGETS = torch.tensor([[0, 4, 5], [1, 6, 3]])


def made(**params):
    return make("byte_loss", texts=TEXTS, **params)


def log_q(head, hidden):
    """(B, T, n, 257) the log-probabilities of the symbols."""
    z_BTnS = hidden.layers[-1] @ head.spelling.weight.T + head.spelling.bias
    return z_BTnS.unflatten(-1, (-1, 257)).log_softmax(-1)


def test_a_token_has_its_first_bytes_and_a_symbol_after_the_last_one():
    assert first_symbols(TEXTS[:6], 3).tolist() == [
        [-1, -1, -1],  # no text
        [97, 256, -1],
        [97, 98, 256],
        [97, 98, 99],  # its end is not among the first three
        [0xE6, 0xBC, 0xA2],
        [0, 255, 256],
    ]
    assert first_symbols(TEXTS[:4], 1).tolist() == [[-1], [97], [97], [97]]


def test_the_loss_of_a_position_is_the_mean_over_its_symbols():
    head, hidden = made(num_bytes=3, weight=0.5), states()
    logq, nll = log_q(head, hidden), head(hidden).nll(TARGETS)
    of_bytes = torch.zeros(2, 3).double()  # the tokens 0 and 6 have no text
    of_bytes[0, 1] = -(logq[0, 1, 0, 0xE6] + logq[0, 1, 1, 0xBC] + logq[0, 1, 2, 0xA2]) / 3
    of_bytes[0, 2] = -(logq[0, 2, 0, 0] + logq[0, 2, 1, 255] + logq[0, 2, 2, 256]) / 3
    of_bytes[1, 0] = -(logq[1, 0, 0, 97] + logq[1, 0, 1, 256]) / 2
    of_bytes[1, 2] = -(logq[1, 2, 0, 97] + logq[1, 2, 1, 98] + logq[1, 2, 2, 99]) / 3
    expected = (nll + 0.5 * of_bytes).mean()
    torch.testing.assert_close(head(hidden).training_loss(TARGETS), expected, rtol=0, atol=1e-12)
    weight = torch.tensor([[1.0, 0.0, 2.0], [3.0, 4.0, 1.0]])
    expected = (weight * (nll + 0.5 * of_bytes)).sum() / 11
    torch.testing.assert_close(head(hidden).training_loss(TARGETS, weight), expected, rtol=0, atol=1e-12)


def test_the_loss_of_a_batch_is_the_mean_of_its_parts_also_where_tokens_have_no_text():
    head, hidden = made(), states()
    halves = [head(Hidden((hidden.layers[-1][b, None],))).training_loss(TARGETS[b, None]) for b in range(2)]
    torch.testing.assert_close(head(hidden).training_loss(TARGETS), sum(halves) / 2, rtol=0, atol=1e-12)
    without, distribution = torch.tensor([[0, 6, 0], [6, 6, 0]]), head(hidden)
    assert distribution.training_loss(without).item() == pytest.approx(distribution.mean_nll(without).item(), abs=1e-12)


@pytest.mark.parametrize("params", [{"weight": 0.0}, {"fade": (0.0, 0.5)}], ids=str)
def test_without_weight_or_when_it_has_faded_the_loss_is_that_of_a_softmax(params):
    head, hidden, softmax = made(**params), states(), make("softmax")
    for module in followers(head):
        module.progress.fill_(0.5)
    expected = softmax(hidden).training_loss(TARGETS).item()  # the same output layer by the same seed
    assert head(hidden).training_loss(TARGETS).item() == pytest.approx(expected, abs=1e-12)


def test_a_fade_lowers_the_share():
    head, hidden = made(weight=0.4, fade=(0.25, 0.75)), states()
    plain = head(hidden).mean_nll(TARGETS).item()
    whole = head(hidden).training_loss(TARGETS).item() - plain
    head.share.fade.progress.fill_(0.625)
    assert head(hidden).training_loss(TARGETS).item() == pytest.approx(plain + whole / 4, abs=1e-12)


def test_evaluation_has_nothing_of_the_maps_to_bytes():
    head, hidden = made(), states()
    softmax = make("softmax")(hidden)
    with torch.no_grad():
        head.spelling.weight.fill_(torch.nan)
    assert torch.equal(head(hidden).nll(TARGETS), softmax.nll(TARGETS))
    assert torch.equal(head(hidden).log_probs(), softmax.log_probs())
    assert head(hidden).training_loss(TARGETS).isnan()


def test_without_the_bytes_of_tokens_it_evaluates_and_refuses_to_train():
    known, unknown = made(), make("byte_loss", texts=None)
    unknown.load_state_dict(known.state_dict())  # the bytes are the corpus', and not among the weights
    assert torch.equal(unknown(states()).nll(TARGETS), known(states()).nll(TARGETS))
    with pytest.raises(RuntimeError, match=r"^byte_loss needs HeadDims\.token_bytes, the text of each token"):
        unknown(states()).training_loss(TARGETS)


def test_bfloat16_states_are_summed_in_float32():
    head = made(dtype=torch.bfloat16)
    with torch.no_grad():
        head.spelling.weight.zero_()
        head.spelling.bias.zero_()
    hidden, targets = Hidden((states(1, 700, dtype=torch.float32).layers[-1].bfloat16(),)), torch.full((1, 700), 3)
    distribution = head(hidden)
    of_bytes = distribution.training_loss(targets) - distribution.mean_nll(targets)
    assert of_bytes.dtype == torch.float32
    assert of_bytes.item() == pytest.approx(0.1 * math.log(257), rel=1e-5)
    assert head.spelling.weight.shape == (4 * 257, E)


def test_texts_of_another_number_of_tokens_are_refused():
    with pytest.raises(ValueError, match="token_bytes must have V = 11 texts, got 10"):
        make("byte_loss", texts=TEXTS[:10])
