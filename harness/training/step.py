"""A training step: the loss of a segment, its gradients, clipping, the update; and an epoch of
them.

Here torch runs a step operation by operation; harness/gpu/cuda_graph.py runs it as a CUDA graph,
with the same interface and the same result.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from fractions import Fraction
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from harness.corpora.batching import Segment, Segments, training_segments
from harness.corpora.corpus import Corpus
from harness.errors import ExecutionError
from harness.extensions import lack_of, provided
from harness.kernels import products
from harness.model import LanguageModel
from harness.plan.specs import TrainSpec
from harness.protocols import TakesZLoss, TokenDistribution
from harness.random_streams import stream_seed
from harness.training.clocks import Clock
from harness.training.parts import Parts

Work = Callable[[], None]
Record = Callable[[Work], Work]  # work -> a replay of it; work may have run any number of times


class Step(Protocol):
    """A training step, called for each segment of an epoch. A part of training
    (harness/training/parts.py).

    Attributes:
        loss_sum: () float64 on the device, nats since `begin_epoch`, summed over tokens.
        resumable: whether `state_dict` holds the whole state. False for a data-parallel worker
            while the other workers carry a state: a checkpoint within an epoch is not possible
            then.
        graphed: whether a call replays a CUDA graph.
    """

    loss_sum: Tensor
    resumable: bool
    graphed: bool

    def begin_epoch(self) -> None:
        """Reset the carried state and the summed loss, and set the model to training mode."""

    def __call__(self, segment: Segment) -> None:
        """Train on one segment. It does not wait for a GPU."""

    def state_dict(self) -> dict[str, Any]:
        """What the next call within the epoch depends on beside model and optimizer: 'loss_sum' and
        'carried', the carried state: a tensor, nested tuples of tensors, or None.
        """

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue within an epoch, from what `state_dict` returned; sets the model to training
        mode.
        """


class SegmentLoss(nn.Module):
    """A model and its loss of a segment as one module, which DistributedDataParallel can wrap.

    loss = training loss + ar mean(y^2) + tar mean((h_t - h_{t-1})^2)

    with y the top layer's output, and h the same before its dropout.

    The loss of a bidirectional model is the mean of the losses of its two directions.

    Args:
        train: with `z_loss`, the weight of the z-loss in the training loss (TakesZLoss in
            harness/protocols.py), `ar` and `tar`; None: all are 0.
    Source: Merity et al. (2018), arXiv:1708.02182, section 4.6 (AR and TAR).
    """

    def __init__(self, model: LanguageModel, train: TrainSpec | None = None):
        super().__init__()
        self.model = model
        self.z_loss = self.ar = self.tar = 0.0
        if train is not None:
            self.z_loss, self.ar, self.tar = train.z_loss, train.ar, train.tar

    def forward(self, segment: Segment, state: Any) -> tuple[Tensor, Any]:
        """() loss, nats a token, and the state to carry."""
        loss, state = self._loss(self.model, segment, state)
        if (from_the_right := self.model.from_the_right()) is not None:
            other, _ = self._loss(from_the_right, segment.reversed(), None)
            loss = (loss + other) / 2
        return loss, state

    def _loss(self, model: LanguageModel, segment: Segment, state: Any) -> tuple[Tensor, Any]:
        if not (self.ar or self.tar):
            distribution, state = model(segment, state)
            return self._of(distribution, segment), state
        hidden = model.hidden(segment, state)
        loss = self._of(model.distribution(hidden), segment)
        if self.ar:
            loss = loss + self.ar * hidden.layers[-1].square().mean()
        if self.tar and segment.inputs.shape[1] > 1:
            loss = loss + self.tar * hidden.undropped.diff(dim=1).square().mean()
        return loss, hidden.state

    def _of(self, distribution: TokenDistribution, segment: Segment) -> Tensor:
        if self.z_loss:
            distribution.z_loss = self.z_loss
        return distribution.training_loss(segment.targets)


