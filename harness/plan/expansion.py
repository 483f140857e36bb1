"""Expand corpora, backbones and heads to combinations, and combinations to trials, in the order of the suite file."""

import itertools
from dataclasses import dataclass

from harness.corpora.corpus import CorpusFacts
from harness.errors import SuiteError
from harness.plan.components import Component
from harness.plan.construction import Construction
from harness.plan.identity import Identified, trial_id
from harness.plan.ngrams import NGRAM_BACKBONE, NGRAM_HEAD, NgramSpec
from harness.plan.reader import Source
from harness.plan.specs import COUNTED, ComponentSpec, TrainSpec, TrialSpec
from harness.registry import BACKBONES, HEADS


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One corpus, backbone and head. It is trained with every seed.

    Args:
        content: the identity of the weights that the backbone starts from; None for random weights.
        params: the numbers of parameters (total, head).
        settled: the integers that the head's constructor chose for parameters that are None.
        train: how it is trained.
    """

    corpus: Component
    facts: CorpusFacts
    backbone: Component
    content: str | None
    head: Component
    params: tuple[int, int]
    settled: dict[str, int]
    train: TrainSpec

    @property
    def model(self) -> tuple[int, str, str]:
        """(V, backbone, head): the parameter counts depend on these only."""
        return self.facts.vocab_size, str(self.backbone.spec), str(self.head.spec)


def combinations(
    texts: list[tuple[Component, CorpusFacts, TrainSpec]],
    bodies: list[tuple[Component, str | None]],
    heads: list[Component],
    construction: Construction,
) -> list[Combination]:
    """Return all combinations corpora x backbones x heads, with the parameter counts of `construction`.

    Args:
        texts: the corpora, each with how models are trained on it.
        bodies: the backbones, each with the identity of the weights that it starts from.
    """
    return [
        Combination(
            corpus=corpus,
            facts=fact,
            backbone=backbone,
            content=content,
            head=head,
            params=construction.params[model := (fact.vocab_size, str(backbone.spec), str(head.spec))],
            settled=construction.settled[model],
            train=train,
        )
        for (corpus, fact, train), (backbone, content), head in itertools.product(texts, bodies, heads)
    ]


def trials(
    combined: list[Combination], seeds: list[int], source: Source
) -> tuple[dict[str, TrialSpec], dict[str, Combination]]:
    """Return all trials, combinations x seeds, and the combination of each trial. The keys of both are the trials' ids.

    Raises: SuiteError when two trials are equal.
    """
    found, origins = {}, {}
    for each, seed in itertools.product(combined, seeds):
        corpus, backbone, head = each.corpus, each.backbone, each.head
        trial = TrialSpec(
            id=trial_id(
                corpus=Identified(corpus.spec, corpus.cls, each.facts.content),
                backbone=Identified(backbone.spec, backbone.cls, each.content),
                head=Identified(head.spec, head.cls),
                train=each.train,
                seed=seed,
            ),
            corpus=corpus.spec,
            backbone=backbone.spec,
            head=head.spec,
            train=each.train,
            seed=seed,
        )
        if trial.id in found:
            raise SuiteError([head.problem(source, f"the trial '{trial}' is in the suite twice")])
        found[trial.id], origins[trial.id] = trial, each
    return found, origins


def ngram_trials(
    ngrams: list[NgramSpec], texts: list[tuple[Component, CorpusFacts]], source: Source
) -> dict[str, TrialSpec]:
    """Return the trials of `ngrams`, one for each corpus and model. The keys are the trials' ids.

    Raises: SuiteError when two of them are equal.
    """
    found: dict[str, TrialSpec] = {}
    backbone = Identified(ComponentSpec(name=NGRAM_BACKBONE), BACKBONES.get(NGRAM_BACKBONE))
    for (corpus, fact), (index, ngram) in itertools.product(texts, enumerate(ngrams)):
        head = Identified(ComponentSpec(name=NGRAM_HEAD, params=ngram.head_params), HEADS.get(NGRAM_HEAD))
        text = Identified(corpus.spec, corpus.cls, fact.content)
        made_of = {"corpus": text, "backbone": backbone, "head": head}
        same = {"train": COUNTED, "seed": 0}
        trial = TrialSpec(id=trial_id(**made_of, **same), **{kind: each.spec for kind, each in made_of.items()}, **same)
        if trial.id in found:
            raise SuiteError([source.problem(("ngrams", index), f"the trial '{trial}' is in the suite twice")])
        found[trial.id] = trial
    return found
