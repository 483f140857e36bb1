"""Certify: after training, check on sampled positions of the test split that the test perplexity is made of
probabilities: what evaluation counted for a token is what a distribution over all words gives it, computed from the
tokens before it.

While the test split is scored, TokenNll keeps each token's nll and, of a few sampled segments, the text and the state
that the model began them with (harness/training/evaluation.py). `certify` then computes these segments again.

Which positions are sampled depends on the sizes of the trial only, and no random stream of the trial is touched: a
trial has the same bits with and without its certificate. Letters: see harness/protocols.py; P sampled positions.
"""

import math
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from harness.corpora.batching import Segment
from harness.corpora.corpus import Corpus
from harness.model import LanguageModel
from harness.plan.parameters import resolved
from harness.plan.specs import ComponentSpec, EvalSpec, TrialSpec
from harness.protocols import Hidden
from harness.records.record import Certificate
from harness.registry import HEADS
from harness.training.evaluation import Direction, Sampled, TokenNll, scored_segments

SEED = 20_260
SEGMENTS = 4
POSITIONS = 64  # of a segment, at which the whole distribution is looked at
SHARE = 200  # of so many tokens that the trial worked on, one is computed again: half a percent
FEWEST, MOST = 64, 4096  # tokens that are computed again at least, and at most for the smallest models
OPERATIONS = 2**31  # multiplications that are always allowed: a fraction of a second
LOG_PROBS = 2**20  # log-probabilities that are in memory at the same time


