"""Train: epochs of gradient steps, each validated; the learning rate follows the schedule; the best epoch is kept; and
all of it can be put down and taken up again between any two steps.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

import torch

from harness.corpora.batching import Segment, Segments, training_segments
from harness.corpora.corpus import Corpus
from harness.errors import ExecutionError
from harness.model import LanguageModel
from harness.plan.specs import CheckpointSpec, TrainSpec
from harness.random_streams import generator_states, set_generator_states, stream_seed
from harness.records.record import CurvePoint
from harness.training.checkpoint import Checkpoints
from harness.training.clocks import Clock
from harness.training.cuda_graph import GraphStep
from harness.training.evaluation import Score, evaluate
from harness.training.optimization import make_optimizer, make_schedule
from harness.training.progress import Progress, Throttled
from harness.training.step import EagerStep, Step


class Diverged(Exception):
    """The loss is no finite number any more."""


@dataclass
class Fitted:
    """What training leaves: the curve, the best epoch's score, the last one's, and the clocks.

    `best_epoch` counts from 1; 0 is the untrained model, when `epochs` is 0. `graphed`: the steps were a CUDA graph's.
    `start`: the score before the first update, where it is measured.
    """

    best_epoch: int = 0
    start: Score | None = None
    best: Score | None = None
    last: Score | None = None
    curve: list[CurvePoint] = field(default_factory=list)
    train_seconds: float = 0.0
    graphed: bool = False

    def state(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "curve": [point.model_dump() for point in self.curve]}

    def resume(self, state: dict[str, Any]) -> None:
        """Become what `state` was taken of."""
        self.best_epoch, self.train_seconds = state["best_epoch"], state["train_seconds"]
        self.best, self.last = (None if state[name] is None else Score(**state[name]) for name in ("best", "last"))
        self.start = None if state.get("start") is None else Score(**state["start"])
        self.curve[:] = [CurvePoint(**point) for point in state["curve"]]


class Training:
    """A model under training.

    Args:
        fitted: filled as epochs end, so that a trial that fails keeps what it had.
        clocks: 'train' and 'eval'.
        checkpoints: where states and the best weights are kept, as often as `pace` says and after the last epoch.
        report: hears of progress.
        score_start: score the model before the first update too.
        prepare: makes the step to train with of the eager one and the first segment, before any clock starts.
        agree: the score that counts, of the one found here: of several workers the first's.
        extra: what else a checkpoint is to hold, asked for each.
    """

    def __init__(
        self,
        model: LanguageModel,
        corpus: Corpus,
        train: TrainSpec,
        fitted: Fitted,
        *,
        seed: int,
        clocks: dict[str, Clock],
        checkpoints: Checkpoints,
        pace: CheckpointSpec,
        report: Callable[[Progress], None],
        score_start: bool = False,
        prepare: Callable[[EagerStep, Segment], Step] = lambda step, segment: step,
        agree: Callable[[Score], Score] = lambda score: score,
        extra: Callable[[], dict[str, Any]] = dict,
    ):
        self.model, self.corpus, self.train, self.fitted, self.seed = model, corpus, train, fitted, seed
        self.clocks, self.checkpoints, self.pace, self.extra = clocks, checkpoints, pace, extra
        self.optimizer = make_optimizer(model.parameters(), train)
        self.schedule = make_schedule(self.optimizer, train)
        self.segments = segments_of(corpus, train, self._device)
        self.last_epoch = math.ceil(train.epochs)  # epochs are numbered from 1; this one may be a part
        self.report = Throttled(report, train.epochs, clocks["train"])
        self.prepare, self.agree, self.score_start = prepare, agree, score_start
        self.epoch, self.steps_done, self.seconds = 1, 0, 0.0  # the epoch under way, and how much of it is done
        self._in_epoch: dict[str, Any] | None = None
        self._saved_at = time.monotonic()

    def resume(self, state: dict[str, Any]) -> None:
        """Take up a state that a checkpoint held, and what is large in it away."""
        self.model.load_state_dict(state.pop("model"))
        settings = self.optimizer.state_dict()["param_groups"]  # of the suite, but for the rate
        self.optimizer.load_state_dict({"state": state.pop("optimizer"), "param_groups": settings})
        for group, lr in zip(self.optimizer.param_groups, state["lr"], strict=True):
            group["lr"].fill_(lr)
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        self.fitted.resume(state["fitted"])
        for name, clock in self.clocks.items():
            clock.earlier = state["clocks"][name].tolist()
        self.epoch, self.steps_done, self.seconds = state["epoch"], state["step"], state["seconds"]
        self._in_epoch = state["in_epoch"]
        set_generator_states(state["generators"], self._device)

    def fit(self) -> None:
        """Train for what is left of the epochs. The last weights end in the model, those of the best epoch by
        validation among the checkpoints.

        Raises: Diverged when the training or validation loss of an epoch is not finite; StorageError; ExecutionError
        when the training split is too small for a single segment.
        """
        if self.train.epochs and not self.segments:
            raise ExecutionError(
                f"train: batch_size {self.train.batch_size} and seq_len {self.train.seq_len} (batching: "
                f"{self.train.batching}) make no batch of a training split of {len(self.corpus.train)} tokens"
            )
        step = EagerStep(self.model, self.optimizer, self.train)
        if self.train.epochs:
            step = self.prepare(step, self.segments[0])
        self.fitted.graphed = isinstance(step, GraphStep)
        if self._in_epoch is not None:
            step.resume(self._in_epoch)
        begins = (self.epoch, self.steps_done, self.fitted.last) == (1, 0, None)
        if begins and self.train.epochs == 0:  # never trained, scored as it is
            self._validate(0)
            self.fitted.start = self.fitted.last if self.score_start else None
            self._save(step)
        elif begins and self.score_start:
            self.fitted.start = self._score()
        while self.epoch <= self.last_epoch:
            self._train_epoch(step)

    def _train_epoch(self, step: Step) -> None:
        epoch, began = self.epoch, time.perf_counter() - self.seconds
        steps = steps_of(epoch, self.train.epochs, len(self.segments))

        def after_step(number: int) -> None:
            nonlocal began
            self.steps_done, self.seconds = number, time.perf_counter() - began
            self.report(epoch, number, steps, self.fitted.last)
            if number < steps and self._due() and step.state() is not None:
                self._save(step)
                began = time.perf_counter() - self.seconds  # saving is no training

        train_loss = train_epoch(
            step,
            self.segments,
            self.train,
            self.seed,
            epoch,
            self.clocks["train"],
            after_step,
            first=self.steps_done,
            steps=steps,
        )
        seconds = time.perf_counter() - began
        self._validate(epoch)
        lr, valid_ppl = float(self.optimizer.param_groups[0]["lr"]), self.fitted.last.ppl
        done = min(epoch, self.train.epochs)
        point = CurvePoint(epoch=done, train_loss=train_loss, valid_ppl=valid_ppl, lr=lr, seconds=seconds)
        self.fitted.curve.append(point)
        self.fitted.train_seconds += seconds
        if self.schedule is not None:
            self.schedule.step(self.fitted.last.mean_nll)
        self.report(epoch, steps, steps, self.fitted.last, ended=True)
        self.epoch, self.steps_done, self.seconds = epoch + 1, 0, 0.0
        if epoch == self.last_epoch or epoch % self.pace.epochs == 0 or self._due():
            self._save(step)

    def _score(self) -> Score:
        uncounted_id, clock = self.corpus.uncounted_id, self.clocks["eval"]
        return self.agree(evaluate(self.model, self.corpus.valid, self.train, uncounted_id=uncounted_id, clock=clock))

    def _validate(self, epoch: int) -> None:
        score = self.fitted.last = self._score()
        if not math.isfinite(score.ppl):
            raise Diverged(f"validation loss is {score.mean_nll} after epoch {epoch}")
        if self.fitted.best is None or score.mean_nll < self.fitted.best.mean_nll:
            self.fitted.best_epoch, self.fitted.best = epoch, score
            self.checkpoints.save_best(self.model.state_dict(), epoch)

    def _due(self) -> bool:
        return time.monotonic() - self._saved_at >= 60 * self.pace.minutes

    def _save(self, step: Step) -> None:
        self.checkpoints.save(self._state(step), self.epoch, self.steps_done)
        self._saved_at = time.monotonic()

    def _state(self, step: Step) -> dict[str, Any]:
        return {
            **self.extra(),
            "epoch": self.epoch,
            "step": self.steps_done,
            "seconds": self.seconds,
            "best_epoch": None if self.fitted.best is None else self.fitted.best_epoch,
            "fitted": self.fitted.state(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict()["state"],
            "lr": [float(group["lr"]) for group in self.optimizer.param_groups],
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "in_epoch": step.state() if self.steps_done else None,
            "generators": generator_states(self._device),
            "clocks": {
                name: torch.tensor(clock.measured(), dtype=torch.float64) for name, clock in self.clocks.items()
            },
        }

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device


def segments_of(corpus: Corpus, train: TrainSpec, device: torch.device) -> Segments:
    """An epoch's segments, in the order of the text."""
    sizes = {"batch_size": train.batch_size, "seq_len": train.seq_len}
    return training_segments(corpus.train, **sizes, batching=train.batching, device=device)


