"""How long models take on this machine, before they are trained: some steps of each are timed; nothing is written.

The models of a corpus take turns, in rounds, as in an exclusive pass (harness/trial/exclusive_times.py), so that a
machine that becomes slower affects all of them equally. Each model has its initial weights.
"""

import math
import statistics
from dataclasses import dataclass, field

import torch

from harness.containment import contained, first_line
from harness.corpora.corpus import Corpus
from harness.model import build, components
from harness.training.evaluation import scored_segments
from harness.training.step import segments_of, steps_of
from harness.trial import laps
from harness.trial.setup import conditions, load_planned, with_exact_route
from harness.trial.task import Task

ROUNDS = 4
STEPS = 5  # timed training steps of a model in a round, after one that is not timed
EVALUATIONS = 2  # timed batches of evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTime:
    """How long a model takes, by the medians of its timed batches.

    Args:
        train_ms: milliseconds of a training step; 0 for a model that is not trained.
        eval_ms: milliseconds of a batch of evaluation.
        steps: training steps of an epoch.
        valid_batches, test_batches: batches of an evaluation of these splits.
    """

    train_ms: float
    eval_ms: float
    steps: int
    valid_batches: int
    test_batches: int

    def minutes(self, epochs: float) -> float:
        """Of a whole trial: its steps, a validation after each epoch, and two tests (of the last and of the best
        weights). Starting a process and reading the corpus are not included.
        """
        last = math.ceil(epochs)
        steps = sum(steps_of(epoch, epochs, self.steps) for epoch in range(1, last + 1))
        evaluations = max(last, 1) * self.valid_batches + 2 * self.test_batches
        return (steps * self.train_ms + evaluations * self.eval_ms) / 60_000


@dataclass(slots=True)
class _Model:
    """The milliseconds of one model's batches so far."""

    task: Task
    train: list[float] = field(default_factory=list)
    eval: list[float] = field(default_factory=list)


def model_times(tasks: list[Task]) -> tuple[dict[str, ModelTime], list[str]]:
    """Time some batches of each trial's model.

    Args:
        tasks: one trial of each row, with its device.
    Returns: trial id -> its time, and a sentence for each trial that could not be timed.
    Raises: CorpusError when a corpus cannot be read.
    """
    tasks, found, sentences = [with_exact_route(task) for task in tasks], {}, []
    for corpus in dict.fromkeys(str(task.spec.corpus) for task in tasks):
        models = [_Model(task) for task in tasks if str(task.spec.corpus) == corpus]
        first = models[0].task
        on_device = load_planned(first.spec, first.data, first.contents).to(torch.device(first.device))
        for _ in range(ROUNDS):
            for model in list(models):
                try:
                    _turn(model, on_device)
                except Exception as error:  # of the model, of any kind; the others are timed
                    sentences.append(f"{model.task.spec} cannot be timed: {first_line(error)}")
                    models.remove(model)
                laps.release()
        found |= {model.task.id: _time(model, on_device) for model in models}
    return found, sentences


def _turn(model: _Model, corpus: Corpus) -> None:
    """One model's turn."""
    spec = model.task.spec
    with conditions(model.task), contained(components(spec)):
        counts = corpus.token_counts
        built = build(spec.backbone, spec.head, vocab_size=corpus.vocab_size, seed=spec.seed, token_counts=counts)
        built.to(torch.device(model.task.device))
        model.eval += laps.evaluation(built, corpus, spec.train.evaluation)(1 + EVALUATIONS)[1:]
        if spec.train.epochs:
            model.train += laps.training(built, corpus, spec, lr=spec.train.lr)(1 + STEPS)[1:]


def _time(model: _Model, corpus: Corpus) -> ModelTime:
    train = model.task.spec.train
    valid, test = (sum(1 for _ in scored_segments(split, train.evaluation)) for split in (corpus.valid, corpus.test))
    return ModelTime(
        train_ms=statistics.median(model.train) if model.train else 0.0,
        eval_ms=statistics.median(model.eval),
        steps=len(segments_of(corpus, train, corpus.train.device, seed=model.task.spec.seed)),
        valid_batches=valid,
        test_batches=test,
    )
