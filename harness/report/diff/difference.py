"""The difference of two trials, or of two heads over their shared seeds: settings, metrics, single tokens."""

from dataclasses import dataclass
from pathlib import Path

from harness.code.fingerprints import KINDS, moved
from harness.diagnostics.trained import corpus_of
from harness.errors import CorpusError, ExecutionError, RecordError
from harness.records.record import TrialRecord
from harness.records.sidecars import TokenScores
from harness.report.diff.changes import Change, changes
from harness.report.diff.contexts import Context, contexts
from harness.report.diff.metric_pairs import MetricDifference, costs, results
from harness.report.diff.pairs import Selection, refuse_unlike, token_scores_of
from harness.report.evidence.blocks import BLOCK, FEWEST_BLOCKS
from harness.report.evidence.gains import Band, by_frequency, by_position

ONE_PAIR = (
    "one pair: nothing is ranked; the interval is over blocks of the test text, not over seeds, and is given for "
    f"{FEWEST_BLOCKS} blocks of {BLOCK:,} tokens or more"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference of A and B.

    Args:
        a, b: their labels.
        within: their corpus and backbone; '' for two trials.
        trials: ids, in pairs.
        changes: settings that differ, of the first pair. Other pairs differ in the seed only.
        by_frequency, by_position: differences in nats of the test tokens, b less a; see harness.report.evidence.gains.
        better, worse: the tokens on which they differ most: where the nats of b are lower, and where they are higher.
        notes: what is missing and why, and how figures were measured.
    """

    a: str
    b: str
    within: str
    trials: tuple[tuple[str, str], ...]
    changes: tuple[Change, ...]
    metrics: tuple[MetricDifference, ...]
    by_frequency: tuple[Band, ...]
    by_position: tuple[Band, ...]
    better: tuple[Context, ...]
    worse: tuple[Context, ...]
    notes: tuple[str, ...]


def difference(a: Selection, b: Selection, data: Path, *, top: int, within: str = "") -> Difference:
    """Compare b with a. Their trials are paired in order.

    Args:
        data: the folder of the corpora's files.
        top: how many contexts of each kind.
    Raises: ExecutionError when the two are not of one corpus with one counting rule; RecordError when a timing does not
        verify. If token scores do not verify, or the corpus cannot be loaded, a note says so.
    """
    pairs = list(zip(a.records, b.records, strict=True))
    for one, other in pairs:
        refuse_unlike(one, other)
    scores, about_scores = _scores(a, b)
    measured, about_costs = costs(a, b)
    better, worse, about_text = _contexts(a, b, scores, data, top)
    return Difference(
        a=a.label,
        b=b.label,
        within=within,
        trials=tuple((one.id, other.id) for one, other in pairs),
        changes=tuple(changes(a.records[0].spec, b.records[0].spec)),
        metrics=(*results(a, b, scores), *measured),
        by_frequency=by_frequency(*scores) if scores else (),
        by_position=by_position(*scores) if scores else (),
        better=better,
        worse=worse,
        notes=(*_code(pairs), *about_costs, *about_scores, *about_text),
    )


def _code(pairs: list[tuple[TrialRecord, TrialRecord]]) -> list[str]:
    """A note on each component that both have in different versions."""
    found = {
        f"the code of the {kind} '{getattr(one.spec, kind).name}' is not the same: it may cause part of the difference"
        for one, other in pairs
        for kind in KINDS
        if one.code is not None and other.code is not None
        if getattr(one.spec, kind).name == getattr(other.spec, kind).name
        if moved(getattr(one.code, kind)) != moved(getattr(other.code, kind))
    }
    return sorted(found)


def _scores(a: Selection, b: Selection) -> tuple[tuple[TokenScores, TokenScores] | None, list[str]]:
    """The token scores of a and b, averaged over seeds, and a note if some are missing."""
    try:
        found = token_scores_of(a, b)
    except RecordError as damaged:
        return None, [f"no comparison of single tokens: {damaged}"]
    if found is None:
        return None, ["no comparison of single tokens: no pair of trials has token scores (measure: {token_nll: true})"]
    ours, theirs, kept = found
    of = len(a.records)
    if of == 1:
        return (ours, theirs), [ONE_PAIR]
    return (ours, theirs), [] if kept == of else [
        f"single tokens: over the {kept} of {of} pairs that have token scores"
    ]


def _contexts(
    a: Selection, b: Selection, scores: tuple[TokenScores, TokenScores] | None, data: Path, top: int
) -> tuple[tuple[Context, ...], tuple[Context, ...], list[str]]:
    if scores is None:
        return (), (), []
    try:
        corpus = corpus_of(a.records[0].spec, data)
        return *contexts(corpus, *scores, top=top), []
    except (CorpusError, ExecutionError, RecordError) as cause:
        return (), (), [f"no contexts are shown: {cause}"]
