"""Rows compared with the baseline: which rows can be judged, the tests over shared seeds, and the words for them."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Literal, NamedTuple

from harness.errors import RecordError
from harness.plan.suite_file import TableSpec, Test
from harness.report import statistics
from harness.report.content import COARSE
from harness.report.convergence import collapsed, mostly_unconverged
from harness.report.evidence import Evidence
from harness.report.statistics import (
    RANK_SEEDS,
    SIGNIFICANT,
    Interval,
    MeanDifference,
    block_interval,
    correlation,
    equivalence,
    holm,
    sign_flip,
    stars,
)
from harness.report.table_rows import Row, of_head
from harness.report.tokens import differences

Obstacle = Literal[
    "", "seeds failed", "seeds missing", "equal seeds", "not certified", "unequal tuning", "collapsed", "not converged"
]
LIMITS = ("collapsed", "not converged")  # obstacles that limit a comparison to its budget, and do not prevent it
BOTH = {"collapsed": "both collapsed", "not converged": "neither converged"}  # of a row and its baseline
Word = Literal["better", "worse", "equivalent", "undecided", "too few seeds"]
Group = tuple[str, str]  # corpus and backbone


class Corrected(NamedTuple):
    """p of a difference, and of equivalence within the margin, corrected for the comparisons of the table."""

    different: float
    equivalent: float


class Verdict(NamedTuple):
    """How a row compares with the baseline.

    Args:
        word: what the tests say.
        why: the reason why they say nothing, 'seeds missing'; or what limits the word to the chosen settings and to
            the budget of the suite: 'coarse tuning', 'neither converged', or both. '' for nothing.
    """

    word: Word
    why: str = ""

    def __str__(self) -> str:
        """'better', 'worse, not converged', 'undecided: seeds missing'."""
        if not self.why:
            return self.word
        is_limit = self.word != "undecided" or self.why.endswith((*LIMITS, *BOTH.values()))
        return f"{self.word}{', ' if is_limit else ': '}{self.why}"


def obstacle(row: Row) -> Obstacle:
    """Why a row has no rank and no star; '' where nothing prevents it.

    A planned seed failed, or has no finished trial of the row's code; two seeds have the same result, so they are no
    repetition; a trial could not be certified; the row was tuned otherwise than the others; it is collapsed; or more
    than half of its trials are not converged. The first that applies is named.
    """
    if any(record.status != "ok" for record in row.records.values()):
        return "seeds failed"
    if len(row.ok_seeds) < len(row.trials):
        return "seeds missing"
    if row.has_equal_seeds:
        return "equal seeds"
    if any(record.uncertified for record in row.records.values()):  # guard: uncertified-is-unranked
        return "not certified"
    if row.tuning.doubt:
        return "unequal tuning"
    if collapsed(row):
        return "collapsed"
    return "not converged" if mostly_unconverged(row) else ""


def verdict(
    found: MeanDifference, beyond: Corrected | None, at_settings: Corrected | None, row: Obstacle, baseline: Obstacle
) -> Verdict:
    """How a row compares with the baseline.

    Equivalent: the difference is within the margin (two one-sided tests), even if it is not 0. Otherwise better or
    worse if there is a difference, limited to the chosen settings ('coarse tuning') if it is only shown there.
    Otherwise undecided: because of coarse tuning, if equivalence is shown at the chosen settings. Rows that have
    collapsed or not converged are compared at the budget that they had.
    Args:
        beyond: the tests beyond what tuning leaves open; None for one seed.
    """
    if found.n < RANK_SEEDS:
        return Verdict("too few seeds")
    for each in (row, baseline):
        if each and each not in LIMITS:
            return Verdict("undecided", each)
    limit = BOTH[row] if row == baseline != "" else row or (f"baseline {baseline}" if baseline else "")
    if beyond.equivalent < SIGNIFICANT:
        return Verdict("equivalent", limit)
    if at_settings.equivalent < SIGNIFICANT <= beyond.different:
        return Verdict("undecided", COARSE)
    if at_settings.different < SIGNIFICANT:
        limits = [COARSE, limit] if beyond.different >= SIGNIFICANT else [limit]
        return Verdict("better" if found.mean < 0 else "worse", ", ".join(filter(None, limits)))
    return Verdict("undecided", limit)


def nats(margin: float) -> float:
    """A relative difference of perplexity in nats: log(1 + margin)."""
    return math.log1p(margin)


def shared_seeds(row: Row, other: Row, metric: str = "test_ppl") -> tuple[int, ...]:
    """The seeds for which both rows have a finished trial with a perplexity."""
    theirs = scored_seeds(other, metric)
    return tuple(seed for seed in scored_seeds(row, metric) if seed in theirs)


def scored_seeds(row: Row, metric: str = "test_ppl") -> list[int]:
    """The ok seeds with a perplexity. A forged one that is not above 0 has no logarithm."""
    return [seed for seed in row.ok_seeds if row.records[seed].metrics.get(metric, 0) > 0]


def logarithms(row: Row, seeds: tuple[int, ...], metric: str = "test_ppl") -> list[float]:
    """The log perplexities of some seeds, in nats per token."""
    return [math.log(value) for value in row.values(metric, seeds)]


def difference(row: Row, other: Row, seeds: tuple[int, ...], test: Test, metric: str = "test_ppl") -> MeanDifference:
    """Compare the log perplexities of shared seeds, row less other. Raises ValueError when there is no seed.

    A tuning gap leaves a mean log perplexity at 0 or above, because no perplexity is below 1.
    """
    ours, theirs = logarithms(row, seeds, metric), logarithms(other, seeds, metric)
    if test == "welch":
        found = statistics.welch(ours, theirs)
    else:
        found = statistics.paired([our - their for our, their in zip(ours, theirs, strict=True)])
    return replace(found, below=min(row.tuning.gap, fmean(ours)), above=min(other.tuning.gap, fmean(theirs)))


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A row compared with the baseline of its group, by test perplexity.

    Args:
        seeds: those for which both have a finished trial, in the order of the suite.
        difference: of log perplexity over these seeds, row less baseline, with its test.
        beyond: p of the t test (MeanDifference.p_settled), and of the two one-sided tests against the margin, beyond
            what tuning leaves open, each corrected by Holm's method over all comparisons; None for one seed.
        interval: of the mean difference in nats, row less baseline, over blocks of the test split; only for a single
            shared seed, if both trials stored their token scores.
    """

    row: Row
    baseline: Row
    seeds: tuple[int, ...]
    test: Test
    difference: MeanDifference
    beyond: Corrected | None
    at_settings: Corrected | None
    interval: Interval | None

    @cached_property
    def judged(self) -> Verdict:
        """How the row compares with the baseline."""
        return verdict(self.difference, self.beyond, self.at_settings, obstacle(self.row), obstacle(self.baseline))

    @property
    def verdict(self) -> str:
        """The same as text."""
        return str(self.judged)

    @property
    def p_holm(self) -> float | None:
        """The corrected p of the t test, beyond what tuning leaves open; None for one seed."""
        return None if self.beyond is None else self.beyond.different

    @property
    def stars(self) -> str:
        """The stars of p_holm; '' where the row or the baseline has an obstacle."""
        hindered = obstacle(self.row) or obstacle(self.baseline)
        return "" if self.p_holm is None or hindered else stars(self.p_holm, self.difference.n)

    @property
    def p_sign_flip(self) -> float | None:
        """p of the sign-flip test of the pairs, not corrected; None for one seed, and where the test is Welch's."""
        if self.test == "welch" or len(self.seeds) < 2:
            return None
        pairs = zip(*self._logarithms, strict=True)
        return sign_flip([ours - theirs for ours, theirs in pairs])[0]

    @property
    def correlation(self) -> float | None:
        """The correlation of both log perplexities over the seeds; None for fewer than three seeds."""
        return correlation(*self._logarithms)

    @property
    def _logarithms(self) -> tuple[list[float], list[float]]:
        return logarithms(self.row, self.seeds), logarithms(self.baseline, self.seeds)


