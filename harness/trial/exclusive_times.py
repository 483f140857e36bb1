"""An exclusive pass: finished trials' models are timed again, one at a time, while no other trial runs.

The models of a corpus take turns, in rounds: each is built again, gets the weights of its record, warms up, and is
timed for some batches of each kind, by the code that trials evaluate and train with. Medians and quartiles are over the
batches of all rounds, so that a machine that becomes slower affects all models equally. No file is written or changed.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.containment import contained, first_line
from harness.corpora.corpus import Corpus
from harness.errors import Damaged
from harness.machine import environment
from harness.model import LanguageModel, build, components
from harness.records.record import TrialRecord
from harness.records.sidecars import Timing
from harness.training.checkpoint import BEST, load_weights, weights_sha256
from harness.training.clocks import quartiles
from harness.trial import laps
from harness.trial.inference import inference_laps, inference_segments
from harness.trial.setup import conditions, load_planned, with_exact_route
from harness.trial.task import Task

ROUNDS = 3
SECONDS = 0.2  # of timed batches of one kind, in each round and of each model
BUSY_CORES = 0.5  # of other work on the machine, from which times do not count as exclusive
LOOKS = 3  # measurements of the other work, a second each: earlier processes may still be ending


@dataclass(slots=True)
class _Taken:
    """The times of one record's model so far.

    Args:
        milliseconds: of the batches of each kind.
        initial: whether the model had initial weights, because those of its record are missing or damaged.
    """

    task: Task
    record: TrialRecord
    milliseconds: dict[str, list[float]] = field(default_factory=dict)
    initial: bool = False


def timed(tasks: list[Task], records: Mapping[str, TrialRecord]) -> tuple[list[Timing], list[str]]:
    """Time finished trials, all in one pass. An error ends the timing of its own model only, and changes no record.

    Args:
        tasks: of the trials, as they had them; `shared`: other work is known to run on this machine.
        records: of the trials, by id.
    Returns: timings, and a sentence for each trial that could not be timed, or not with its own weights.
    """
    tasks, busy, sentences = [with_exact_route(task) for task in tasks], _busy(), []
    taken: list[_Taken] = []
    for corpus in dict.fromkeys(str(task.spec.corpus) for task in tasks):
        together = [_Taken(task, records[task.id]) for task in tasks if str(task.spec.corpus) == corpus]
        taken += _rounds(together, sentences)
    sentences += [
        f"{_name(each)} was timed with initial weights: its own are gone or damaged" for each in taken if each.initial
    ]
    about = {
        "rounds": ROUNDS,
        "passed": uuid.uuid4().hex,
        "device": environment.device_name(torch.device(tasks[0].device)),
        "threads": tasks[0].threads,
        "torch": str(torch.__version__),
        "commit": environment.commit(),
        "taken": environment.now(),
        "busy": busy,
        "shared": tasks[0].shared or busy >= BUSY_CORES,
    }
    return [_timing(each, about) for each in taken], sentences


def _timing(taken: _Taken, about: dict[str, Any]) -> Timing:
    metrics: dict[str, float] = {}
    for kind, of_kind in taken.milliseconds.items():
        metrics |= quartiles(kind, of_kind)
    return Timing(
        trial=taken.record.id,
        weights_sha256=taken.record.weights_sha256,
        metrics=metrics,
        batches=len(taken.milliseconds.get("train", ())),
        initial=taken.initial,
        **about,
    )


def _busy() -> float:
    """How many cores are busy with other work, rounded as it is recorded."""
    for _ in range(LOOKS):
        if (busy := round(environment.busy_cores(), 2)) < BUSY_CORES:
            break
    return busy


def _rounds(together: list[_Taken], sentences: list[str]) -> list[_Taken]:
    """Those trials of one corpus that could be timed."""
    task = together[0].task
    try:
        corpus = load_planned(task.spec, task.data, task.contents).to(torch.device(task.device))
    except Exception as error:
        sentences += [_failed(each, error) for each in together]
        return []
    for _ in range(ROUNDS):
        for each in list(together):
            try:
                _visit(each, corpus)
            except Exception as error:  # of any kind: the trial has its record
                sentences.append(_failed(each, error))
                together.remove(each)
            laps.release()
    return together


def _visit(taken: _Taken, corpus: Corpus) -> None:
    """One model's turn. Its weights are evaluated before training steps change them."""
    task, spec = taken.task, taken.task.spec
    with conditions(task), contained(components(spec)):
        model = build(
            spec.backbone, spec.head, vocab_size=corpus.vocab_size, seed=spec.seed, token_counts=corpus.token_counts
        )
        taken.initial = not _with_own_weights(model, taken)
        kinds = _kinds(model.to(torch.device(task.device)), corpus, taken.record, task.measure.inference_batch)
        for kind, of_kind in kinds.items():
            taken.milliseconds.setdefault(kind, []).extend(laps.warm(of_kind, seconds=SECONDS))


def _with_own_weights(model: LanguageModel, taken: _Taken) -> bool:
    """Load the weights that the record names. Returns whether they exist and are undamaged."""
    try:
        weights = load_weights(taken.task.folder / BEST, "cpu")
    except Damaged:
        return False
    if weights_sha256(weights) != taken.record.weights_sha256:
        return False
    model.load_state_dict(weights)
    return True


def _kinds(
    model: LanguageModel, corpus: Corpus, record: TrialRecord, inference_batch: int | None
) -> dict[str, laps.Laps]:
    """What is timed of a trial, in the order in which it has to be timed."""
    spec, device = record.spec, next(model.parameters()).device
    kinds: dict[str, laps.Laps] = {"eval": laps.evaluation(model, corpus, spec.train.evaluation)}
    if inference_batch is not None:
        segments = inference_segments(corpus.test, spec.train.evaluation, batch=inference_batch, device=device)
        if segments:
            kinds["inference"] = lambda number: inference_laps(model, segments, number)
    if spec.train.epochs:
        lr = record.curve[-1].lr if record.curve else spec.train.lr  # the last one that the trial had
        kinds["train"] = laps.training(model, corpus, spec, lr=lr)
    return kinds


def _name(taken: _Taken) -> str:
    return f"{taken.record.spec} ({taken.record.id})"


def _failed(taken: _Taken, error: Exception) -> str:
    return f"{_name(taken)} could not be timed: {first_line(error)}"
