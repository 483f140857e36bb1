"""The pairs of trials that `harness diff` compares: two trials, or two heads of a suite over the seeds they share."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.diagnostics.trained import PREFIX, finished
from harness.errors import ExecutionError, RecordError
from harness.plan.parameters import is_place, parameters, resolved
from harness.plan.reader import shown
from harness.plan.specs import plain
from harness.records import sidecars
from harness.records.record import TrialRecord
from harness.records.sidecars import TokenScores
from harness.registry import CORPORA
from harness.report.evidence.gather import Evidence
from harness.report.evidence.seed_pairs import shared_seeds
from harness.report.evidence.table_rows import Row, of_head

NOT_KNOWN = "an unknown number of"
AGREEMENT = 1e-9  # relative, of sums of one order


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The trials of A or of B. The other one has as many trials, and they are paired in order.

    Args:
        label: the name of A or B.
        runs: the folder of its suite's trials.
        records: of its trials, all ok.
    """

    label: str
    runs: Path
    records: tuple[TrialRecord, ...]


def of_trials(results: Path, a: str, b: str) -> tuple[Selection, Selection]:
    """Two finished trials, by their ids or the first digits of these.

    Raises: ExecutionError when one is not found or both are the same; RecordError when a record does not verify.
    """
    for name in (a, b):
        if not PREFIX.fullmatch(name):
            expected = "expected the first digits of an id, as harness plan shows them; for two heads add --suite SUITE"
            raise ExecutionError(f"trial '{name}': {expected}")
    ours, theirs = (finished(results, prefix) for prefix in (a, b))
    if ours[0].id == theirs[0].id:
        raise ExecutionError(f"{a} and {b} are the same trial, {ours[0].id}: nothing differs")
    one, other = (Selection(label=record.id, runs=runs, records=(record,)) for record, runs in (ours, theirs))
    return one, other


def of_heads(lines: Iterable[Row], evidence: Evidence, a: str, b: str) -> list[tuple[str, Selection, Selection]]:
    """Two heads of a suite, by name or label: for each corpus and backbone its name, A and B, over shared seeds.

    Raises: ExecutionError when a head does not exist, a name is that of several heads, or no seed is finished for both.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in lines:
        groups.setdefault(row.group, []).append(row)
    found = []
    for group, rows in groups.items():
        one, other = (_row(rows, head) for head in (a, b))
        if one is other:
            raise ExecutionError(f"'{a}' and '{b}' are the same head, {one.head}: nothing differs")
        if seeds := shared_seeds(one, other):
            selections = (
                Selection(label=row.head, runs=evidence.runs, records=tuple(row.records[seed] for seed in seeds))
                for row in (one, other)
            )
            found.append((", ".join(group), *selections))
    if not found:
        invalid = dict.fromkeys(row.head for rows in groups.values() for row in rows if row.invalid)
        if invalid:
            raise ExecutionError(f"nothing to compare: there are invalid trials of {', '.join(invalid)}")
        raise ExecutionError(f"no seed of {a} and {b} is finished for both: harness run {shown(evidence.suite.path)}")
    return found


def refuse_unlike(a: TrialRecord, b: TrialRecord) -> None:
    """Raise ExecutionError if two records are not of one text with one counting rule, and so cannot be compared."""
    ours, theirs = (_corpus(record) for record in (a, b))
    if ours != theirs:
        raise ExecutionError(
            f"{a.id} is of {a.spec.corpus}, {b.id} of {b.spec.corpus}: expected one corpus with one counting rule"
        )
    counts = [record.metrics.get("scored_test_tokens") for record in (a, b)]
    if counts[0] != counts[1]:
        texts = [NOT_KNOWN if count is None else f"{count:,.0f}" for count in counts]
        raise ExecutionError(
            f"{a.id} scored {texts[0]} test tokens, {b.id} {texts[1]}: expected two trials that scored the same tokens"
        )
    unigrams = [record.metrics.get("unigram_test_ppl", math.nan) for record in (a, b)]
    if all(map(math.isfinite, unigrams)) and not math.isclose(*unigrams, rel_tol=AGREEMENT):
        raise ExecutionError(
            f"{a.id} and {b.id} are of two texts, both called {a.spec.corpus}: a unigram's test perplexity is "
            f"{unigrams[0]:.6g} on one and {unigrams[1]:.6g} on the other"
        )


def token_scores_of(a: Selection, b: Selection) -> tuple[TokenScores, TokenScores, int] | None:
    """The token scores of a and b, averaged over the pairs that have them, and the number of these pairs.

    Returns None if no pair has token scores. Raises RecordError when they do not verify or are of two test splits.
    """
    pairs = []
    for one, other in zip(a.records, b.records, strict=True):
        ours, theirs = sidecars.TOKEN_NLL.load(a.runs, one), sidecars.TOKEN_NLL.load(b.runs, other)
        if ours is not None and theirs is not None:
            pairs.append((ours, theirs))
    if not pairs:
        return None
    ours, theirs = zip(*pairs, strict=True)
    return mean_scores(ours), mean_scores(theirs), len(pairs)


def mean_scores(scores: tuple[TokenScores, ...]) -> TokenScores:
    """The token scores averaged over trials that differ in their seed; NaN where one did not score a token."""
    first = scores[0]
    if not all(np.array_equal(each.count, first.count) for each in scores):
        raise RecordError("the scores of tokens are of two test splits; expected those of one")
    nats = sum(each.nll.astype(np.float64) for each in scores) / len(scores)
    return TokenScores(nll=nats, count=first.count, offset=first.offset)


def _row(rows: list[Row], head: str) -> Row:
    """A row of one corpus and backbone, by the name of its head in the table, as the plan prints it, or by the name of
    its class if only one row has it.
    """
    named = [row for row in rows if row.head == head] or of_head(rows, head)
    if len(named) != 1:
        wrong = f"'{head}' is the name of {len(named)} heads" if named else f"there is no head '{head}'"
        raise ExecutionError(f"{wrong}; expected one of: {'; '.join(row.head for row in named or rows)}")
    return named[0]


def _corpus(record: TrialRecord) -> object:
    """The identity of a corpus: its name and all parameters except paths."""
    spec = record.spec.corpus
    cls = CORPORA.get(spec.name)
    places = {name for name, parameter in parameters(cls).items() if is_place(parameter)}
    return spec.name, plain({k: value for k, value in resolved(cls, spec.params).items() if k not in places})
