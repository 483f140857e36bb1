"""Evaluate: exact negative log-likelihoods, summed in float64, and the perplexities they give."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.corpora.batching import evaluation_segments
from harness.corpora.corpus import Corpus
from harness.plan.specs import TrainSpec
from harness.trial.model import LanguageModel
from harness.trial.timing import Clock


@dataclass(frozen=True, slots=True)
class Score:
    """Args: nll_sum in nats; num_scored targets; num_counted: those that standard counting divides by."""

    nll_sum: float
    num_scored: int
    num_counted: int

    @property
    def mean_nll(self) -> float:
        """Nats per scored token."""
        return self.nll_sum / self.num_scored

    @property
    def ppl(self) -> float:
        """exp(nats per scored token); inf where that overflows."""
        return perplexity(self.mean_nll)

    @property
    def ppl_standard(self) -> float:
        """exp(nats per token of standard counting): the same sum, <sos> not divided by."""
        return perplexity(self.nll_sum / self.num_counted)


def perplexity(nats: float) -> float:
    """exp(nats); inf where that overflows a float."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf


@torch.no_grad()
def evaluate(
    model: LanguageModel, tokens_N: Tensor, train: TrainSpec, *, uncounted_id: int | None, clock: Clock
) -> Score:
    """Score every token of a split but the first, in columns of `eval_batch_size` and segments of `seq_len`.

    A backbone with state carries it along its column, so its context is the column so far; one without sees the
    segment only. The state is empty where a column starts.
    """
    model.eval()
    nll_sum = torch.zeros((), dtype=torch.float64, device=tokens_N.device)
    state: Any = None
    for segment in evaluation_segments(tokens_N, batch_size=train.eval_batch_size, seq_len=train.seq_len):
        with clock.lap():
            distribution, state = model(segment.inputs, state)
            nll_sum += (distribution.nll(segment.targets).double() * segment.weight).sum()
    clock.settle()
    targets = tokens_N[1:]
    num_uncounted = 0 if uncounted_id is None else int((targets == uncounted_id).sum())
    return Score(nll_sum.item(), len(targets), len(targets) - num_uncounted)


def unigram_ppl(corpus: Corpus) -> float:
    """Perplexity of the scored test tokens under the training split's unigram with one added to every count."""
    probability_V = (corpus.token_counts.double() + 1) / (len(corpus.train) + corpus.vocab_size)
    return perplexity(-probability_V[corpus.test[1:]].log().mean().item())
