"""Heads with a second loss in training: none of it in evaluation, how it fades, its sums; each by hand where it counts.

That the losses are those of the equations, with token weights and in segments of any length, test_heads_equal_oracles
says.
"""

import math

import pytest
import torch
from small_heads import E, V, make, states
from torch import nn

from harness.protocols import Hidden, followers

WIDTHS = (9, 5, E)
SECOND = {  # head: the module that its second loss alone reads
    "bag_of_words": "unembedding",
    "token_order": "unembedding",
    "byte_loss": "spelling",
    "early": "early",
    "mtp_module": "merge",
}
every = pytest.mark.parametrize(("name", "module"), SECOND.items())
TARGETS = torch.tensor([[0, 4, 10, 4], [2, 2, 1, 7]])


def made(name, **params):
    return make(name, layer_dims=WIDTHS, **params)


def softmax_of(head):
    softmax = made("softmax")
    softmax.load_state_dict({key: value for key, value in head.state_dict().items() if key.startswith("output.")})
    return softmax


@every
def test_evaluation_has_nothing_of_the_second_loss(name, module):
    head, hidden = made(name), states(2, 4, widths=WIDTHS)
    with torch.no_grad():
        head.get_submodule(module).weight.fill_(torch.nan)
    found, softmax = head(hidden), softmax_of(head)(hidden)
    assert torch.equal(found.log_probs(), softmax.log_probs())
    assert torch.equal(found.nll(TARGETS), softmax.nll(TARGETS))
    assert torch.equal(found.mean_nll(TARGETS), softmax.mean_nll(TARGETS))
    assert found.training_loss(TARGETS).isnan()


@every
def test_the_second_loss_counts_with_its_weight_and_less_while_it_fades(name, module):
    hidden = states(2, 4, widths=WIDTHS)

    def loss(done=0.0, **params):
        head = made(name, **params)
        for follower in followers(head):
            follower.progress.fill_(done)
        return head(hidden).training_loss(TARGETS).item()

    plain, second = loss(weight=0.0), loss(weight=1.0) - loss(weight=0.0)
    softmax = softmax_of(made(name))
    assert plain == pytest.approx(softmax(hidden).training_loss(TARGETS).item(), abs=1e-12)
    assert second > 0.1
    for done, share in ((0.0, 0.4), (0.25, 0.4), (0.5, 0.2), (0.75, 0.0), (1.0, 0.0)):
        assert loss(done, weight=0.4, fade=(0.25, 0.75)) == pytest.approx(plain + share * second, abs=1e-12)


@pytest.mark.parametrize("name", [*SECOND, "mtp"])
def test_bfloat16_states_are_summed_in_float32(name):
    head, targets = made(name, dtype=torch.bfloat16), torch.arange(700)[None] % V
    hidden = Hidden(tuple(h.bfloat16() for h in states(1, 700, widths=WIDTHS, dtype=torch.float32).layers))
    loss, wide = head(hidden).training_loss(targets), head.float()(Hidden(tuple(h.float() for h in hidden.layers)))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(wide.training_loss(targets).item(), rel=1e-3)


@pytest.mark.parametrize("maps", ["shared", "linear"])
@pytest.mark.parametrize("name", ["mtp"])
def test_a_segment_of_one_token_has_a_gradient_for_every_parameter(name, maps):
    head = made(name, maps=maps)
    head(states(2, 1, widths=WIDTHS)).training_loss(TARGETS[:, :1]).backward()
    assert all(parameter.grad is not None for parameter in head.parameters())


@pytest.mark.parametrize("name", ["bag_of_words"])
def test_at_the_start_each_word_is_about_as_probable_as_a_word_of_the_bag(name):
    head, targets = made(name, window=5, weight=1.0), torch.tensor([[0, 1]])
    hidden = Hidden((torch.zeros(1, 2, E).double(),))
    p = 1 / (1 + V / 4)  # the odds are 4 / V
    expected = (-math.log(p) - (V - 1) * math.log(1 - p)) / 2  # the bag of the first position has one word
    loss = head(hidden).training_loss(targets) - head(hidden).mean_nll(targets)
    assert loss.item() == pytest.approx(expected, abs=1e-6)  # the bias starts in float32


@pytest.mark.parametrize("name", ["byte_loss"])
def test_bytes_are_those_of_the_corpus_and_not_among_the_weights(name):
    known, unknown, hidden = made(name), made(name, texts=None), states(2, 4, widths=WIDTHS)
    unknown.load_state_dict(known.state_dict())
    assert torch.equal(unknown(hidden).nll(TARGETS), known(hidden).nll(TARGETS))
    with pytest.raises(ValueError, match="token_bytes must have V = 11 texts, got 10"):
        made(name, texts=(b"a",) * 10)


@pytest.mark.parametrize("name", ["mtp_module"])
def test_the_embedding_is_the_models_and_learns_from_the_words_it_reads(name):
    embedding = nn.Embedding(V, E).double()
    head = made(name, embedding=embedding)
    assert not [key for key in (*dict(head.named_parameters()), *head.state_dict()) if key.startswith("embedding")]
    head(states(2, 4, widths=WIDTHS)).training_loss(TARGETS).backward()
    seen = set(TARGETS[:, :-1].flatten().tolist())  # the last word of a row has no word after it
    assert {word for word in range(V) if embedding.weight.grad[word].any()} == seen