def segments_to_sample(tokens_N: Tensor, spec: EvalSpec) -> frozenset[int]:
    """Numbers, from 0, of the segments that a certificate is measured on: one of each quarter of a split."""
    number, generator = sum(1 for _ in scored_segments(tokens_N, spec)), torch.Generator().manual_seed(SEED)
    parts = min(SEGMENTS, number)
    bounds = [number * part // parts for part in range(parts + 1)]
    return frozenset(int(torch.randint(*each, (), generator=generator)) for each in pairwise(bounds))


@torch.no_grad()
def certify(
    directions: Sequence[Direction],
    spec: TrialSpec,
    corpus: Corpus,
    *,
    beat: Callable[[], None],
) -> Certificate:
    """The certificate of a trial's weights, of all directions in which the trial's model reads.

    Args:
        directions: the model that reads from the left, and of a bidirectional one that from the right; each with what
            it gave to each token of the test split, and with the sampled segments as it read them.
        beat: called after each segment: a sign of life.
    Raises: ValueError when log_probs or nll return another shape than they are to.
    """
    began = time.perf_counter()
    every = [_checked(model, tokens, spec, corpus, beat) for model, tokens in directions]
    nll_N = torch.cat([tokens.nll_N[tokens.offset_N >= 0] for _, tokens in directions])
    means = [_gap(torch.cat(checks.counted).mean(), torch.cat(checks.due).mean()) for checks in every]
    return Certificate(
        positions=sum(len(counted_P) for checks in every for counted_P in checks.counted),
        sum_error=_largest([error for checks in every for error in checks.sum_errors]),
        nll_gap=_largest([gap for checks in every for gap in checks.gaps]),
        mean_gap=_largest(means),
        lowest_nll=nll_N.min().item() if nll_N.isfinite().all() else None,
        later_change=_largest([change for checks in every for change in checks.changes]),
        vocab_size=corpus.vocab_size,
        log_epsilon=log_epsilon(spec.head),
        seconds=time.perf_counter() - began,
    )


def _checked(
    model: LanguageModel, tokens: TokenNll, spec: TrialSpec, corpus: Corpus, beat: Callable[[], None]
) -> "Checks":
    """The checks of one direction."""
    model.eval()
    scored = int((tokens.offset_N >= 0).sum())
    size = _affordable(model, spec, corpus, scored) // len(tokens.sampled)
    checks = Checks(model, tokens.nll_N, corpus.vocab_size)
    for sampled in tokens.sampled:
        checks.add(_cut(sampled, size, checks.generator))
        beat()
    return checks


def log_epsilon(head: ComponentSpec) -> float:
    """What a head adds to each word's probability, as its parameter `compat` says."""
    compat = resolved(HEADS.get(head.name), head.params).get("compat") or {}
    return compat.get("log_epsilon", 0.0)


def unseen(last_B: Tensor, length: int) -> Tensor:
    """(B, T) which inputs of a segment a model may not see when it predicts the token after position `last`: all later
    ones. The segments of a model that reads from the right begin with their last token, so the rule is the same.
    """
    return torch.arange(length, device=last_B.device) > last_B[:, None]


class Checks:
    """The checks of a model, made segment by segment, and their findings.

    Args:
        nll_N: what evaluation counted for each token of the split.
    """

    def __init__(self, model: LanguageModel, nll_N: Tensor, vocab_size: int):
        self.model, self.nll_N, self.vocab_size = model, nll_N, vocab_size
        self.generator = torch.Generator().manual_seed(SEED)
        self.sum_errors: list[float] = []
        self.gaps: list[float] = []
        self.changes: list[float] = []
        self.counted: list[Tensor] = []  # (P,) nll of the sampled positions as evaluation counted it
        self.due: list[Tensor] = []  # (P,) -log p[target] there

    def add(self, sampled: Sampled) -> None:
        """Check one segment."""
        segment, state = sampled
        hidden = self.model.backbone(segment.inputs, state)
        nll_BT = self.model.head(hidden).nll(segment.targets)
        scored_BT = segment.weight > 0
        self.gaps.append(_gap(self.nll_N[segment.place[scored_BT]], nll_BT[scored_BT]))
        self._change_later_tokens(sampled, nll_BT)
        row_P, time_P = scored_BT.nonzero().unbind(-1)
        chosen = torch.randperm(len(row_P), generator=self.generator)[:POSITIONS].to(row_P.device)
        window_P = (time_P[chosen]).clamp(max=getattr(self.model.head, "window", 0)) + 1
        for window in window_P.unique().tolist():
            alike_P = chosen[window_P == window]
            # guard: log-probs-at-once max(1, LOG_PROBS // (window * self.vocab_size)) -> len(alike_P)
            for part_P in alike_P.split(max(1, LOG_PROBS // (window * self.vocab_size))):
                self._distribution(hidden, segment, (row_P[part_P], time_P[part_P]), window)

    def _change_later_tokens(self, sampled: Sampled, nll_BT: Tensor) -> None:
        """Compute the segment with another text after a position, which is a different one in each row. Up to that
        position no nll may change, whatever changes in other rows. Its own target is not part of this text.
        """
        segment, state = sampled
        rows, length = segment.inputs.shape
        last_B = torch.randint(max(1, length - 1), (rows,), generator=self.generator).to(nll_BT.device)
        unseen_BT = unseen(last_B, length)
        inputs_BT = torch.where(unseen_BT, self._others(segment.inputs), segment.inputs)
        targets_BT = torch.where(unseen_BT, self._others(segment.targets), segment.targets)
        other_BT = self.model.head(self.model.backbone(inputs_BT, state)).nll(targets_BT)
        seen_BT = ~unseen_BT & (segment.weight > 0)
        # guard: later-tokens _gap(other_BT[seen_BT], nll_BT[seen_BT]) -> 0.0
        self.changes.append(_gap(other_BT[seen_BT], nll_BT[seen_BT]))

    def _distribution(self, hidden: Hidden, segment: Segment, at: tuple[Tensor, Tensor], window: int) -> None:
        """Check the probabilities of all words at positions (rows, times). The head receives the states there and those
        of the `window` - 1 positions before, of no later one, and returns its distribution before it gets a target.
        """
        row_P, time_P = at
        time_PW = time_P[:, None] + torch.arange(1 - window, 1, device=time_P.device)
        distribution = self.model.head(Hidden(tuple(layer[row_P[:, None], time_PW] for layer in hidden.layers)))
        logp_PV = _shaped(distribution.log_probs(), (*time_PW.shape, self.vocab_size))[:, -1]
        self.sum_errors += (logp_PV.double().exp().sum(-1) - 1).abs().tolist()
        target_P = segment.targets[at]
        for word_P in (self._others(target_P), logp_PV.argmax(-1)):
            nll_PW = distribution.nll(word_P[:, None].expand_as(time_PW).contiguous())
            self.gaps.append(_gap(_shaped(nll_PW, time_PW.shape)[:, -1], _nll(logp_PV, word_P)))
        self.counted.append(self.nll_N[segment.place[at]].double())
        self.due.append(_nll(logp_PV, target_P).double())
        # guard: certificate-of-evaluation -> self.counted[-1] = self.due[-1]
        self.gaps.append(_gap(self.counted[-1], self.due[-1]))

    def _others(self, ids: Tensor) -> Tensor:
        """For each token another one, at random."""
        steps = torch.randint(1, max(2, self.vocab_size), ids.shape, generator=self.generator)
        return (ids + steps.to(ids.device)) % self.vocab_size


def _affordable(model: LanguageModel, spec: TrialSpec, corpus: Corpus, scored: int) -> int:
    """How many tokens to compute again: so many that it costs little compared with the trial."""
    trained = 3 * int(spec.train.epochs * len(corpus.train))  # forward and backward: three times the work
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return max(FEWEST, min(MOST, OPERATIONS // max(1, parameters)), (trained + scored) // SHARE)


def _cut(sampled: Sampled, size: int, generator: torch.Generator) -> Sampled:
    """About the first `size` tokens of a sampled segment. With a state all rows stay, since the state is of all."""
    segment, state = sampled
    rows, length = segment.inputs.shape
    if rows * length <= size:
        return sampled
    scored_BT = segment.weight > 0
    first = int(scored_BT.any(0).nonzero()[0])  # of a window by `eval_stride` only the last tokens are scored
    length = min(length, max(first + 2, size if state is None else size // rows))
    row_R = torch.arange(rows)
    if state is None:
        row_R = scored_BT[:, :length].any(1).nonzero().flatten().cpu()
        row_R = row_R[torch.randperm(len(row_R), generator=generator)[: max(1, size // length)]]
    row_R = row_R.to(segment.inputs.device)
    return Sampled(Segment(*(each_BT[row_R, :length] for each_BT in segment)), state)


def _nll(logp_PV: Tensor, word_P: Tensor) -> Tensor:
    return -logp_PV.gather(-1, word_P[:, None]).squeeze(-1)


def _gap(found: Tensor, due: Tensor) -> float:
    """The largest |found - due| / max(1, due); 0 where both are the same infinity. NaN where one is NaN."""
    found, due = found.double(), due.double()
    gap = torch.where(found == due, 0.0, (found - due).abs() / due.clamp(min=1.0))
    return gap.max().item() if gap.numel() else 0.0


def _shaped(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    if tuple(tensor.shape) != tuple(shape):
        raise ValueError(f"the head's distribution has shape {tuple(tensor.shape)}, expected {tuple(shape)}")
    return tensor


def _largest(values: list[float]) -> float | None:
    """The largest value; None when one of them is not finite."""
    return max(values) if all(map(math.isfinite, values)) else None
