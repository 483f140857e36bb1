"""What differs between two trials, or two heads of a suite over the seeds they share."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from harness.code.hashes import KINDS, alike
from harness.errors import CorpusError, ExecutionError, RecordError
from harness.plan.parameters import resolved, with_paths
from harness.plan.reader import shown
from harness.plan.specs import TrialSpec, plain, value_text
from harness.records import sidecars
from harness.records.metrics import METRICS
from harness.records.record import TrialRecord
from harness.records.settings import all_settings
from harness.records.sidecars import Timing, TokenScores
from harness.registry import CORPORA
from harness.report.evidence import Evidence
from harness.report.grouping import grouped
from harness.report.row_facts import RowFacts, of_head, of_trial, ratio, time_of
from harness.report.statistics import WIDEST, paired
from harness.report.tokens import Band, Context, by_frequency, by_position, contexts
from harness.report.verdicts import shared_seeds
from harness.trial.trained import PREFIX, corpus_of, finished

AGREEMENT = 1e-9  # relative, of sums of one order
ABSENT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The trials of A or of B, as a row of a table that has ok records only. The other one has as many trials, and they
    are paired in order.
    """

    runs: Path
    row: RowFacts

    @property
    def records(self) -> list[TrialRecord]:
        return list(self.row.records.values())


def of_trials(results: Path, a: str, b: str) -> tuple[Selection, Selection]:
    """Two finished trials, by their ids or the first digits of these.

    Raises: ExecutionError when one is not found or both are the same; RecordError when a record does not verify.
    """
    for name in (a, b):
        if not PREFIX.fullmatch(name):
            expected = "expected the first digits of an id, as harness plan shows them; for two heads add --suite SUITE"
            raise ExecutionError(f"trial '{name}': {expected}")
    found = [finished(results, prefix) for prefix in (a, b)]
    if found[0][0].id == found[1][0].id:
        raise ExecutionError(f"{a} and {b} are the same trial, {found[0][0].id}: nothing differs; name two trials")
    one, other = (Selection(runs=runs, row=of_trial(record)) for record, runs in found)
    return one, other


def of_heads(lines: Iterable[RowFacts], evidence: Evidence, a: str, b: str) -> list[tuple[str, Selection, Selection]]:
    """Two heads of a suite, by name or label: for each corpus and backbone its name, A and B, over shared seeds.

    Raises: ExecutionError when a head does not exist, a name is that of several heads, or no seed is finished for both.
    """
    groups, found = grouped((row.group, row) for row in lines), []
    for group, rows in groups.items():
        one, other = (_row(rows, head) for head in (a, b))
        if one is other:
            raise ExecutionError(f"'{a}' and '{b}' are the same head, {one.head}: nothing differs; name two heads")
        if seeds := shared_seeds(one, other):
            selections = []
            for row in (one, other):
                trials = tuple(trial for trial in row.trials if trial.seed in seeds)
                selections.append(Selection(runs=evidence.runs, row=replace(row, trials=trials)))
            found.append((", ".join(group), *selections))
    if not found:
        invalid = []
        for name in (a, b):
            if any(_row(rows, name).invalid for rows in groups.values()):
                invalid.append(name)
        again = f"`harness run {shown(evidence.suite.path)}` trains what is missing"
        if invalid:
            again = (
                f"trials of {' and '.join(invalid)} are invalid: mend the head or its backbone, and train them again"
            )
        raise ExecutionError(f"no seed of {a} and {b} is finished and valid for both; {again}")
    return found


def refuse_unlike(a: TrialRecord, b: TrialRecord) -> None:
    """Raise ExecutionError if two records are not of one text with one counting rule, and so cannot be compared."""
    ours, theirs = (_corpus(record) for record in (a, b))
    if ours != theirs:
        raise ExecutionError(
            f"{a.id} is of {a.spec.corpus}, {b.id} of {b.spec.corpus}: expected one corpus with one counting rule"
        )
    one, other = (record.metrics["scored_test_tokens"] for record in (a, b))
    if one != other:
        raise ExecutionError(f"{a.id} scored {one:,.0f} test tokens, {b.id} {other:,.0f}: expected the same tokens")
    unigrams = [record.metrics.get("unigram_test_ppl", math.nan) for record in (a, b)]
    if all(map(math.isfinite, unigrams)) and not math.isclose(*unigrams, rel_tol=AGREEMENT):
        raise ExecutionError(
            f"{a.id} and {b.id} are of two texts, both called {a.spec.corpus}: a unigram's test perplexity is "
            f"{unigrams[0]:.6g} on one and {unigrams[1]:.6g} on the other"
        )


def mean_scores(scores: tuple[TokenScores, ...]) -> TokenScores:
    """The token scores averaged over trials that differ in their seed; NaN where one did not score a token."""
    first = scores[0]
    if not all(np.array_equal(each.count, first.count) for each in scores):
        raise RecordError("the scores of tokens are of two test splits; expected those of one")
    nats = sum(each.nll.astype(np.float64) for each in scores) / len(scores)
    return TokenScores(nll=nats, count=first.count, offset=first.offset)


