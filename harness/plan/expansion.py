"""Expand corpora, backbones and heads to rows, and rows to trials, in the order of the file."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

from harness.corpora.corpus import CorpusFacts
from harness.plan.components import Component, Construction
from harness.plan.identity import trial_id
from harness.plan.lengths import in_tokens, targets_of_epoch
from harness.plan.model_notes import PlanNote
from harness.plan.reader import Problems
from harness.plan.specs import (
    COUNTED,
    NGRAM_BACKBONE,
    NGRAM_HEAD,
    ComponentSpec,
    TrainSpec,
    TrialSpec,
)
from harness.plan.suite import Candidate, Row
from harness.plan.suite_file import NgramSpec, SuiteFile
from harness.plan.tuning import epochs_text
from harness.registry import BACKBONES, HEADS

# corpora, each with how models are trained on it
Texts = list[tuple[Component, CorpusFacts, TrainSpec]]


def combined(
    texts: Texts,
    backbones: list[Component],
    heads: list[Component],
    construction: Construction,
) -> list[Row]:
    """Return the rows corpora x backbones x heads, with the parameter counts of `construction` and
    without trials.
    """
    found = []
    for (corpus, facts, train), backbone, head in itertools.product(texts, backbones, heads):
        model = (facts.vocab_size, str(backbone.spec), str(head.spec))
        params, settled = construction.models[model]
        parts = {"corpus": corpus, "facts": facts, "backbone": backbone, "head": head}
        size = construction.bodies[str(backbone.spec)].non_embedding
        about = {"non_embedding": size, "flops": construction.flops.get(model)}
        found.append(Row(**parts, params=params, settled=settled, train=train, **about))
    return found


def for_tokens(tokens: int | str | None, rows: list[Row], problems: Problems) -> list[Row]:
    """Return the rows with the epochs of a number of tokens that depends on their backbone: '20x'."""
    if not isinstance(tokens, str):
        return rows
    found = []
    for row in rows:
        number = round(float(tokens.removesuffix("x")) * row.non_embedding)
        try:
            train = in_tokens(number, row.train, row.facts)
            if train.epochs > 1:
                targets = targets_of_epoch(row.train, row.facts.num_tokens["train"])
                text = f"{targets:,} of an epoch of {row.corpus.spec}"
                message = f"{number:,} training tokens for {row.backbone.name} are more than the {text}"
                raise ValueError(f"{message}; give fewer for each parameter, or a longer text")
            found.append(replace(row, train=train))
        except ValueError as error:
            problems.add(("train", "tokens"), str(error))
    problems.raise_if_any()
    return found


def notes_on_passes(file: SuiteFile, rows: list[Row]) -> list[PlanNote]:
    """Return a note for each text that is read more than once for a number of tokens, or for equal FLOPs."""
    if file.train.tokens is None and (file.match is None or file.match.flops is None):
        return []
    found = []
    for corpus in dict.fromkeys(row.corpus.name for row in rows):
        epochs = [row.train.epochs for row in rows if row.corpus.name == corpus]
        if max(epochs) > 1:
            found.append(PlanNote(f"Training reads {corpus} more than once: {epochs_text(*epochs)}"))
    return found


def ngram_components(ngrams: list[NgramSpec]) -> tuple[list[Component], list[Component]]:
    """Return the backbones and the heads of `ngrams`, which a suite does not name; none where it
    has no `ngrams`.
    """
    heads = []
    for index, each in enumerate(ngrams):
        spec = ComponentSpec(name=NGRAM_HEAD, params=each.head_params)
        heads.append(Component(spec, HEADS.get(NGRAM_HEAD), place=("ngrams", index)))
    backbone = Component(ComponentSpec(name=NGRAM_BACKBONE), BACKBONES.get(NGRAM_BACKBONE))
    return [backbone] if heads else [], heads


def counted(
    texts: Texts,
    backbones: list[Component],
    heads: list[Component],
    problems: Problems,
) -> list[Row]:
    """Return the rows of `ngrams`, one for each corpus and model."""
    found = []
    for (corpus, facts, _), backbone, head in itertools.product(texts, backbones, heads):
        parts = {"corpus": corpus, "facts": facts, "backbone": backbone, "head": head}
        found.append(Row(**parts, params=(0, 0), settled={}, train=COUNTED))
    return with_seeds(found, lambda row: [0], problems)  # one seed: counting draws nothing


def with_seeds(rows: list[Row], seeds: Callable[[Row], list[int]], problems: Problems) -> list[Row]:
    """Return rows that are not tuned, with a trial for each of their seeds.

    Raises: SuiteError when two trials are equal.
    """
    found, known = [], set()
    for row in rows:
        trials = tuple(trials_of(row, row.backbone, row.head, row.train, seeds(row)))
        for trial in trials:
            if trial.id in known:
                row.head.report(problems, f"the trial '{trial}' is in the suite twice")
                problems.raise_if_any()  # the other seeds of the row would say the same
            known.add(trial.id)
        only = Candidate(
            point={},
            backbone=row.backbone,
            head=row.head,
            params=row.params,
            settled=row.settled,
            trials=trials,
        )
        found.append(replace(row, candidates=(only,)))
    return found


def trials_of(
    row: Row, backbone: Component, head: Component, train: TrainSpec, seeds: list[int]
) -> Iterator[TrialSpec]:
    """Yield the trial of each seed of a row, with the backbone and the head of a point."""
    for seed in seeds:
        identity = trial_id(corpus=row.corpus, backbone=backbone, head=head, train=train, seed=seed)
        specs = {"corpus": row.corpus.spec, "backbone": backbone.spec, "head": head.spec}
        yield TrialSpec(id=identity, **specs, train=train, seed=seed)