class EagerStep:
    """The step, operation by operation. The backbone's state is carried to the next call where
    segments continue each other (`carries`): not when they are shuffled, and not for blocks.

    With `accumulation` the rows of a segment are computed in so many equal parts, one after the
    other, and their gradients are added: the mean over all tokens is the mean of the parts' means.
    Each part carries its own state.

    Args:
        loss: the model's loss, by default SegmentLoss(model, train). With several workers it is
            wrapped in DistributedDataParallel, which exchanges the gradients once a step.
    """

    resumable, graphed = True, False

    def __init__(
        self,
        model: LanguageModel,
        optimizer: Optimizer,
        train: TrainSpec,
        loss: nn.Module | None = None,
    ):
        self.model, self.optimizer, self.train = model, optimizer, train
        self.loss = SegmentLoss(model, train) if loss is None else loss
        self.parameters = list(model.parameters())
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=self.parameters[0].device)
        self.carries = train.batching == "stream" and not train.shuffle
        self._state: Any = None

    def begin_epoch(self) -> None:
        self.model.train()
        self.loss_sum.zero_()
        self._state = None

    def __call__(self, segment: Segment) -> None:
        state = self.advance(segment, self._state)
        self._state = state if self.carries else None

    def state_dict(self) -> dict[str, Any]:
        return {"loss_sum": self.loss_sum, "carried": self._state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.train()
        self.loss_sum.copy_(state["loss_sum"])
        self._state = changed(state["carried"], lambda tensor: tensor.to(self.loss_sum.device))

    def advance(self, segment: Segment, state: Any) -> Any:
        """Train on one segment from a given state. Returns the state after the segment, detached;
        with several parts a tuple of their states.

        Raises: ValueError when the rows cannot be divided into `accumulation` equal parts.
        """
        parts = self.train.accumulation
        one_each = parts > 1 and state is not None
        states = state if one_each else (state,) * parts
        carried = []
        self.optimizer.zero_grad(set_to_none=True)
        with products.using(replace(products.current(), precision=self.train.precision)):
            for part, before in zip(segment.rows(parts), states, strict=True):
                is_last = len(carried) == parts - 1
                # Workers exchange gradients once a step, when those of all parts are added.
                wait = isinstance(self.loss, DistributedDataParallel) and not is_last
                with self.loss.no_sync() if wait else nullcontext():
                    loss, after = self.loss(part, before)
                    (loss / parts).backward()  # equal parts: the mean of their means is that of all
                self.loss_sum += loss.detach().double() * part.targets.numel()
                carried.append(changed(after, Tensor.detach))  # gradients end with the segment
        if self.train.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.train.clip)
        with self._rates_of(segment):
            self.optimizer.step()
        if all(after is None for after in carried):
            return None
        return tuple(carried) if parts > 1 else carried[0]

    @contextmanager
    def _rates_of(self, segment: Segment) -> Iterator[None]:
        """Within it, learning rates are those of a segment's length, where lengths are random."""
        if self.train.random_lengths is None:
            yield
            return
        # A step of a short segment has the mean of fewer losses: its rate is smaller by as much.
        groups = self.optimizer.param_groups
        before = [group["lr"].clone() for group in groups]
        for group in groups:
            group["lr"].mul_(segment.targets.shape[1] / self.train.seq_len)
        yield
        for group, rate in zip(groups, before, strict=True):
            group["lr"].copy_(rate)


