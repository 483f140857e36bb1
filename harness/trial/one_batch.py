"""One training step and one batch of evaluation of a trial's model (`harness run --dry-run`), without any file."""

import gc
import math
from dataclasses import dataclass

import torch

from harness.containment import contained
from harness.corpora.corpus import Corpus
from harness.corpora.vocabulary import line_end
from harness.errors import ExecutionError
from harness.model import LanguageModel, build, components
from harness.plan.specs import TrainSpec
from harness.protocols import CountsText
from harness.training.clocks import Clock
from harness.training.cuda_graph import graphed
from harness.training.evaluation import evaluate, refuse_stride, state_of
from harness.training.optimization import make_optimizer
from harness.training.schedules import make_schedule
from harness.training.step import Diverged, EagerStep, refuse_unfit, refuse_z_loss, segments_of
from harness.trial import laps
from harness.trial.setup import conditions
from harness.trial.task import Task

COUNTED_TOKENS = 200_000  # of the text, from its start, for an n-gram model


@dataclass(frozen=True, slots=True, kw_only=True)
class OneBatch:
    """What one batch has shown.

    Args:
        before: nats a token of the first batch of the validation split, with the initial weights.
        after: the same after one training step; None for a trial that is not trained.
    """

    before: float
    after: float | None

    def __str__(self) -> str:
        if self.after is None:
            return f"loss {self.before:.3f}, not trained"
        return f"loss {self.before:.3f} -> {self.after:.3f}"


def one_batch(task: Task, corpus: Corpus) -> OneBatch:
    """Build the model of a trial, evaluate one batch, train one step, and evaluate the batch again. A data-parallel
    trial is tried as one of its workers.

    Args:
        task: with its device.
        corpus: of the trial, on the device.
    Raises: what the trial would raise: of its components, of settings that do not fit; Diverged when a loss is not
        finite.
    """
    spec, device, whole = task.spec, torch.device(task.device), task.spec.train
    train = whole.model_copy(update={"data_parallel": 1, "batch_size": whole.batch_size // whole.data_parallel})
    refuse_unfit(whole, task.device)
    with conditions(task), contained(components(spec)):
        sizes = {"vocab_size": corpus.vocab_size, "token_counts": corpus.token_counts.cpu()}
        model = build(spec.backbone, spec.head, seed=spec.seed, **sizes).to(device)
        if train.eval_stride is not None:
            refuse_stride(train.evaluation, state_of(model))
        if train.z_loss:
            refuse_z_loss(model)
        _count(model, corpus)
        before = _loss(model, corpus, train, "before the first step")
        if not train.epochs:
            return OneBatch(before=before, after=None)
        _step(model, corpus, train, seed=spec.seed)
        return OneBatch(before=before, after=_loss(model, corpus, train, "after one step"))


def give_back() -> None:
    """Free the memory of a model that is no longer used, on the CPU and on a GPU."""
    gc.collect()  # a model and its optimizer may refer to each other
    laps.release()


def _step(model: LanguageModel, corpus: Corpus, train: TrainSpec, *, seed: int) -> None:
    segments = segments_of(corpus, train, next(model.parameters()).device, seed=seed)
    if not segments:
        raise ExecutionError(
            f"train: batch_size {train.batch_size} and seq_len {train.seq_len} (batching: {train.batching}) make no "
            f"batch of a training split of {len(corpus.train)} tokens"
        )
    optimizer, segment = make_optimizer(model.parameters(), train), segments[0]
    schedule = make_schedule(optimizer, train, segments=len(segments))
    step = graphed(EagerStep(model, optimizer, train), segment, log=lambda reason: None)
    step.begin_epoch()
    schedule.before_step(0)
    step(segment.inputs, segment.targets)
    loss = step.loss_sum.item() / segment.targets.numel()
    if not math.isfinite(loss):
        raise Diverged(f"the training loss of the first batch is {loss}")


def _loss(model: LanguageModel, corpus: Corpus, train: TrainSpec, when: str) -> float:
    clock = Clock(next(model.parameters()).device)
    spec = train.evaluation.model_copy(update={"eval_batches": 1})
    score = evaluate(model, corpus.valid, spec, uncounted_id=corpus.uncounted_id, clock=clock)
    if not math.isfinite(score.mean_nll):
        raise Diverged(f"the validation loss {when} is {score.mean_nll}")
    return score.mean_nll


def _count(model: LanguageModel, corpus: Corpus) -> None:
    """Let a head that counts read the beginning of the text."""
    if isinstance(model.head, CountsText):
        model.head.count(corpus.train[:COUNTED_TOKENS], corpus.valid[:COUNTED_TOKENS], line_end(corpus))
