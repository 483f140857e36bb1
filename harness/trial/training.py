"""Fit: epochs of gradient steps, each validated; the learning rate follows the schedule; the best epoch is kept."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from harness.corpora.batching import Segment, training_segments
from harness.corpora.corpus import Corpus
from harness.plan.specs import TrainSpec
from harness.records import CurvePoint
from harness.streams import stream_seed
from harness.trial.checkpoint import save_weights
from harness.trial.evaluation import Score, evaluate
from harness.trial.graph import GraphStep
from harness.trial.model import LanguageModel
from harness.trial.step import EagerStep, Step
from harness.trial.timing import Clock

PROGRESS_SECONDS = 2.0


class Diverged(Exception):
    """The loss is no finite number any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a trial is: within an epoch (valid_ppl of the epoch before), or at its end, validated (its own).
    `ms_per_batch`: of the last step that is through.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    valid_ppl: float | None
    ms_per_batch: float


@dataclass
class Fitted:
    """What training leaves: the curve, the best epoch's score, the last one's, and the clocks.

    `best_epoch` counts from 1; 0 is the untrained model, when `epochs` is 0. `graphed`: the steps were a CUDA graph's.
    """

    best_epoch: int = 0
    best: Score | None = None
    last: Score | None = None
    curve: list[CurvePoint] = field(default_factory=list)
    train_seconds: float = 0.0
    graphed: bool = False


def fit(
    model: LanguageModel,
    corpus: Corpus,
    train: TrainSpec,
    fitted: Fitted,
    *,
    seed: int,
    best_weights: Path,
    clocks: dict[str, Clock],
    report: Callable[[Progress], None],
    prepare: Callable[[EagerStep, Segment], Step] = lambda step, segment: step,
) -> None:
    """Train for `epochs` epochs, filling `fitted` as they end; weights of the best epoch by validation end in
    `best_weights`, the last ones in the model.

    Args:
        prepare: makes the step to train with of the eager one and the first segment, before any clock starts.
    Raises: Diverged when the training or validation loss of an epoch is not finite.
    """
    optimizer = make_optimizer(model.parameters(), train)
    schedule = make_schedule(optimizer, train)
    segments = training_segments(corpus.train, batch_size=train.batch_size, seq_len=train.seq_len)
    step = prepare(EagerStep(model, optimizer, train), segments[0])
    fitted.graphed = isinstance(step, GraphStep)
    for epoch in range(1, train.epochs + 1) or (0,):  # epoch 0: never trained, scored as it is
        started = time.perf_counter()
        if epoch > 0:
            reporter = _throttled(report, epoch, train.epochs, len(segments), fitted, clocks["train"])
            train_loss = train_epoch(step, segments, train, seed, epoch, clocks["train"], reporter)
        seconds = time.perf_counter() - started
        fitted.last = evaluate(model, corpus.valid, train, uncounted_id=corpus.uncounted_id, clock=clocks["eval"])
        if not math.isfinite(fitted.last.ppl):
            raise Diverged(f"validation loss is {fitted.last.mean_nll} after epoch {epoch}")
        if fitted.best is None or fitted.last.mean_nll < fitted.best.mean_nll:
            fitted.best_epoch, fitted.best = epoch, fitted.last
            save_weights(model.state_dict(), best_weights)
        if epoch > 0:
            lr, valid_ppl = float(optimizer.param_groups[0]["lr"]), fitted.last.ppl
            fitted.curve.append(
                CurvePoint(epoch=epoch, train_loss=train_loss, valid_ppl=valid_ppl, lr=lr, seconds=seconds)
            )
            fitted.train_seconds += seconds
            reporter(len(segments), valid_ppl)
        if schedule is not None:
            schedule.step(fitted.last.mean_nll)


def train_epoch(
    step: Step,
    segments: list[Segment],
    train: TrainSpec,
    seed: int,
    epoch: int,
    clock: Clock,
    report: Callable[[int], None],
) -> float:
    """One pass over the training split; returns its mean loss in nats per token. Raises Diverged."""
    step.begin_epoch()
    num_tokens = 0
    for number, index in enumerate(_order(len(segments), train.shuffle, seed, epoch)):
        segment = segments[index]
        torch.manual_seed(stream_seed(seed, "dropout", epoch, number))
        with clock.lap():
            step(segment.inputs, segment.targets)
        num_tokens += segment.targets.numel()
        report(number + 1)
    mean_loss = step.loss_sum.item() / num_tokens
    clock.settle()
    if not math.isfinite(mean_loss):  # its size says nothing: not every head trains on nats a token
        raise Diverged(f"training loss is {mean_loss} in epoch {epoch}")
    return mean_loss


def make_optimizer(parameters: Iterator[nn.Parameter], train: TrainSpec) -> Optimizer:
    """torch's optimizer of the suite's name and settings, in its fused form. The learning rate is a tensor beside the
    parameters, where a captured step reads it.
    """
    parameters = list(parameters)
    device = parameters[0].device
    on_gpu = device.type == "cuda"
    lr = torch.tensor(train.lr, dtype=torch.float32 if on_gpu else torch.float64, device=device)  # what fused takes
    shared = {"lr": lr, "weight_decay": train.weight_decay, "fused": True}
    if train.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=train.momentum, **shared)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[train.optimizer]
    capturable = on_gpu and train.cuda_graph != "off"
    return kind(parameters, betas=train.betas, eps=train.eps, capturable=capturable, **shared)


def make_schedule(optimizer: Optimizer, train: TrainSpec) -> ReduceLROnPlateau | None:
    """Plateau as in Benka et al.'s code: any epoch that does not beat the best so far lowers the rate at once."""
    if train.schedule is None:
        return None
    return ReduceLROnPlateau(optimizer, factor=train.schedule.plateau.factor, patience=0, threshold=0.0)


def _order(num_segments: int, shuffle: bool, seed: int, epoch: int) -> Iterator[int]:
    if not shuffle:
        return iter(range(num_segments))
    generator = torch.Generator().manual_seed(stream_seed(seed, "data", epoch))
    return iter(torch.randperm(num_segments, generator=generator).tolist())


def _throttled(report, epoch: int, epochs: int, steps: int, fitted: Fitted, clock: Clock):
    """A function of the step, reporting at most every PROGRESS_SECONDS with the perplexity of the epoch before; given
    this epoch's, it reports at once: the end of the epoch.
    """
    due = time.monotonic()
    before = fitted.last.ppl if fitted.last else None

    def at(step: int, valid_ppl: float | None = None) -> None:
        """`step` steps of the epoch are done; `valid_ppl` once it is validated."""
        nonlocal due
        if valid_ppl is None and (time.monotonic() < due or step == steps):
            return
        if (latest := clock.latest()) is None:  # a GPU is still at its first step
            return
        due = time.monotonic() + PROGRESS_SECONDS
        report(
            Progress(
                epoch=epoch,
                epochs=epochs,
                step=step,
                steps=steps,
                valid_ppl=before if valid_ppl is None else valid_ppl,
                ms_per_batch=latest,
            )
        )

    return at
