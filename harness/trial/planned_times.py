"""How long the trials of a plan would take on this machine. Some steps of each model are timed; nothing is written.

The models of a corpus take turns, in rounds, as in an exclusive pass (harness/trial/exclusive_times.py), so that a
machine that becomes slower affects all of them equally. Each model has its initial weights.
"""

import math
import statistics
from dataclasses import dataclass, field

import torch

from harness.containment.calls import contained, first_line
from harness.corpora.corpus import Corpus
from harness.model import build, components
from harness.plan.specs import TrialSpec
from harness.training.epoch import segments_of, steps_of
from harness.training.evaluation import scored_segments
from harness.trial import laps
from harness.trial.conditions import conditions, with_exact_route
from harness.trial.setting import Setting
from harness.trial.sources import load_planned

ROUNDS = 4
STEPS = 5  # timed training steps of a model in a round, after one that is not timed
EVALUATIONS = 2  # timed batches of evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTime:
    """What a trial would take, from the medians of its timed batches.

    Args:
        train_ms: milliseconds of a training step.
        eval_ms: milliseconds of a batch of evaluation.
        steps: training steps of the whole trial.
        evaluations: batches of evaluation: a validation after each epoch, and two tests (of the last and
            of the best weights).
    """

    train_ms: float
    eval_ms: float
    steps: int
    evaluations: int

    @property
    def minutes(self) -> float:
        """Of the whole trial, without starting a process and reading the corpus."""
        return (self.steps * self.train_ms + self.evaluations * self.eval_ms) / 60_000


@dataclass(slots=True)
class _Model:
    """The milliseconds of one model's batches so far."""

    spec: TrialSpec
    train: list[float] = field(default_factory=list)
    eval: list[float] = field(default_factory=list)


def planned_times(specs: list[TrialSpec], setting: Setting) -> tuple[dict[str, PlannedTime], list[str]]:
    """Time some batches of each trial's model.

    Args:
        specs: one trial of each row.
        setting: as the trials would have it, with its device.
    Returns: trial id -> its time, and a sentence for each trial that could not be timed.
    Raises: CorpusError when a corpus cannot be read.
    """
    setting, found, sentences = with_exact_route(setting), {}, []
    for corpus in {str(spec.corpus): spec for spec in specs}:
        models = [_Model(spec) for spec in specs if str(spec.corpus) == corpus]
        loaded = load_planned(models[0].spec, setting.data, setting.contents)
        on_device = loaded.to(torch.device(setting.device))
        for _ in range(ROUNDS):
            for model in list(models):
                try:
                    _turn(model, on_device, setting)
                except Exception as error:  # of the model, of any kind; the others are timed
                    sentences.append(f"{model.spec} cannot be timed: {first_line(error)}")
                    models.remove(model)
                laps.release()
        found |= {model.spec.id: _time(model, on_device) for model in models}
    return found, sentences


def _turn(model: _Model, corpus: Corpus, setting: Setting) -> None:
    """One model's turn."""
    spec = model.spec
    with contained(components(spec)), conditions(spec, setting):
        counts = corpus.token_counts
        built = build(spec.backbone, spec.head, vocab_size=corpus.vocab_size, seed=spec.seed, token_counts=counts)
        built.to(torch.device(setting.device))
        model.eval += laps.evaluation(built, corpus, spec.train.evaluation)(1 + EVALUATIONS)[1:]
        if spec.train.epochs:
            model.train += laps.training(built, corpus, spec, lr=spec.train.lr)(1 + STEPS)[1:]


def _time(model: _Model, corpus: Corpus) -> PlannedTime:
    train, device = model.spec.train, corpus.train.device
    segments, epochs = len(segments_of(corpus, train, device, seed=model.spec.seed)), math.ceil(train.epochs)
    valid, test = (sum(1 for _ in scored_segments(split, train.evaluation)) for split in (corpus.valid, corpus.test))
    return PlannedTime(
        train_ms=statistics.median(model.train) if model.train else 0.0,
        eval_ms=statistics.median(model.eval),
        steps=sum(steps_of(epoch, train.epochs, segments) for epoch in range(1, epochs + 1)),
        evaluations=max(epochs, 1) * valid + 2 * test,
    )