def _row(rows: list[RowFacts], head: str) -> RowFacts:
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
    return spec.name, plain(with_paths(cls, resolved(cls, spec.params), lambda path: None))


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDifference:
    """A metric of A and B.

    Args:
        a, b: means over the n trials; of a time, what a table shows (`row_facts.time_of`).
        change: b / a - 1; of several trials that of geometric means. None for times that cannot be compared.
        low, high: its 95 % t interval over seeds; None for one trial, and for times.
    """

    name: str
    a: float
    b: float
    n: int
    change: float | None
    low: float | None = None
    high: float | None = None

    @property
    def too_wide(self) -> bool:
        """Whether the ends of the interval are further apart than tables write out."""
        return self.low is not None and 1 + self.high > WIDEST * (1 + self.low)


def compared(a: Selection, b: Selection, timings: dict[str, Timing]) -> list[MetricDifference]:
    """A and B in the metrics that `harness diff` compares, in the order of the columns of tables; costs on one device
    only. `timings`: of exclusive passes, by trial id.
    """
    found = []
    devices = {record.environment.device for each in (a, b) for record in each.records}
    for metric in METRICS.values():
        if not metric.diff or (metric.name == "test_ppl_standard" and a.row.boundary != "sos_eos"):
            continue
        if metric.kind == "cost" and len(devices) > 1:
            continue
        if metric.timed:
            one, other = (time_of(each.row, metric.name, timings) for each in (a, b))
            if one is not None and other is not None:
                times = ratio(other, one)
                change = None if times is None else times - 1
                found.append(
                    MetricDifference(name=metric.name, a=one.value, b=other.value, n=len(a.records), change=change)
                )
            continue
        values = [
            (ours.metrics.get(metric.name, 0), theirs.metrics.get(metric.name, 0))
            for ours, theirs in zip(a.records, b.records, strict=True)
        ]
        both = [pair for pair in values if min(pair) > 0]
        if both:
            test = paired([math.log(theirs) - math.log(ours) for ours, theirs in both])
            interval = {"low": math.expm1(test.low), "high": math.expm1(test.high)} if test.sd else {}
            one, other = (statistics.fmean(values) for values in zip(*both, strict=True))
            change = math.expm1(test.mean)
            found.append(MetricDifference(name=metric.name, a=one, b=other, n=test.n, change=change, **interval))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A setting that differs: 'head.num_mixtures', from '2' to '5'; '-' if one of the trials does not have it."""

    key: str
    a: str
    b: str


def changes(a: TrialSpec, b: TrialSpec) -> list[Change]:
    """Every setting in which b differs from a, defaults included."""
    ours, theirs = all_settings(a), all_settings(b)
    found = []
    for key in dict.fromkeys([*ours, *theirs]):
        one, other = (value_text(each[key]) if key in each else ABSENT for each in (ours, theirs))
        if one != other:
            found.append(Change(key=key, a=one, b=other))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference of A and B.

    Args:
        within: their corpus and backbone; '' for two trials.
        changes: settings that differ, of the first pair. Other pairs differ in the seed only.
        by_frequency, by_position: differences in nats of the test tokens, b less a; see harness.report.tokens.
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

    Raises: ExecutionError when the two are not of one corpus with one counting rule. If a timing or token scores do not
        verify, or the corpus cannot be loaded, a note says so.
    """
    pairs = list(zip(a.records, b.records, strict=True))
    for one, other in pairs:
        refuse_unlike(one, other)
    timings, damaged = {}, []
    for each in (a, b):
        kept, faults = sidecars.TIMING.load_all(each.runs, {record.id: record for record in each.records})
        timings |= kept
        damaged += faults
    scores, about_scores = _scores(a, b)
    better, worse, about_text = _contexts(a, b, scores, data, top)
    return Difference(
        a=a.row.head,
        b=b.row.head,
        within=within,
        trials=tuple((one.id, other.id) for one, other in pairs),
        changes=tuple(changes(pairs[0][0].spec, pairs[0][1].spec)),
        metrics=tuple(compared(a, b, timings)),
        by_frequency=by_frequency(*scores) if scores else (),
        by_position=by_position(*scores) if scores else (),
        better=better,
        worse=worse,
        notes=(*_code(pairs), *damaged, *about_scores, *about_text),
    )


def _code(pairs: list[tuple[TrialRecord, TrialRecord]]) -> list[str]:
    found = {
        f"the code of the {kind} '{getattr(one.spec, kind).name}' is not the same: it may cause part of the difference"
        for one, other in pairs
        for kind in KINDS
        if one.code is not None and other.code is not None
        if getattr(one.spec, kind).name == getattr(other.spec, kind).name
        if not alike(kind, getattr(one.spec, kind).name, getattr(one.code, kind), getattr(other.code, kind))
    }
    return sorted(found)


def _scores(a: Selection, b: Selection) -> tuple[tuple[TokenScores, TokenScores] | None, list[str]]:
    """The token scores of a and b, averaged over their trials, or a note why there are none."""

    def stored(of: Selection) -> list[TokenScores | None]:
        return [sidecars.TOKEN_NLL.load(of.runs, record) for record in of.records]

    missing = "not every trial has token scores (measure: {token_nll: true})"
    try:
        one, other = stored(a), stored(b)  # both first: either may be damaged
        if None not in (*one, *other):
            return (mean_scores(tuple(one)), mean_scores(tuple(other))), []
    except RecordError as damaged:
        missing = str(damaged)
    return None, [f"no comparison of single tokens: {missing}"]


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
