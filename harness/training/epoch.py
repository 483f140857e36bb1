"""One epoch of training steps."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch

from harness.corpora.batching import Segment, Segments, training_segments
from harness.corpora.corpus import Corpus
from harness.plan.specs import TrainSpec
from harness.random_streams import stream_seed
from harness.training.clocks import Clock
from harness.training.step import Step


class Diverged(Exception):
    """The loss is not a finite number.

    Args:
        step: the first step of the epoch after which the training loss is not finite, from 1; None where another loss
            is not.
    """

    def __init__(self, message: str, step: int | None = None):
        super().__init__(message)
        self.step = step


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """An epoch, or a part of one.

    Args:
        number: from 1.
        segments: of the training split, in the order of the text.
        seed: the trial's, for the order of segments and for dropout.
        shuffle: take the segments in a random order.
        first: steps that are done already.
        steps: number of the step after which it ends; None: with the last segment.
    """

    number: int
    segments: Sequence[Segment]
    seed: int
    shuffle: bool = False
    first: int = 0
    steps: int | None = None

    def ordered(self) -> Sequence[Segment]:
        """The segments in the order of this epoch."""
        if not self.shuffle:
            return self.segments
        generator = torch.Generator().manual_seed(stream_seed(self.seed, "data", self.number))
        return self.segments.shuffled(generator)


def train_epoch(
    step: Step,
    epoch: Epoch,
    clock: Clock,
    after_step: Callable[[int], None] = lambda number: None,
    before_step: Callable[[int], None] = lambda number: None,
) -> float:
    """Train on the segments of an epoch.

    Args:
        step: if the epoch's first steps are done already, it has the state that they left.
        after_step, before_step: called after and before each step with the number of steps of the epoch that are done.
    Returns: the mean loss since the epoch's beginning, in nats a token.
    Raises: Diverged when that is not finite.
    """
    if epoch.first == 0:
        step.begin_epoch()
    segments = epoch.ordered()
    finite = torch.zeros((), dtype=torch.int64, device=step.loss_sum.device)  # steps; counted without waiting for a GPU
    num_targets = sum(segments[number].targets.numel() for number in range(epoch.first))
    for number in range(epoch.first, len(segments) if epoch.steps is None else epoch.steps):
        segment = segments[number]
        num_targets += segment.targets.numel()
        torch.manual_seed(stream_seed(epoch.seed, "dropout", epoch.number, number))
        before_step(number)
        with clock.lap():
            step(segment.inputs, segment.targets)
        finite += step.loss_sum.isfinite()
        after_step(number + 1)
    mean_loss = step.loss_sum.item() / num_targets
    clock.settle()
    if not math.isfinite(mean_loss):  # a large one may be right: the loss of some heads is not in nats a token
        first = epoch.first + int(finite) + 1
        last = len(segments) if epoch.steps is None else epoch.steps
        raise Diverged(f"training loss is {mean_loss} in epoch {epoch.number}, step {first} of {last}", first)
    return mean_loss


def segments_of(corpus: Corpus, train: TrainSpec, device: torch.device, *, seed: int) -> Segments:
    """The segments of an epoch, in the order of the text.

    Args:
        seed: the trial's, for where the columns begin with `shift_columns`: within the length of a column, from the
            stream 'columns'.
    """
    length = len(corpus.train) // train.batch_size
    shift = stream_seed(seed, "columns") % length if train.shift_columns and length else 0
    sizes = {"batch_size": train.batch_size, "seq_len": train.seq_len}
    return training_segments(corpus.train, **sizes, batching=train.batching, device=device, shift=shift)


def steps_of(epoch: int, epochs: float, segments: int) -> int:
    """Steps of an epoch of so many segments. The last epoch of `epochs: 1.4` has round(0.4 segments), at least 1."""
    part = Fraction(str(epochs)) % 1  # of the number as the suite writes it: the float 1.4 - 1 is less than 0.4
    return segments if epoch <= epochs else max(1, round(part * segments))
