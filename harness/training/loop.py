"""Train: epochs of gradient steps, each followed by a validation; the learning rate follows the
schedule; the weights of the best epoch are kept. Training can be interrupted between any two steps
and be resumed from a checkpoint. It reports its progress, and what it leaves is `Fitted`.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from harness.corpora.batching import Segment
from harness.corpora.corpus import Corpus
from harness.errors import ExecutionError
from harness.fading import Fade
from harness.machine.stop_request import Interrupted, StopRequest
from harness.model import LanguageModel
from harness.plan.specs import TrainSpec
from harness.plan.suite_file import CheckpointSpec
from harness.protocols import followers
from harness.records.record import CurvePoint
from harness.training.averaging import is_above_the_best, make_averaging
from harness.training.checkpoint import Checkpoint, Position
from harness.training.clocks import Clocks
from harness.training.evaluation import Score, TokenNll, evaluate
from harness.training.optimizers import clear_momentum, make_optimizer
from harness.training.parts import OptimizerState, Parts, Stateful, step_parts
from harness.training.schedules import make_schedule
from harness.training.step import (
    Diverged,
    EagerStep,
    Step,
    ordered,
    segments_of,
    steps_of,
    train_epoch,
)

PROGRESS_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a trial is, within an epoch or at its end.

    Args:
        epoch: the present one, from 1.
        epochs: of the suite; it may be a fraction, such as 0.4.
        step: steps of the present epoch that are done, of `steps`.
        valid_ppl: of the last epoch that has ended.
        ms_per_batch: the median of the last steps.
    """

    epoch: int
    epochs: float
    step: int
    steps: int
    valid_ppl: float | None
    ms_per_batch: float


