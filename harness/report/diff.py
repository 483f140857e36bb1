"""What differs between two trials, or two heads of a suite over the seeds they share."""

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.code.hashes import KINDS, alike
from harness.diagnostics.trained import PREFIX, corpus_of, finished
from harness.errors import CorpusError, ExecutionError, RecordError
from harness.plan.parameters import resolved, with_paths
from harness.plan.reader import shown
from harness.plan.specs import TrialSpec, plain, value_text
from harness.printable import counted
from harness.records import sidecars
from harness.records.contents import of_others
from harness.records.metrics import METRICS, metrics_of
from harness.records.record import TrialRecord
from harness.records.sidecars import TokenScores
from harness.registry import BACKBONES, CORPORA, HEADS
from harness.report.evidence import Evidence
from harness.report.grouping import grouped
from harness.report.statistics import (
    BLOCK,
    FEWEST_BLOCKS,
    WIDEST,
    block_interval,
    more_seeds,
    paired,
    sign_flip,
)
from harness.report.table_rows import Row, of_head
from harness.report.tokens import Band, Context, by_frequency, by_position, contexts, differences
from harness.report.verdicts import shared_seeds

NOT_KNOWN = "an unknown number of"
AGREEMENT = 1e-9  # relative, of sums of one order
EFFECT = math.log1p(0.01)  # nats: one per cent of perplexity
ABSENT = "-"
_MISSING = object()
ONE_PAIR = (
    "one pair: nothing is ranked; the interval is over blocks of the test text, not over seeds, and is given for "
    f"{FEWEST_BLOCKS} blocks of {BLOCK:,} tokens or more"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The trials of A or of B. The other one has as many trials, and they are paired in order.

    Args:
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
        raise ExecutionError(f"{a} and {b} are the same trial, {ours[0].id}: nothing differs; name two trials")
    one, other = (Selection(label=record.id, runs=runs, records=(record,)) for record, runs in (ours, theirs))
    return one, other


def of_heads(lines: Iterable[Row], evidence: Evidence, a: str, b: str) -> list[tuple[str, Selection, Selection]]:
    """Two heads of a suite, by name or label: for each corpus and backbone its name, A and B, over shared seeds.

    Raises: ExecutionError when a head does not exist, a name is that of several heads, or no seed is finished for both.
    """
    groups, found = grouped((row.group, row) for row in lines), []
    for group, rows in groups.items():
        one, other = (_row(rows, head) for head in (a, b))
        if one is other:
            raise ExecutionError(f"'{a}' and '{b}' are the same head, {one.head}: nothing differs; name two heads")
        if seeds := shared_seeds(one, other):
            selections = (
                Selection(label=row.head, runs=evidence.runs, records=tuple(row.records[seed] for seed in seeds))
                for row in (one, other)
            )
            found.append((", ".join(group), *selections))
    if not found:
        invalid = dict.fromkeys(row.head for rows in groups.values() for row in rows if row.invalid)
        if invalid:
            raise ExecutionError(
                f"nothing to compare: there are invalid trials of {', '.join(invalid)} (harness docs certificates)"
            )
        others = of_others(evidence.suite, evidence.runs)
        raise ExecutionError(
            f"no seed of {a} and {b} is finished for both: harness run {shown(evidence.suite.path)}"
            + (f" ({others})" if others else "")
        )
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
    return spec.name, plain(with_paths(cls, resolved(cls, spec.params), lambda path: None))


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDifference:
    """A metric of A and B.

    Args:
        a, b: means over the trials.
        change: b / a - 1, of geometric means: exp(mean difference of logarithms) - 1.
        low, high: its 95 % interval: a t interval over seeds, or for one pair's test perplexity a bootstrap interval
            over blocks of tokens; None if there is neither.
        over: what the interval was computed over: '8 seeds', '12 blocks of 1,000 tokens', or ''.
        p_t, p_sign_flip: of the paired t test and of the sign-flip test; for perplexities only.
        more_seeds: the range of further seeds that detect a difference of 1 %, see harness.report.statistics.
    """

    name: str
    a: float
    b: float
    n: int
    change: float
    low: float | None = None
    high: float | None = None
    over: str = ""
    p_t: float | None = None
    p_sign_flip: float | None = None
    more_seeds: tuple[int, int] | None = None

    @property
    def too_wide(self) -> bool:
        """Whether the ends of the interval are further apart than tables write out."""
        return self.low is not None and 1 + self.high > WIDEST * (1 + self.low)


def results(a: Selection, b: Selection, scores: tuple[TokenScores, TokenScores] | None) -> list[MetricDifference]:
    """The differences of scores, counts and settings.

    Raises: RecordError when the scores are of two test splits.
    """
    pairs = [(one.metrics, other.metrics) for one, other in zip(a.records, b.records, strict=True)]
    one_counting = all(each.get("test_ppl_standard") == each.get("test_ppl") for pair in pairs for each in pair)
    names = _names("score", "count", "setting")
    found = list(_compared([name for name in names if name != "test_ppl_standard" or not one_counting], pairs))
    if len(a.records) > 1 or scores is None:
        return found
    over = block_interval(differences(*scores).nats)
    if over.low is None:
        return found
    text = f"{counted(over.blocks, 'block')} of {BLOCK:,} tokens"
    blocks = {"low": math.expm1(over.low), "high": math.expm1(over.high), "over": text}
    return [replace(each, **blocks) if each.name == "test_ppl" else each for each in found]


def costs(a: Selection, b: Selection) -> tuple[list[MetricDifference], list[str]]:
    """The differences of times and memory measured on one device, and notes on how they were measured.

    Raises: RecordError when a timing does not verify.
    """
    pairs = [(one, other) for one, other in zip(a.records, b.records, strict=True) if _machine(one) == _machine(other)]
    if not pairs:
        one, other = (_machine(each.records[0]) for each in (a, b))
        return [], [f"times and memory are not compared: {a.label} was measured on {one}, {b.label} on {other}"]
    ours, theirs = ([sidecars.TIMING.load(each.runs, record) for record in each.records] for each in (a, b))
    passes = {timing.pass_id: timing for timing in theirs if timing is not None}
    # only one trial of a head is timed: times do not depend on the seed
    exclusive = next(((one, passes[one.pass_id]) for one in ours if one is not None and one.pass_id in passes), None)
    if exclusive is None:
        shared = any(record.environment.shared for pair in pairs for record in pair)
        note = "ms/batch: measured during training" + (", while other work ran on the machine" if shared else "")
        return list(_compared(_names("cost"), [(one.metrics, other.metrics) for one, other in pairs])), [note]
    names = _names("cost")
    times = _compared([name for name in names if METRICS[name].timed], [(exclusive[0].metrics, exclusive[1].metrics)])
    metrics = [(one.metrics, other.metrics) for one, other in pairs]
    others = _compared([name for name in names if not METRICS[name].timed], metrics)
    sharing = ", while other work ran on the machine" if any(timing.shared for timing in exclusive) else ""
    return [*times, *others], [
        f"ms/batch: of one exclusive pass after training, in {exclusive[0].rounds} rounds{sharing}"
    ]


def _names(*kinds: str) -> list[str]:
    return [metric.name for metric in metrics_of(*kinds) if metric.diff]


def _compared(names: Iterable[str], pairs: list[tuple[dict[str, float], dict[str, float]]]) -> Iterator:
    """The difference of each metric, over the pairs in which both values are above 0."""
    for name in names:
        both = [(one[name], other[name]) for one, other in pairs if min(one.get(name, 0), other.get(name, 0)) > 0]
        if not both:
            continue
        logs = [math.log(theirs) - math.log(ours) for ours, theirs in both]
        test = paired(logs)
        tests = {"n": test.n, "change": math.expm1(test.mean)}
        if test.sd:
            tests |= {"low": math.expm1(test.low), "high": math.expm1(test.high), "over": counted(test.n, "seed")}
        if test.sd is not None and METRICS[name].unit == "perplexity":
            tests |= {"p_t": test.p_t, "p_sign_flip": sign_flip(logs)[0], "more_seeds": more_seeds(test, EFFECT)}
        yield MetricDifference(
            name=name, a=statistics.fmean(one for one, _ in both), b=statistics.fmean(x for _, x in both), **tests
        )


def _machine(record: TrialRecord) -> str:
    """The device and threads: only times on the same ones are compared."""
    return f"{record.environment.device}, {counted(record.environment.threads, 'thread')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A setting that differs: 'head.num_mixtures', from '2' to '5'; '-' if one of the trials does not have it."""

    key: str
    a: str
    b: str


def changes(a: TrialSpec, b: TrialSpec) -> list[Change]:
    """Every setting in which b differs from a, defaults included. Raises UnknownComponent."""
    both = _settings(a), _settings(b)
    keys = dict.fromkeys(key for each in both for key in each)
    differing = [key for key in keys if both[0].get(key, _MISSING) != both[1].get(key, _MISSING)]
    texts = [[value_text(each[key]) if key in each else ABSENT for each in both] for key in differing]
    return [Change(key=key, a=one, b=other) for key, (one, other) in zip(differing, texts, strict=True)]


def _settings(spec: TrialSpec) -> dict[str, Any]:
    backbone = {"": spec.backbone.name, **resolved(BACKBONES.get(spec.backbone.name), spec.backbone.params)}
    head = {"": spec.head.name, **resolved(HEADS.get(spec.head.name), spec.head.params)}
    nested = {"backbone": backbone, "head": head, "train": spec.train.model_dump(), "seed": spec.seed}
    return dict(_flat(plain(nested)))


def _flat(value: dict[str, Any], name: str = ""):
    """'train.schedule.plateau.factor' -> 0.5; the value under '' has the name of what it stands in."""
    for key, child in value.items():
        full = f"{name}.{key}".strip(".")
        if isinstance(child, dict) and child:
            yield from _flat(child, full)
        else:
            yield full, child


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
    """The token scores of a and b, averaged over the pairs that have them, and a note if some are missing."""
    of, kept = len(a.records), []
    try:
        for one, other in zip(a.records, b.records, strict=True):
            scores = sidecars.TOKEN_NLL.load(a.runs, one), sidecars.TOKEN_NLL.load(b.runs, other)
            kept += [] if None in scores else [scores]
        if not kept:
            missing = "no pair of trials has token scores (measure: {token_nll: true})"
            return None, [f"no comparison of single tokens: {missing}"]
        means = tuple(mean_scores(each) for each in zip(*kept, strict=True))
    except RecordError as damaged:
        return None, [f"no comparison of single tokens: {damaged}"]
    some = [] if len(kept) == of else [f"single tokens: over the {len(kept)} of {of} pairs that have token scores"]
    return means, [ONE_PAIR] if of == 1 else some


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
