"""A finished trial, found by its id, and its model with the best weights."""

import re
from dataclasses import dataclass
from pathlib import Path

import torch

from harness.containment.calls import contained
from harness.corpora.corpus import Codec, Corpus
from harness.errors import Damaged, ExecutionError
from harness.model import LanguageModel, build, components
from harness.plan.identity import starting_content
from harness.plan.specs import TrialSpec
from harness.records import agreement, store, token_nll
from harness.records.contents import recomputed
from harness.records.record import Contents, TrialRecord
from harness.registry import BACKBONES, CORPORA
from harness.training.checkpoint import BEST, load_weights, weights_sha256

SHOWN = 5  # of the trials that a prefix fits


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A trial's model in evaluation mode, with what its ids mean."""

    spec: TrialSpec
    model: LanguageModel
    corpus: Corpus
    codec: Codec
    device: torch.device

    def ids(self, text: str) -> torch.Tensor:
        """(1, T) the text's tokens. Raises CorpusError for what the vocabulary cannot express, ExecutionError for an
        empty text.
        """
        ids = self.codec.encode(text)
        if not ids:
            raise ExecutionError("the text is empty; at least one token is needed for the next to follow")
        return torch.tensor([ids], device=self.device)

    def word(self, index: int) -> str:
        """A token as it is called in the vocabulary."""
        return self.codec.decode([index]) if self.corpus.symbols is None else self.corpus.symbols[index]


def find(results: Path, prefix: str) -> tuple[TrialRecord, Path]:
    """The record of the trial whose id begins so, anywhere below a results folder, and its weights' place.

    Raises: ExecutionError when there is none, more than one, or one without weights; RecordError when its record does
    not verify.
    """
    found = _ok(results, prefix, "weights")
    for record, folder in found:  # one trial may stand in several suites
        if (folder / BEST).is_file():
            return record, folder / BEST
    raise ExecutionError(f"trial {found[0][0].id} has no weights: {found[0][1] / BEST} is gone")


def finished(results: Path, prefix: str) -> tuple[TrialRecord, Path]:
    """The record of the trial whose id begins so, and the folder of its suite's trials: of several suites, one that has
    what each test token costs. Raises as `find`, but for weights.
    """
    found = _ok(results, prefix, "perplexity")
    record, folder = next((each for each in found if (each[1] / token_nll.FILE_NAME).is_file()), found[0])
    return record, folder.parent


def folders_of(results: Path, prefix: str) -> list[Path]:
    """The folders of the one trial whose id begins so: one in each suite that has a record of it. Raises ExecutionError
    when there is none, or more than one such trial.
    """
    if not re.fullmatch(r"[0-9a-f]{1,12}", prefix):
        raise ExecutionError(f"trial '{prefix}': expected the first digits of an id, as harness plan shows them")
    folders = [place.parent for place in sorted((results.resolve() / "runs").glob(f"*/{prefix}*/{store.FILE_NAME}"))]
    ids = sorted({folder.name for folder in folders})
    if not ids:
        raise ExecutionError(f"there is no finished trial {prefix} below {results / 'runs'}")
    if len(ids) > 1:
        more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
        raise ExecutionError(f"{prefix} is the beginning of {', '.join(ids[:SHOWN])}{more}; give more digits")
    return folders


def _ok(results: Path, prefix: str, lacking: str) -> list[tuple[TrialRecord, Path]]:
    """The ok records of the one trial whose id begins so, with their folders."""
    folders = folders_of(results, prefix)
    trial = folders[0].name
    found = [(record, each) for each in folders if (record := store.load(each.parent, trial)) is not None]
    ok = [(record, folder) for record, folder in found if record.status == "ok"]
    if two := agreement.contradicting(record for record, _ in found):
        first, second = (next(folder for record, folder in found if record is each) for each in two)
        raise ExecutionError(f"trial {trial} has different results in {first} and {second}: remove one of them")
    if not ok:
        status = next((record.status for record, _ in found), "missing")
        raise ExecutionError(f"trial {trial} ended as '{status}': it has no {lacking}")
    return ok


def load(results: Path, prefix: str, data: Path, device: torch.device) -> Trained:
    """The model of a finished trial, with the weights of its best epoch.

    Args:
        prefix: of the trial's id; see `find`.
        data: the folder of the corpora's files.
    Raises: ExecutionError as `find`, and where the corpus has no text or is not the one that was trained on, or the
        model cannot be built; Damaged when the weights are not those of the record; CorpusError.
    """
    record, place = find(results, prefix)
    spec = record.spec
    corpus = corpus_of(spec, data)
    try:
        with contained(components(spec)):
            model = build(
                spec.backbone, spec.head, vocab_size=corpus.vocab_size, seed=spec.seed, token_counts=corpus.token_counts
            )
    except ValueError as error:
        raise ExecutionError(f"trial {spec.id} cannot be built again: {error}") from error
    weights = load_weights(place, "cpu")
    if weights_sha256(weights) != record.weights_sha256:
        raise Damaged(f"{place}: these are not the weights that the record names")
    model.load_state_dict(weights)
    return Trained(spec=spec, model=model.to(device).eval(), corpus=corpus, codec=corpus.codec, device=device)


def corpus_of(spec: TrialSpec, data: Path) -> Corpus:
    """The corpus that a trial was trained on, which has a text.

    Raises: ExecutionError where it is another one by now, or its tokens stand for no text; CorpusError.
    """
    try:
        source = CORPORA.get(spec.corpus.name)(**spec.corpus.params)
        start = starting_content(spec.backbone, BACKBONES.get(spec.backbone.name))
        if recomputed(spec, Contents(corpus=source.facts().content, backbone=start)) != spec.id:
            raise ExecutionError(
                f"{spec.corpus} or the weights that the backbone starts from have changed since {spec.id}"
            )
        corpus = source.load(data)
    except ValueError as error:
        raise ExecutionError(f"the corpus of trial {spec.id} cannot be built again: {error}") from error
    if corpus.codec is None:
        raise ExecutionError(f"the tokens of {spec.corpus} stand for no text")
    return corpus