def changed(state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A carried state (a tensor, nested tuples of tensors, or None) with each of its tensors
    changed.
    """
    if isinstance(state, tuple):
        return tuple(changed(part, change) for part in state)
    return change(state) if isinstance(state, Tensor) else state


@torch.no_grad()
def refuse_z_loss(model: LanguageModel) -> None:
    """Raises ExecutionError when the head's distribution takes no z-loss, or its training loss
    ignores it.
    """
    model.eval()
    tokens_BT = torch.zeros(1, 2, dtype=torch.int64, device=next(model.parameters()).device)
    # For a model of kept states: a head takes any.
    states = torch.zeros(1, 2, sum(model.backbone.layer_dims), device=tokens_BT.device)
    distribution, _ = model(Segment(tokens_BT, tokens_BT, states=states))
    returned = f"train.z_loss: {model.head_name} returns a {type(distribution).__name__}"
    if not isinstance(distribution, TakesZLoss):
        lacks = "which has no attribute z_loss (harness/protocols.py)"
        raise ExecutionError(f"{returned}, {lacks}; leave z_loss out")
    # It is ignored where a weight of 1 changes nothing: the term is the square of log Z, and not 0.
    losses = []
    for weight in (0.0, 1.0):
        distribution.z_loss = weight
        with torch.random.fork_rng():
            torch.manual_seed(0)  # a loss may draw
            losses.append(distribution.training_loss(tokens_BT).item())
    if losses[0] == losses[1]:
        ignores = "whose training_loss ignores z_loss (harness/protocols.py)"
        raise ExecutionError(f"{returned}, {ignores}; add the term, or leave z_loss out")


@torch.no_grad()
def refuse_tar(model: LanguageModel) -> None:
    """Raises ExecutionError when the backbone does not return its states before dropout."""
    tokens_BT = torch.zeros(1, 2, dtype=torch.int64, device=next(model.parameters()).device)
    if model.eval().hidden(Segment(tokens_BT, tokens_BT)).undropped is None:
        lacks = "does not return its states before dropout (Hidden.undropped), as awd_lstm does"
        raise ExecutionError(f"train.tar: {model.backbone_name} {lacks}; leave tar out")


def refuse_unfit(train: TrainSpec, device: str) -> None:
    """Raises ExecutionError when the device, or several workers on it, cannot do what `train` asks
    for.
    """
    if train.cuda_graph == "on" and train.data_parallel > 1:
        steps = f"the steps of {train.data_parallel} workers are eager"
        raise ExecutionError(f"train.cuda_graph is on, and {steps}: set it to auto or off")
    if device == "cuda":
        if train.cuda_graph == "on" and (lack := lack_of("harness.gpu.cuda_graph")):
            raise ExecutionError(f"train.cuda_graph: on {lack}")
        return
    if train.precision == "tf32":
        on_cpu = "on the CPU it is fp32 or bf16"
        raise ExecutionError(f"train.precision is tf32, which only a GPU has: {on_cpu}")
    if train.cuda_graph == "on":
        instead = "set train.cuda_graph to auto or off"
        raise ExecutionError(f"train.cuda_graph is on, but the trials run on the CPU: {instead}")


def graphed(
    step: EagerStep,
    segment: Segment,
    parts: Parts | None = None,
    *,
    log: Callable[[str], None],
    record: Record | None = None,
) -> Step:
    """The step as a CUDA graph, where there is a GPU and `harness/gpu/cuda_graph.py`, which says
    what it is given; else the step itself.
    """
    made = provided("harness.gpu.cuda_graph:graphed", None)
    return step if made is None else made(step, segment, parts, log=log, record=record)


class Diverged(Exception):
    """The loss is not a finite number.

    Args:
        step: the first step of the epoch after which the training loss is not finite, from 1; None
            where another loss is not.
    """

    def __init__(self, message: str, step: int | None = None):
        super().__init__(message)
        self.step = step


def ordered(segments: Segments, train: TrainSpec, *, seed: int, epoch: int) -> Segments:
    """The segments in the order in which an epoch takes them: that of the text, or a random one;
    windows are drawn.
    """
    if not train.shuffle and train.batching != "windows":
        return segments
    generator = torch.Generator().manual_seed(stream_seed(seed, "data", epoch))
    return segments.shuffled(generator)


def train_epoch(
    step: Step,
    segments: Sequence[Segment],
    clock: Clock,
    *,
    epoch: int,
    seed: int,
    first: int = 0,
    steps: int | None = None,
    after_step: Callable[[int], None] = lambda number: None,
    before_step: Callable[[int], None] = lambda number: None,
) -> float:
    """Train on the segments of an epoch, or of a part of one.

    Args:
        epoch: from 1.
        seed: the trial's, for dropout.
        first: steps that are done already; the step has the state that they left.
        steps: number of the step after which it ends; None: with the last segment.
        after_step, before_step: called after and before each step with the number of steps of the
            epoch that are done.
    Returns: the mean loss since the epoch's beginning, in nats a token.
    Raises: Diverged when that is not finite.
    """
    if first == 0:
        step.begin_epoch()
    # Steps with a finite sum, on the device: to ask after each step would wait for a GPU.
    finite = torch.zeros((), dtype=torch.int64, device=step.loss_sum.device)
    last = len(segments) if steps is None else steps
    num_targets = 0  # also of the steps before, which are in the sum of a resumed step
    for number in range(first):
        num_targets += segments[number].targets.numel()
    for number in range(first, last):
        segment = segments[number]
        num_targets += segment.targets.numel()
        # By the step's number: a resumed trial draws the same masks, and so does every head.
        torch.manual_seed(stream_seed(seed, "dropout", epoch, number))
        before_step(number)
        with clock.lap():
            step(segment)
        finite += step.loss_sum.isfinite()
        after_step(number + 1)
    mean_loss = step.loss_sum.item() / num_targets
    clock.settle()
    if not math.isfinite(mean_loss):  # a large one may be right: some heads' is not in nats a token
        at = first + int(finite) + 1
        raise Diverged(f"training loss is {mean_loss} in epoch {epoch}, step {at} of {last}", at)
    return mean_loss


def segments_of(
    corpus: Corpus, train: TrainSpec, device: torch.device, *, seed: int, epoch: int | None = None
) -> Segments:
    """The segments of an epoch, in the order of the text.

    Args:
        seed: the trial's, for where the columns begin with `shift_columns`: within the length of a
            column, from the stream 'columns'.
        epoch: from 1, of which the lengths are drawn with `random_lengths`; None: all have seq_len.
    """
    length = len(corpus.train) // train.batch_size
    shift, drawn = 0, None
    if train.shift_columns and length:
        shift = stream_seed(seed, "columns") % length
    if epoch is not None and train.random_lengths is not None:
        drawn = random_lengths(train, length, stream_seed(seed, "lengths", epoch))
    return training_segments(
        corpus.train,
        batch_size=train.batch_size,
        seq_len=train.seq_len,
        batching=train.batching,
        device=device,
        shift=shift,
        states=corpus.states.get("train"),
        lengths=drawn,
    )


def random_lengths(train: TrainSpec, total: int, seed: int) -> list[int]:
    """Lengths of segments that have `total` tokens or more together (RandomLengths in
    harness/plan/specs.py).

    Source: Merity et al. (2018), arXiv:1708.02182, section 4.1; salesforce/awd-lstm-lm, main.py;
        the longest:
        zihangdai/mos, main.py, max_seq_len_delta.
    Differs: the last segment of a text is cut, and its step has the rate of what is left; the
        authors' has that of the drawn length. They leave out a last segment of one token.
    """
    settings, chance = train.random_lengths, random.Random(seed)
    lengths, left = [], total
    while left > 0:
        is_half = chance.random() < settings.half
        mean = train.seq_len / 2 if is_half else train.seq_len
        length = max(settings.shortest, int(chance.gauss(mean, settings.deviation)))
        if settings.longest is not None:
            length = min(length, settings.longest)
        lengths.append(length)
        left -= length
    return lengths


def steps_of(epoch: int, epochs: float, segments: int) -> int:
    """Steps of an epoch of so many segments. The last epoch of `epochs: 1.4` has round(0.4
    segments), at least 1.
    """
    # Of the number as the suite writes it: the float 1.4 - 1 is less than 0.4.
    part = Fraction(str(epochs)) % 1
    return segments if epoch <= epochs else max(1, round(part * segments))


def steps_of_training(train: TrainSpec, segments: int) -> int:
    """Steps of all epochs, without those of a second stage."""
    epochs = range(1, math.ceil(train.epochs) + 1)
    return sum(steps_of(epoch, train.epochs, segments) for epoch in epochs)
