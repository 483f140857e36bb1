"""Batches of a model, timed one by one: of evaluation, and of training by the code that trains trials."""

import gc
import time
from collections.abc import Callable

import torch

from harness.corpora.corpus import Corpus
from harness.model import LanguageModel
from harness.plan.specs import EvalSpec, TrialSpec
from harness.training.clocks import WARMUP_BATCHES, Clock
from harness.training.cuda_graph import graphed
from harness.training.evaluation import evaluate
from harness.training.optimization import make_optimizer
from harness.training.step import EagerStep, Epoch, segments_of, train_epoch

MIN_BATCHES = 2  # timed after a warm-up, at least
WARMUP_SECONDS = 1.0  # after which the warm-up of slow batches ends: what only first batches do takes less than that

Laps = Callable[[int], list[float]]  # so many batches -> milliseconds of each


def evaluation(model: LanguageModel, corpus: Corpus, spec: EvalSpec) -> Laps:
    """Batches of the test split, from its start; repeated where there are fewer than are asked for."""

    def laps(number: int) -> list[float]:
        """Milliseconds of so many batches of evaluation."""
        clock = Clock(next(model.parameters()).device)
        while (left := number - len(clock.milliseconds)) > 0:
            part = spec.model_copy(update={"eval_batches": min(left, spec.eval_batches or left)})
            evaluate(model, corpus.test, part, uncounted_id=corpus.uncounted_id, clock=clock)
        return clock.milliseconds

    return laps


def training(model: LanguageModel, corpus: Corpus, spec: TrialSpec, *, lr: float) -> Laps:
    """Steps of the first epoch and the next ones, at a constant learning rate. Each call continues after the last."""
    device, train = next(model.parameters()).device, spec.train.model_copy(update={"lr": lr})
    segments = segments_of(corpus, train, device, seed=spec.seed)
    eager = EagerStep(model, make_optimizer(model.parameters(), train), train)
    step = graphed(eager, segments[0], log=lambda reason: None)
    done = 0

    def laps(number: int) -> list[float]:
        """Milliseconds of the next so many steps."""
        nonlocal done
        clock = Clock(device)
        while number:
            epoch, first = divmod(done, len(segments))
            steps = min(first + number, len(segments))
            part = Epoch(
                number=epoch + 1,
                segments=segments,
                seed=spec.seed,
                shuffle=train.shuffle,
                first=first,
                steps=steps,
            )
            train_epoch(step, part, clock)
            done, number = done + steps - first, number - (steps - first)
        return clock.milliseconds

    return laps


def warm(laps: Laps, *, seconds: float) -> list[float]:
    """Milliseconds of batches after warm-up: as many as fit into `seconds`, and at least MIN_BATCHES."""
    began = time.perf_counter()
    for _ in range(WARMUP_BATCHES):
        (latest,) = laps(1)
        if time.perf_counter() - began > WARMUP_SECONDS:
            break
    return laps(max(MIN_BATCHES, round(1e3 * seconds / latest)))


def release() -> None:
    """Free the GPU memory of a model before the next one is built."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()