@dataclass
class Fitted:
    """Filled as epochs end, so that a trial that fails keeps what it had. A part of training
    (harness/training/parts.py).

    Args:
        best_epoch: from 1; 0 is the untrained model, when `epochs` is 0.
        start: the score before the first update, where it is measured.
        averaged_from: the first epoch whose score is of an average of weights; 0: none.
        train_seconds: of all epochs that have ended.
        epoch_seconds: of the present epoch so far.
        graphed: whether the steps were replays of a CUDA graph.
    """

    best_epoch: int = 0
    start: Score | None = None
    best: Score | None = None
    last: Score | None = None
    averaged_from: int = 0
    curve: list[CurvePoint] = field(default_factory=list)
    train_seconds: float = 0.0
    epoch_seconds: float = 0.0
    graphed: bool = False

    def state_dict(self) -> dict[str, Any]:
        return {**asdict(self), "curve": [point.model_dump() for point in self.curve]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best_epoch, self.train_seconds = state["best_epoch"], state["train_seconds"]
        self.epoch_seconds = state["epoch_seconds"]
        self.averaged_from = state.get("averaged_from", 0)  # older checkpoints do not have it
        names = ("start", "best", "last")
        scores = [None if state[name] is None else Score(**state[name]) for name in names]
        self.start, self.best, self.last = scores
        self.curve[:] = [CurvePoint(**point) for point in state["curve"]]


class Host:
    """Who has a model trained; a trial is one. Its methods here report nothing and write nothing.

    Attributes:
        stop: whether training is to stop. It does so after the step under way, and saves a
            checkpoint first.
        pace: how often a checkpoint is written.
        score_start: score the model before the first update, too.
    """

    clocks: Clocks
    fitted: Fitted
    stop: StopRequest
    pace: CheckpointSpec
    score_start: bool

    def report(self, progress: Progress) -> None:
        """Receive the progress."""

    def prepare(self, step: EagerStep, segment: Segment, parts: Parts) -> Step:
        """The step to train with, made before any clock starts, from the eager step, the first
        segment and the parts of training, which it must not change.
        """
        return step

    def agree(self, score: Score) -> Score:
        """The score that counts, from the score of this process; with several workers that of the
        first.
        """
        return score

    def save(self, position: Position, parts: Parts) -> None:
        """Write a checkpoint. Raises StorageError."""

    def save_best(self, weights: dict[str, Tensor], epoch: int, tokens: TokenNll) -> None:
        """Write the weights of the best epoch so far; `tokens` is of the validation split. Raises
        StorageError.
        """

    def best_weights(self) -> dict[str, Tensor]:
        """The weights that were written last, from which a second stage of training goes on."""
        raise NotImplementedError


class Training:
    """A model in training: a loop over parts (harness/training/parts.py).

    Attributes:
        parts: all that a checkpoint holds, by name; within an epoch it holds the step's state, too.
        position: the present epoch, and how many of its steps are done.
    """

    def __init__(
        self,
        model: LanguageModel,
        corpus: Corpus,
        train: TrainSpec,
        *,
        seed: int,
        host: Host,
    ):
        self.model, self.corpus, self.train, self.seed, self.host = model, corpus, train, seed, host
        self.fitted, self.clocks = host.fitted, host.clocks
        self.optimizer = make_optimizer(model, train)
        self.segments = segments_of(corpus, train, next(model.parameters()).device, seed=seed)
        self.schedule = make_schedule(self.optimizer, train, segments=len(self.segments))
        self.followers = followers(model.head)
        self.averaging = make_averaging(model, train)
        self.parts: dict[str, Stateful] = {
            **step_parts(model, self.optimizer),
            "schedule": self.schedule,
            "averaging": self.averaging,
            "clocks": self.clocks,
            "fitted": self.fitted,
        }
        self.first_stage = math.ceil(train.epochs)  # epochs; the last one may be a part of an epoch
        self.position = Position()
        self._saved_at, self._next_report, self._epoch_began = time.monotonic(), 0.0, 0.0

    def fit(self, checkpoint: Checkpoint | None = None) -> None:
        """Train, from a checkpoint if there is one. Afterwards the model has the weights of the
        last epoch; those of the best epoch by validation are beside the checkpoints.

        Args:
            checkpoint: the states of its parts are removed from it as they are loaded, which frees
                their memory.
        Raises: Diverged when the training or validation loss of an epoch is not finite;
        StorageError; ExecutionError when the training split is too small for a single segment;
        Interrupted when it was asked to stop.
        """
        if self.train.epochs and not self.segments:
            train, tokens = self.train, len(self.corpus.train)
            raise ExecutionError(
                f"train: batch_size {train.batch_size} and seq_len {train.seq_len} (batching: "
                f"{train.batching}) make no batch of a training split of {tokens} tokens; "
                "make them smaller, or give a longer text"
            )
        step = self._resumed(checkpoint) if checkpoint is not None else self._step()
        self.fitted.graphed = step.graphed
        if self.position == Position() and self.fitted.last is None:
            self._score_untrained(step)
        while not self._is_done():
            if self.position == Position(self.first_stage + 1):
                self._begin_second_stage()
            with self._explained():
                self._train_epoch(step)
        self.averaging.swap()  # training ends with the average, if there is one

    @property
    def _in_second_stage(self) -> bool:
        return self.position.epoch > self.first_stage

    def _is_done(self) -> bool:
        """Whether training has ended; the second stage may end before its last epoch."""
        if self.position.epoch > math.ceil(self.train.most_epochs):
            return True
        # Where the second stage begins, the losses are still those of the first.
        if not self._in_second_stage or self.position == Position(self.first_stage + 1):
            return False
        if self.position.step:
            return False
        return is_above_the_best(self.averaging.losses, self.train.finetune.non_monotone)

    def _begin_second_stage(self) -> None:
        """From the best weights of the first one, with a new optimizer and a new average."""
        self.model.load_state_dict(self.host.best_weights())
        lr = self.train.finetune.lr or self.train.lr
        rates = []
        for group in self.optimizer.param_groups:  # groups keep the ratios of their rates
            rates.append(group["initial_lr"] * lr / self.train.lr)
        # Emptied in place: a CUDA graph reads the optimizer's tensors where they are.
        OptimizerState(self.optimizer).load_state_dict({"state": {}, "lr": rates})
        self.averaging.begin()

    def _step(self) -> Step:
        step = EagerStep(self.model, self.optimizer, self.train)
        if not self.train.epochs:  # there may be no segment, and no step is taken
            return step
        return self.host.prepare(step, self.segments[0], self.parts)

    def _resumed(self, checkpoint: Checkpoint) -> Step:
        """Load all parts, the step last: it is made of the others."""
        for name, part in self.parts.items():
            part.load_state_dict(checkpoint.parts.pop(name))
        self.position = checkpoint.position
        step = self._step()
        if self.position.step:
            step.load_state_dict(checkpoint.parts.pop("step"))
        return step

    def _score_untrained(self, step: Step) -> None:
        """Before the first update: without any epoch the model is validated as it is."""
        if self.train.epochs == 0:
            self._validate(0)
            self.fitted.start = self.fitted.last if self.host.score_start else None
            self._save(step)
        elif self.host.score_start:
            self.fitted.start, _ = self._score()

    def _train_epoch(self, step: Step) -> None:
        number, first = self.position
        segments = self.segments
        if self.train.random_lengths is not None:
            device = next(self.model.parameters()).device
            segments = segments_of(self.corpus, self.train, device, seed=self.seed, epoch=number)
        steps = steps_of(number, self.train.most_epochs, len(segments))
        # So that the seconds of an epoch are those of all sessions that trained it.
        self._epoch_began = time.perf_counter() - self.fitted.epoch_seconds
        if self.train.reset_momentum and first == 0:
            clear_momentum(self.optimizer)

        def before_step(done: int) -> None:
            if not self._in_second_stage:  # which has a constant rate
                self.schedule.before_step((number - 1) * len(self.segments) + done)
            share = self._progress(number, done / steps)
            for module in self.followers:
                module.progress.fill_(share)
                if isinstance(module, Fade) and not step.graphed:  # a graph has the same operations in every step
                    module.is_over = share >= module.end

        def after_step(done: int) -> None:
            self.averaging.update()
            self.position = Position(number, done)
            self.fitted.epoch_seconds = time.perf_counter() - self._epoch_began
            self._report(number, done, steps)
            if self.host.stop.asked:
                self._stop_within_epoch(step)
            # After the last step the epoch ends, and what is saved then has its validation.
            if done < steps and self._last_save_is_old() and step.resumable:
                self._save(step)

        segments = ordered(segments, self.train, seed=self.seed, epoch=number)
        train_loss = train_epoch(
            step,
            segments,
            self.clocks.train,
            epoch=number,
            seed=self.seed,
            first=first,
            steps=steps,
            after_step=after_step,
            before_step=before_step,
        )
        seconds = time.perf_counter() - self._epoch_began
        try:
            self._validate(number)
        except Interrupted:  # resumed after the last step, it validates again
            self._stop_within_epoch(step)
        self._end_epoch(number, train_loss, seconds)
        self._report(number, steps, steps, ended=True)
        by_pace = number % self.host.pace.epochs == 0 or self._last_save_is_old()
        # After the last epoch, too: what follows may fail, and training is not to be done again.
        if self._is_done() or by_pace or self.host.stop.asked:
            self._save(step)
        self.host.stop.check()

    def _progress(self, epoch: int, share: float) -> float:
        """The share of the first stage that is done, after a share of the steps of an epoch."""
        of_last = min(1.0, self.train.epochs - (epoch - 1))  # 0.4 in the second epoch of 1.4
        return min(1.0, (epoch - 1 + share * of_last) / self.train.epochs)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Within it, a divergence says the learning rate of its step and whether gradients are
        clipped.
        """
        number = self.position.epoch
        try:
            yield
        except Diverged as fault:
            # Later steps of the epoch may have changed the rate: set again that of the step.
            if fault.step is not None and not self._in_second_stage:
                self.schedule.before_step((number - 1) * len(self.segments) + fault.step - 1)
            lr = float(self.optimizer.param_groups[0]["lr"])
            clip = "clip is not set" if self.train.clip is None else f"clip {self.train.clip:g}"
            raise Diverged(f"{fault}; learning rate {lr:g}, {clip}", fault.step) from fault

    def _stop_within_epoch(self, step: Step) -> None:
        """Save the state after the last step, where it can be resumed, and raise Interrupted."""
        if step.resumable:
            self._save(step)
        raise Interrupted

    def _end_epoch(self, number: int, train_loss: float, seconds: float) -> None:
        """Add its point to the curve, let the schedule change the learning rate, and go to the next
        epoch.
        """
        lr, score = float(self.optimizer.param_groups[0]["lr"]), self.fitted.last
        point = CurvePoint(
            epoch=min(number, self.train.most_epochs),  # 1.4 and not 2 of 1.4 epochs
            train_loss=train_loss,
            valid_ppl=score.ppl,
            lr=lr,
            seconds=seconds,
        )
        self.fitted.curve.append(point)
        self.fitted.train_seconds += seconds
        self.fitted.epoch_seconds = 0.0
        if not self._in_second_stage:
            self.schedule.after_epoch(number, score.mean_nll)
        self.averaging.after_epoch(number, score.mean_nll)
        self.position = Position(number + 1)

    def _validate(self, epoch: int) -> None:
        """Score the weights after an epoch, or their average if there is one; keep them if they are
        the best so far.

        Raises: Diverged; Interrupted, with all parts as they were before, except the clock of
            evaluation.
        """
        # A validation that is interrupted is made again: then it must draw the same numbers.
        generators = self.parts["generators"]
        drawn = generators.state_dict()
        self.averaging.swap()
        try:
            score, tokens = self._score()
        except Interrupted:
            self.averaging.swap()
            generators.load_state_dict(drawn)
            raise
        self.fitted.last = score
        if self.averaging.number and not self.fitted.averaged_from:
            self.fitted.averaged_from = epoch
        if not math.isfinite(score.ppl):
            raise Diverged(f"validation loss is {score.mean_nll} after epoch {epoch}")
        if self.fitted.best is None or score.mean_nll < self.fitted.best.mean_nll:
            self.fitted.best_epoch, self.fitted.best = epoch, score
            self.host.save_best(self.model.state_dict(), epoch, tokens)
        self.averaging.swap()

    def _score(self) -> tuple[Score, TokenNll]:
        how = {"clock": self.clocks.eval, "check": self.host.stop.check}
        score, tokens = evaluate(self.model, self.corpus, "valid", self.train.evaluation, **how)
        return self.host.agree(score), tokens

    def _save(self, step: Step) -> None:
        began = time.perf_counter()
        within_epoch = {"step": step} if self.position.step else {}
        self.host.save(self.position, {**self.parts, **within_epoch})
        self._saved_at = time.monotonic()
        self._epoch_began += time.perf_counter() - began  # which is no time of training

    def _last_save_is_old(self) -> bool:
        """Whether the last checkpoint is so many minutes old that another is to be written."""
        return time.monotonic() - self._saved_at >= 60 * self.host.pace.minutes

    def _report(self, epoch: int, step: int, steps: int, *, ended: bool = False) -> None:
        """Report the progress: at most every PROGRESS_SECONDS within an epoch, and always at its
        end.
        """
        # The last step of an epoch is reported after the validation, with its perplexity.
        if not ended and (time.monotonic() < self._next_report or step == steps):
            return
        if (recent := self.clocks.train.recent()) is None:  # a GPU has not ended its first step
            return
        self._next_report = time.monotonic() + PROGRESS_SECONDS
        last = self.fitted.last
        progress = Progress(
            epoch=epoch,
            epochs=self.train.most_epochs,
            step=step,
            steps=steps,
            valid_ppl=None if last is None else last.ppl,
            ms_per_batch=recent,
        )
        self.host.report(progress)
