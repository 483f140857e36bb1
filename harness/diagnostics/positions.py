"""The contexts on which heads are compared: scored positions of the validation split, in float64.

The split is cut as it was for the validation of the trial. As few segments are used as hold the wanted number of scored
positions, and of the last one only as many positions as are needed:

- columns: the first segments. A segment has a piece of every column, and the columns are evenly spaced in the split. A
  backbone that carries a state has the whole column so far as its context, as in validation;
- windows or blocks, which are called in batches: evenly spaced batches.

Trials with the same settings of evaluation have the same contexts.

Letters: see harness/protocols.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.diagnostics.diagnostic import NotDefined
from harness.distributions import Mixture
from harness.errors import ExecutionError
from harness.kernels import Tensors
from harness.model import LanguageModel
from harness.protocols import Hidden, TokenDistribution
from harness.training.evaluation import refuse_stride, scored_segments
from harness.trial.trained import Trained

AT_PLACES = "scored positions of the validation split, at evenly spaced places"  # what they are, below a table
BLOCK_BYTES = 2**27  # of the log-probabilities of one call of the head


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Some rows of a segment: hidden states, targets, and which positions are contexts.

    Shapes: hidden layers (B, T, D_l) float64; targets (B, T); chosen (B, T), bool.
    """

    hidden: Hidden
    targets: Tensor
    chosen: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Contexts:
    """The contexts of a trained model. The head is called when they are iterated over, as often as is wanted."""

    model: LanguageModel
    parts: tuple[Scored, ...]

    def __len__(self) -> int:
        return sum(int(part.chosen.sum()) for part in self.parts)

    @torch.no_grad()
    def distributions(self) -> Iterator[tuple[TokenDistribution, Scored]]:
        """The head's distribution for each part."""
        for part in self.parts:
            yield self.model.head(part.hidden), part

    def mixtures(
        self, otherwise: str = "has no output matrix by which all its words are scored"
    ) -> Iterator[tuple[Tensors, Tensor]]:
        """The mixture at the contexts of each part, without what published codes add to a probability, and (n,) their
        targets. Raises NotDefined with the name of the head and `otherwise` for a head that is no mixture.
        """
        for distribution, part in self.distributions():
            if not isinstance(distribution, Mixture):
                raise NotDefined(f"{self.model.head_name} {otherwise}")
            at = part.chosen.flatten().nonzero()[:, 0]
            yield distribution.changed(log_epsilon=None).part(at), part.targets.flatten()[at]

    @torch.no_grad()
    def log_probs(self) -> Iterator[Tensor]:
        """Blocks (n, V) of the log-probabilities in nats, a row for each context."""
        for distribution, part in self.distributions():
            logp_BTV = distribution.log_probs()
            yield logp_BTV[part.chosen].double()


@torch.no_grad()
def contexts(subject: Trained, number: int) -> Contexts:
    """The contexts of a model: `number` of them, or all of the validation split if it has fewer. Raises ExecutionError
    when it has no scored position.
    """
    spec = subject.spec.train.evaluation
    if len(subject.corpus.valid) < 2:
        raise ExecutionError(f"the validation split of {subject.spec.corpus} has no scored position")
    scored = [int((segment.weight > 0).sum()) for segment in scored_segments(subject.corpus, "valid", spec)]
    columns = spec.batching == "stream" and spec.eval_stride is None
    wanted = segments_with(scored, number, evenly=not columns)
    most_rows = max(1, BLOCK_BYTES // (8 * subject.corpus.vocab_size))
    parts: list[Scored] = []
    state: Any = None
    for index, cut in enumerate(scored_segments(subject.corpus, "valid", spec)):
        if index > max(wanted):
            break
        if index not in wanted:
            continue
        segment = cut.to(subject.device)
        hidden = subject.wide.hidden(segment, state)
        refuse_stride(spec, hidden.state)
        state = hidden.state if columns else None
        chosen_BT = _first(segment.weight > 0, wanted[index])
        parts += _rows(Scored(Hidden(hidden.layers), segment.targets, chosen_BT), most_rows)
    return Contexts(subject.wide, tuple(parts))


def segments_with(scored: Sequence[int], number: int, *, evenly: bool) -> dict[int, int]:
    """Choose the fewest segments with enough scored positions: evenly spaced ones, or the first ones. Returns index of
    a segment -> how many of its positions, of which `scored` has the numbers, are used.
    """
    chosen: list[int] = []
    for count in range(1, len(scored) + 1):
        chosen = [each * len(scored) // count if evenly else each for each in range(count)]
        if sum(scored[each] for each in chosen) >= number:
            break
    used, left = {}, number
    for each in chosen:
        used[each] = min(scored[each], left)
        left -= used[each]
    return {each: count for each, count in used.items() if count}


def _first(mask_BT: Tensor, number: int) -> Tensor:
    """The first true places of a mask, in the order of its rows."""
    return mask_BT & (mask_BT.flatten().cumsum(0).view_as(mask_BT) <= number)


def _rows(part: Scored, most: int) -> Iterator[Scored]:
    """The rows of a segment that have contexts, in parts of at most so many positions, or of one row."""
    B, T = part.targets.shape
    step = max(1, most // T)
    for start in range(0, B, step):
        rows = slice(start, start + step)
        if part.chosen[rows].any():
            layers = tuple(h_BTD[rows] for h_BTD in part.hidden.layers)
            yield Scored(Hidden(layers), part.targets[rows], part.chosen[rows])
