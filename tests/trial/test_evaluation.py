"""Evaluation: exact sums, counting rules, unigram, and that batching and segmenting change nothing they should not."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from harness.corpora.corpus import Corpus
from harness.distributions import Logits
from harness.plan.specs import TrainSpec
from harness.protocols import Hidden
from harness.trial.evaluation import evaluate, perplexity, unigram_ppl
from harness.trial.model import LanguageModel
from harness.trial.timing import Clock


class Bigram(nn.Module):
    """A backbone and a head in one pair of tables: the logits of the next token depend on this one only."""

    def __init__(self, vocab_size):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, vocab_size)

    def forward(self, tokens, state=None):
        return Hidden((self.embedding(tokens),))


class Identity(nn.Module):
    def forward(self, hidden):
        return Logits(hidden.layers[-1])


def train_spec(**changes):
    settings = {"optimizer": "sgd", "lr": 1.0, "epochs": 1, "batch_size": 2, "seq_len": 4, "eval_batch_size": 3}
    return TrainSpec(**{**settings, **changes})


def bigram(vocab_size=5):
    torch.manual_seed(0)
    return LanguageModel(Bigram(vocab_size), Identity())


def score(model, tokens, spec, uncounted_id=None):
    return evaluate(model, tokens, spec, uncounted_id=uncounted_id, clock=Clock(torch.device("cpu")))


@pytest.mark.parametrize("eval_batch_size", [1, 3, 7, 50])
@pytest.mark.parametrize("seq_len", [1, 4, 100])
def test_every_token_but_the_first_is_scored_once_whatever_the_batching(eval_batch_size, seq_len):
    model, tokens = bigram(), torch.randint(5, (23,), generator=torch.Generator().manual_seed(1))
    table = model.backbone.embedding.weight.double().log_softmax(-1)
    expected = -sum(table[a, b].item() for a, b in pairwise(tokens.tolist()))
    found = score(model, tokens, train_spec(eval_batch_size=eval_batch_size, seq_len=seq_len))
    assert found.num_scored == 22
    assert found.nll_sum == pytest.approx(expected, abs=1e-5)


def test_standard_counting_divides_by_all_but_the_boundary_token():
    tokens = torch.tensor([0, 3, 4, 0, 2, 4, 0, 1])  # <sos> is 0: scored twice as a target
    found = score(bigram(), tokens, train_spec(), uncounted_id=0)
    assert (found.num_scored, found.num_counted) == (7, 5)
    # PROTOCOLS.md section 0, trap 1: exp(ln ppl * tokens_with / tokens_standard)
    assert found.ppl_standard == pytest.approx(math.exp(math.log(found.ppl) * 7 / 5))


def test_the_sum_is_taken_in_float64():
    # Two words, one of logit 0 and one of -2^24: the nll of the second is 2^24, and a float32 sum of it and of many
    # nlls of ln 2 would swallow the latter whole (the spacing of float32 at 2^24 is 2).
    model = bigram(3)
    with torch.no_grad():
        model.backbone.embedding.weight.copy_(torch.tensor([[0.0, -(2.0**24), -1e30], [0, 0, -1e30], [0, 0, -1e30]]))
    tokens = torch.tensor([0] + [1] * 101)
    expected = 2**24 + 100 * math.log(2)
    assert score(model, tokens, train_spec(eval_batch_size=1)).nll_sum == pytest.approx(expected, abs=1e-3)


def test_perplexity_overflows_to_infinity():
    assert perplexity(1e6) == math.inf
    assert perplexity(0.0) == 1.0


def test_unigram_perplexity_by_hand():
    # counts 3, 1, 0 of 4; plus one: 4/7, 2/7, 1/7; scored test tokens 0, 2: exp(-(ln 4/7 + ln 1/7) / 2) = 7 / 2
    corpus = Corpus(
        vocab_size=3,
        train=torch.tensor([0, 0, 1, 0]),
        valid=torch.tensor([0, 0]),
        test=torch.tensor([1, 0, 2]),
    )
    assert unigram_ppl(corpus, train_spec()) == pytest.approx(3.5)