def compare(lines: list[Row], table: TableSpec, evidence: Evidence) -> dict[Row, Compared]:
    """The comparison of each row with the baseline; none if the suite names no baseline.

    The baseline of a group is its first row of that head. It is not compared, nor is a row that shares no seed with it,
    nor a row with a compatibility switch.

    Holm's correction and the stars are of the t test: a sign-flip test of 8 seeds has no p below 2 / 256, which times
    ten comparisons is never below 0.05. The correction is over all planned comparisons: one that is not there, because
    its row is not tuned, has not run or failed, counts with p = 1. So no star of an incomplete table is there only
    because comparisons are missing.
    """
    of_group = baselines(lines, table.baseline)
    pairs = _pairs(lines, of_group)
    found = {row: difference(row, other, seeds, table.test) for row, other, seeds in pairs}
    tested = {row: each for row, each in found.items() if each.n > 1}
    planned = [row for row in lines if row.compat is None and not row.is_ngram and row.group in of_group]
    others = sum(row is not of_group[row.group] for row in planned)
    untested = others + evidence.rows_without_point - len(tested)
    beyond = _corrected(tested, untested, nats(table.margin))
    without_gaps = {row: replace(each, below=0.0, above=0.0) for row, each in tested.items()}
    at_settings = _corrected(without_gaps, untested, nats(table.margin))
    return {
        row: Compared(
            row=row,
            baseline=other,
            seeds=seeds,
            test=table.test,
            difference=found[row],
            beyond=beyond.get(row),
            at_settings=at_settings.get(row),
            interval=_interval(row, other, seeds, evidence),
        )
        for row, other, seeds in pairs
    }


def _corrected(tested: dict[Row, MeanDifference], untested: int, margin: float) -> dict[Row, Corrected]:
    """Both tests of each comparison, each corrected over all of them and some that cannot be tested yet."""
    different = holm([each.p_settled for each in tested.values()], untested)
    equivalent = holm([equivalence(each, margin) for each in tested.values()], untested)
    return dict(zip(tested, map(Corrected, different, equivalent), strict=True))


def baselines(lines: list[Row], baseline: str | None) -> dict[Group, Row]:
    """Corpus and backbone -> the baseline of this group."""
    found: dict[Group, Row] = {}
    for row in of_head((row for row in lines if row.compat is None), baseline):
        found.setdefault(row.group, row)
    return found


def _pairs(lines: list[Row], baselines: dict[Group, Row]) -> list[tuple[Row, Row, tuple[int, ...]]]:
    """Each row that is compared, the baseline of its group, and their shared seeds."""
    return [
        (row, other, shared)
        for row in lines
        if row.compat is None
        and row is not (other := baselines.get(row.group))
        and other
        and (shared := shared_seeds(row, other))
    ]


def _interval(row: Row, other: Row, seeds: tuple[int, ...], evidence: Evidence) -> Interval | None:
    if len(seeds) != 1:
        return None
    ours, theirs = (evidence.token_scores(each.records[seeds[0]].id) for each in (row, other))
    if ours is None or theirs is None:
        return None
    try:
        return block_interval(differences(theirs, ours).nats)
    except RecordError as misfit:
        evidence.warn(f"{row.records[seeds[0]].id} and {other.records[seeds[0]].id}: {misfit}")
        return None