def steps_of(epoch: int, epochs: float, segments: int) -> int:
    """Steps of an epoch of so many segments; the last one of `epochs: 1.4` has round(0.4 segments), at least 1."""
    part = Fraction(str(epochs)) % 1  # of what the suite says: 1.4 - 1 is less than 0.4
    return segments if epoch <= epochs else max(1, round(part * segments))


def train_epoch(
    step: Step,
    segments: Sequence[Segment],
    train: TrainSpec,
    seed: int,
    epoch: int,
    clock: Clock,
    report: Callable[[int], None],
    *,
    first: int = 0,
    steps: int | None = None,
) -> float:
    """One pass over the training split; returns its mean loss in nats per token. Raises Diverged.

    Args:
        report: hears how many steps are done, after each.
        first: steps that are done already; `step` has their state.
        steps: end after so many; None: after all.
    """
    if first == 0:
        step.begin_epoch()
    if train.shuffle:
        segments = segments.shuffled(_generator(seed, epoch))
    num_targets = sum(segments[number].targets.numel() for number in range(first))
    for number in range(first, len(segments) if steps is None else steps):
        segment = segments[number]
        num_targets += segment.targets.numel()
        torch.manual_seed(stream_seed(seed, "dropout", epoch, number))
        with clock.lap():
            step(segment.inputs, segment.targets)
        report(number + 1)
    mean_loss = step.loss_sum.item() / num_targets
    clock.settle()
    if not math.isfinite(mean_loss):  # its size says nothing: not every head trains on nats a token
        raise Diverged(f"training loss is {mean_loss} in epoch {epoch}")
    return mean_loss


def _generator(seed: int, epoch: int) -> torch.Generator:
    return torch.Generator().manual_seed(stream_seed(seed, "data", epoch))
