"""Evaluate: exact negative log-likelihoods, summed in float64, and the perplexities they give."""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harness.containment.calls import calling
from harness.corpora.batching import Segment, evaluation_blocks, evaluation_segments, strided_segments
from harness.corpora.corpus import Corpus
from harness.errors import ExecutionError
from harness.model import LanguageModel
from harness.plan.specs import TrainSpec
from harness.training.clocks import Clock


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


def scored_segments(tokens_N: Tensor, train: TrainSpec) -> Iterator[Segment]:
    """What is scored of a split, as the suite says: segments of columns, windows or blocks."""
    sizes = {"batch_size": train.eval_batch_size, "seq_len": train.seq_len}
    if train.batching == "blocks":
        segments = evaluation_blocks(tokens_N, **sizes)
    elif train.eval_stride is not None:
        segments = strided_segments(tokens_N, **sizes, stride=train.eval_stride)
    else:
        segments = evaluation_segments(tokens_N, **sizes)
    return islice(segments, train.eval_batches)


class Sampled(NamedTuple):
    """A segment, and the state that the model was given with it."""

    segment: Segment
    state: Any


class TokenNll:
    """Each token's nats and its offset in its segment, gathered while a split is scored.

    Shapes: nll_N (N,) float32, NaN where a token is not scored; offset_N (N,) int32, there -1.

    Args:
        sample: numbers of segments, from 0, that are kept in `sampled` to be computed again.
    """

    def __init__(self, num_tokens: int, device: torch.device, sample: Collection[int] = ()):
        self.nll_N = torch.full((num_tokens,), math.nan, device=device)
        self.offset_N = torch.full((num_tokens,), -1, dtype=torch.int32, device=device)
        self.sample, self.sampled, self._segments = sample, [], 0

    def begin(self, segment: Segment, state: Any) -> None:
        """Take in what the model is given next."""
        if self._segments in self.sample:
            self.sampled.append(Sampled(segment, copied(state)))
        self._segments += 1

    def add(self, nll_BT: Tensor, segment: Segment) -> None:
        """Take in a segment's tokens that count."""
        counts_BT = segment.weight > 0
        places = segment.place[counts_BT]
        offset_BT = torch.arange(nll_BT.shape[1], dtype=torch.int32, device=nll_BT.device).expand_as(nll_BT)
        self.nll_N[places], self.offset_N[places] = nll_BT[counts_BT].float(), offset_BT[counts_BT]


@torch.no_grad()
def evaluate(
    model: LanguageModel,
    tokens_N: Tensor,
    train: TrainSpec,
    *,
    uncounted_id: int | None,
    clock: Clock,
    keep: TokenNll | None = None,
) -> Score:
    """Score a split: every token but the first, or but a block's first, of all batches or the first `eval_batches`.

    By default in columns of `eval_batch_size` and segments of `seq_len`: a backbone with state carries it along its
    column, so its context is the column so far; one without sees the segment only. The state is empty where a column
    starts, and for every block.

    Args:
        keep: is given each token's nats.
    Raises: ExecutionError for windows by `eval_stride` with a backbone that carries state.
    """
    model.eval()
    device = next(model.parameters()).device
    totals = torch.zeros(3, dtype=torch.float64, device=device)  # nats, scored, of those not counted
    state: Any = None
    for cut in scored_segments(tokens_N, train):
        segment = cut.to(device)
        inputs_BT, targets_BT, weight_BT, _ = segment
        if keep is not None:
            keep.begin(segment, state)
        with clock.lap():
            distribution, state = model(inputs_BT, state)
            with calling(model.head_name, "nll"):
                nll_BT = distribution.nll(targets_BT)
            totals[0] += (nll_BT.double() * weight_BT).sum()
        if keep is not None:
            keep.add(nll_BT, segment)
        totals[1] += weight_BT.sum()
        if uncounted_id is not None:
            totals[2] += (weight_BT * (targets_BT == uncounted_id)).sum()
        refuse_stride(train, state)
        if train.batching == "blocks":
            state = None
    clock.settle()
    nll_sum, num_scored, num_uncounted = totals.tolist()
    return Score(nll_sum, int(num_scored), int(num_scored - num_uncounted))


def refuse_stride(train: TrainSpec, state: Any) -> None:
    """Raises ExecutionError where windows overlap and the backbone carries state: it has its context already."""
    if train.eval_stride is not None and state is not None:
        raise ExecutionError(
            "train.eval_stride is for backbones without state: this one carries its state from segment to segment, "
            "so that all tokens before are its context; leave eval_stride out"
        )


@torch.no_grad()
def state_of(model: LanguageModel) -> Any:
    """The state that the backbone gives to carry, None where it carries none."""
    tokens_BT = torch.zeros(1, 2, dtype=torch.int64, device=next(model.parameters()).device)
    model.eval()
    with calling(model.backbone_name, "forward"):
        return model.backbone(tokens_BT).state


def copied(state: Any) -> Any:
    """A carried state that later calls cannot change: a tensor, nested tuples of tensors, or None."""
    if isinstance(state, tuple):
        return tuple(copied(part) for part in state)
    return state.clone() if isinstance(state, Tensor) else state


def text_scores(score: Score, corpus: Corpus, train: TrainSpec) -> dict[str, float]:
    """The summed loss of the test split by words, bytes and characters of its text. Nothing where a token is a word, or
    where not every token but the first was scored; no perplexity that overflows.
    """
    size = corpus.test_size
    if size is None or train.batching == "blocks" or train.eval_batches is not None:
        return {}
    words, byte_count, characters = (
        score.nll_sum / count if count else math.inf for count in (size.words, size.bytes, size.characters)
    )
    scores = {
        "test_ppl_word": perplexity(words),
        "test_ppl_byte": perplexity(byte_count),
        "test_bits_per_character": characters / math.log(2),
    }
    return {name: value for name, value in scores.items() if math.isfinite(value)}


def unigram_ppl(corpus: Corpus, train: TrainSpec) -> float | None:
    """Perplexity of the scored test tokens under the training split's unigram with one added to every count; None
    without a training split.
    """
    if not len(corpus.train):
        return None
    probability_V = (corpus.token_counts.double() + 1) / (len(corpus.train) + corpus.vocab_size)
    counts_V = torch.zeros_like(probability_V)
    for segment in scored_segments(corpus.test, train):
        counts_V.index_put_((segment.targets,), segment.weight.double(), accumulate=True)
    return perplexity(-(counts_V * probability_V.log()).sum().item() / counts_V.sum().item())


def references(corpus: Corpus, train: TrainSpec) -> dict[str, float]:
    """Test perplexity of the unigram, and of the process that made the text, where there are such."""
    found = {"unigram_test_ppl": unigram_ppl(corpus, train)}
    if corpus.source_test_nll is not None:
        found["source_test_ppl"] = perplexity(corpus.source_test_nll)
    return {name: value for name, value in found.items() if value is not None}
