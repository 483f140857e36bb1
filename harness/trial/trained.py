"""Finds a finished trial by its id, and loads its model with the best weights."""

import copy
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from harness.containment import contained
from harness.corpora.corpus import Corpus
from harness.errors import Damaged, ExecutionError
from harness.model import LanguageModel, components
from harness.plan.identity import starting_content
from harness.plan.specs import Contents, TrialSpec
from harness.records import sidecars, store
from harness.records.contents import recomputed
from harness.records.record import MENDED, TrialRecord
from harness.records.replicates import Seeds
from harness.registry import BACKBONES, CORPORA, HEADS
from harness.training.checkpoint import BEST, TRAIN_AGAIN, load_weights, weights_sha256
from harness.trial.setup import model_of

MAX_NAMED = 5  # trials that a message names
PREFIX = re.compile("[0-9a-f]{1,12}")  # the id of a trial, or its first digits


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The model of a trial, in evaluation mode with the weights of the best epoch, and what belongs to it."""

    record: TrialRecord
    model: LanguageModel
    corpus: Corpus
    device: torch.device

    @property
    def spec(self) -> TrialSpec:
        return self.record.spec

    @cached_property
    def wide(self) -> LanguageModel:
        return copy.deepcopy(self.model).double()

    def ids(self, text: str) -> torch.Tensor:
        """A text -> (1, T) its token ids. Raises CorpusError for one that the vocabulary cannot express, ExecutionError
        for an empty one.
        """
        ids = self.corpus.codec.encode(text)
        if not ids:
            raise ExecutionError("the text is empty; at least one token is needed to predict the next one")
        return torch.tensor([ids], device=self.device)

    def word(self, index: int) -> str:
        """The name of a token in the vocabulary."""
        return self.corpus.codec.decode([index]) if self.corpus.symbols is None else self.corpus.symbols[index]


def find(results: Path, prefix: str) -> tuple[TrialRecord, Path]:
    """Find a finished trial, by its id or its first digits, in any suite of a results folder.

    Returns: the record, and the path of the weights.
    Raises: ExecutionError when no trial, or more than one, has such an id, or it has no weights; RecordError when the
        record does not verify.
    """
    found = _ok(results, prefix, "weights")
    for record, folder in found:  # several suites may contain the same trial
        if (folder / BEST).is_file():
            return record, folder / BEST
    raise ExecutionError(
        f"trial {found[0][0].id} has no weights: {found[0][1] / BEST} does not exist; train it again: "
        f"harness run {found[0][0].suite} --force --only id={found[0][0].id}"
    )


def finished(results: Path, prefix: str) -> tuple[TrialRecord, Path]:
    """Find a finished trial; it may have no weights. Of several suites, one with the scores of tokens is preferred.

    Returns: the record, and the folder of the suite's trials.
    Raises: as `find`, except for missing weights.
    """
    found = _ok(results, prefix, "perplexity")
    record, folder = next((each for each in found if (each[1] / sidecars.TOKEN_NLL.file).is_file()), found[0])
    return record, folder.parent


def folders_of(results: Path, prefix: str) -> list[Path]:
    """The folders of the trial with this id, or with these first digits: one for each suite that has its record. Raises
    ExecutionError when there is no such trial, or more than one.
    """
    if not PREFIX.fullmatch(prefix):
        raise ExecutionError(f"trial '{prefix}': expected the first digits of an id, as harness plan shows them")
    folders = [place.parent for place in sorted((results.resolve() / "runs").glob(f"*/{prefix}*/{store.FILE_NAME}"))]
    ids = sorted({folder.name for folder in folders})
    if not ids:
        raise ExecutionError(
            f"there is no finished trial {prefix} below {results / 'runs'}; `harness runs SUITE` lists those of a suite"
        )
    if len(ids) > 1:
        more = f" and {len(ids) - MAX_NAMED} more" if len(ids) > MAX_NAMED else ""
        raise ExecutionError(f"{prefix} is the beginning of {', '.join(ids[:MAX_NAMED])}{more}; give more digits")
    return folders


def _ok(results: Path, prefix: str, lacking: str) -> list[tuple[TrialRecord, Path]]:
    """The ok records of the trial with this id, or with these first digits, and their folders."""
    folders = folders_of(results, prefix)
    trial = folders[0].name
    found = [(record, each) for each in folders if (record := store.load(each.parent, trial)) is not None]
    ok = [(record, folder) for record, folder in found if record.status == "ok"]
    two = Seeds(record for record, _ in found).contradiction([record for record, _ in found])
    if two is not None:
        one, other = two
        first = next(folder for record, folder in found if record is one)
        second = next(folder for record, folder in found if record is other)
        raise ExecutionError(f"trial {trial} has different results in {first} and {second}: remove one of them")
    if not ok:
        status = next((record.status for record, _ in found), "missing")
        raise ExecutionError(
            f"trial {trial} ended as '{status}': it has no {lacking}; `harness run SUITE --retry-failed` trains it "
            f"again{f', {MENDED}' if status == 'invalid' else ''}"
        )
    return ok


def load(results: Path, prefix: str, data: Path, device: torch.device) -> Trained:
    """Load the model of a finished trial, with its best weights. Raises as `find`, `corpus_of` and `rebuilt` do."""
    record, place = find(results, prefix)
    return rebuilt(record, place, corpus_of(record.spec, data), device)


def rebuilt(record: TrialRecord, place: Path, corpus: Corpus, device: torch.device) -> Trained:
    """Build the model of a trial again, with the weights of its best epoch. Raises ExecutionError when it cannot be
    built, Damaged when the weights are not those of the record.
    """
    spec = record.spec
    try:
        with contained(components(spec)):
            model = model_of(spec, corpus)
    except ValueError as error:
        raise ExecutionError(f"trial {spec.id} cannot be built again: {error}") from error
    weights = load_weights(place, "cpu")
    if weights_sha256(weights) != record.weights_sha256:
        raise Damaged(f"{place}: these are not the weights that the record names; {TRAIN_AGAIN}")
    model.load_state_dict(weights)
    return Trained(record=record, model=model.eval().to(device), corpus=corpus, device=device)


def corpus_of(spec: TrialSpec, data: Path) -> Corpus:
    """Load the text that a trial was trained on. Raises as `tokens_of`, and where its tokens do not stand for text."""
    corpus = tokens_of(spec, data)
    if corpus.codec is None:
        raise ExecutionError(f"the tokens of {spec.corpus} do not stand for text; take a trial on a text")
    return corpus


def tokens_of(spec: TrialSpec, data: Path) -> Corpus:
    """Load the corpus that a trial was trained on. Raises ExecutionError when it has changed, CorpusError when it
    cannot be loaded.
    """
    try:
        source = CORPORA.get(spec.corpus.name)(**spec.corpus.params)
        backbone = starting_content(spec.backbone, BACKBONES.get(spec.backbone.name))
        head = starting_content(spec.head, HEADS.get(spec.head.name))
        if recomputed(spec, Contents(corpus=source.facts().content, backbone=backbone, head=head)) != spec.id:
            raise ExecutionError(
                f"{spec.corpus} or the files that backbone and head start from have changed since {spec.id}: put "
                "back what it read, or train it again (harness run SUITE)"
            )
        return source.load(data)
    except ValueError as error:
        raise ExecutionError(f"the corpus of trial {spec.id} cannot be built again: {error}") from error
