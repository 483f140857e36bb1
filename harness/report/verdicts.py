"""Heads compared with the controls of their group: which rows can be judged, the tests over shared
seeds, and the words for them.

The controls are the rows that compute a plain softmax of the state (harness/plan/controls.py), and
the baseline. A head is better only if it is better than every control, so that the choice of the
baseline decides nothing.
"""

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
from harness.report.row_facts import RowFacts, of_head
from harness.report.statistics import (
    RANK_SEEDS,
    SIGNIFICANT,
    Interval,
    MeanDifference,
    block_interval,
    correlation,
    holm,
    not_worse,
    sign_flip,
    stars,
)
from harness.report.tokens import differences

Obstacle = Literal[
    "",
    "seeds failed",
    "seeds missing",
    "equal seeds",
    "not certified",
    "unequal tuning",
    "collapsed",
    "not converged",
]
# Obstacles that limit a comparison to its budget, and do not prevent it.
LIMITS = ("collapsed", "not converged")
# What is said where a row and its control have the same limit.
BOTH = {"collapsed": "both collapsed", "not converged": "neither converged"}
# No claim rests on the test split alone, where the two differ by more than the spread of seeds.
DISAGREES = "validation disagrees"
STRONGEST = "strongest control"  # what that of several controls is called
Word = Literal["better", "worse", "equivalent", "undecided", "too few seeds", "control"]
Group = tuple[str, str]  # corpus and backbone
Tests = dict["RowFacts", "tuple[Against, ...]"]  # of a row against each of its controls


class Corrected(NamedTuple):
    """p of a difference, and of equivalence within the margin, corrected for the comparisons of the
    table.
    """

    different: float
    equivalent: float


class Verdict(NamedTuple):
    """How a head compares with the controls.

    Args:
        word: what the tests say; 'control' of a row that is one itself.
        reason: why nothing is decided: 'seeds missing'; '' where nothing but the evidence lacks.
        limits: what limits the word to the chosen settings and to the budget of the suite:
            'coarse tuning', 'neither converged', or both.
    """

    word: Word
    reason: str = ""
    limits: tuple[str, ...] = ()

    def __str__(self) -> str:
        """'better', 'worse, not converged', 'undecided: seeds missing'."""
        if self.reason:
            return f"{self.word}: {self.reason}"
        return ", ".join((self.word, *self.limits))

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reason, or the limits."""
        return (self.reason,) if self.reason else self.limits


def obstacle(row: RowFacts) -> Obstacle:
    """Why a row has no rank and no star; '' where nothing prevents it.

    A planned seed failed, or has no finished trial of the row's code; two seeds have the same
    result, so they are no repetition; a trial could not be certified; the row was tuned otherwise
    than the others; it is collapsed; or more than half of its trials are not converged. The first
    that applies is named.
    """
    if row.failed:
        return "seeds failed"
    if len(row.ok_seeds) < len(row.trials):
        return "seeds missing"
    if row.has_equal_seeds:
        return "equal seeds"
    if any(record.uncertified for record in row.records.values()):
        return "not certified"
    if row.tuning.doubt:
        return "unequal tuning"
    if collapsed(row):
        return "collapsed"
    return "not converged" if mostly_unconverged(row) else ""


def competes(row: RowFacts) -> bool:
    """Whether a row is compared at all: an n-gram is no head, and the "probabilities" of a
    compatibility switch need not sum to 1.
    """
    return not row.is_ngram and row.compat is None


def limit_of(row: Obstacle, control: Obstacle) -> str:
    """What limits a comparison to the budget of the suite: 'not converged', 'control collapsed',
    'both collapsed'.
    """
    if row == control != "":
        return BOTH[row]
    if row or not control:
        return row
    return f"control {control}"


def verdict(
    found: MeanDifference,
    beyond: Corrected,
    at_settings: Corrected,
    limit: str,
) -> Verdict:
    """How a row compares with its control.

    Equivalent: the difference is within the margin (two one-sided tests), even if it is not 0.
    Otherwise better or worse if there is a difference, limited to the chosen settings ('coarse
    tuning') if it is only shown there. Otherwise undecided: because of coarse tuning, if
    equivalence is shown at the chosen settings. Rows that have collapsed or not converged are
    compared at the budget that they had.
    Args:
        beyond: the tests beyond what tuning leaves open.
    """
    limits = (limit,) if limit else ()
    if beyond.equivalent < SIGNIFICANT:
        return Verdict("equivalent", limits=limits)
    if at_settings.equivalent < SIGNIFICANT <= beyond.different:
        return Verdict("undecided", COARSE)
    if at_settings.different < SIGNIFICANT:
        if beyond.different >= SIGNIFICANT:
            limits = (COARSE, *limits)
        return Verdict("better" if found.mean < 0 else "worse", limits=limits)
    return Verdict("undecided", limits=limits)


def nats(margin: float) -> float:
    """A relative difference of perplexity in nats: log(1 + margin)."""
    return math.log1p(margin)


def shared_seeds(row: RowFacts, other: RowFacts, metric: str = "test_ppl") -> tuple[int, ...]:
    """The seeds for which both rows have a finished trial with a perplexity."""
    theirs = scored_seeds(other, metric)
    return tuple(seed for seed in scored_seeds(row, metric) if seed in theirs)


def scored_seeds(row: RowFacts, metric: str = "test_ppl") -> list[int]:
    """The ok seeds with a perplexity. A forged one that is not above 0 has no logarithm."""
    return [record.spec.seed for record in row.ok if record.metrics.get(metric, 0) > 0]


def logarithms(row: RowFacts, seeds: tuple[int, ...], metric: str = "test_ppl") -> list[float]:
    """The log perplexities of some seeds, in nats per token."""
    return [math.log(value) for value in row.values(metric, seeds)]


def difference(
    row: RowFacts,
    other: RowFacts,
    seeds: tuple[int, ...],
    test: Test,
    metric: str = "test_ppl",
) -> MeanDifference:
    """Compare the log perplexities of shared seeds, row less other.

    Raises: ValueError when there is no seed.
    """
    ours, theirs = logarithms(row, seeds, metric), logarithms(other, seeds, metric)
    if test == "welch":
        found = statistics.welch(ours, theirs)
    else:
        pairs = zip(ours, theirs, strict=True)
        found = statistics.paired([our - their for our, their in pairs])
    # At most to a mean of 0: no perplexity is below 1, also where a gap is not known and infinite.
    below, above = min(row.tuning.gap, fmean(ours)), min(other.tuning.gap, fmean(theirs))
    return replace(found, below=below, above=above)


class Against(NamedTuple):
    """A row compared with one control: the difference of log perplexity over shared seeds, row less
    control.
    """

    control: RowFacts
    seeds: tuple[int, ...]
    difference: MeanDifference


def splits_disagree(
    row: RowFacts,
    other: RowFacts,
    test: Test,
) -> tuple[MeanDifference, MeanDifference] | None:
    """The differences of test and of validation, row less other, if one is above 0 and the other
    below, and the 95 % interval of neither includes 0; else None.
    """
    found = []
    for metric in ("test_ppl", "valid_ppl"):
        seeds = shared_seeds(row, other, metric)
        if len(seeds) < 2:
            return None
        found.append(difference(row, other, seeds, test, metric))
    below, above = sorted(found, key=lambda each: each.mean)
    return tuple(found) if below.high < 0 < above.low else None


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A row compared with the controls of its group, by test perplexity.

    Args:
        is_control: whether it is one of the controls. Then it is compared with the strongest only,
            and not judged.
        against: each control that shares a seed with the row, the strongest first.
        missing: why the row cannot be judged, of a control that is not in `against`; '' for
            nothing.
        beyond: p of a difference from the strongest control (`_p_values`), and of equivalence,
            beyond what tuning leaves open, each corrected by Holm's method over all heads; None for
            one seed and for a control.
        interval: of the mean difference in nats, row less the strongest control, over blocks of the
            test split; only for a single shared seed, if both trials stored their token scores.
    """

    row: RowFacts
    is_control: bool
    against: tuple[Against, ...]
    missing: str
    test: Test
    beyond: Corrected | None
    at_settings: Corrected | None
    interval: Interval | None

    @property
    def control(self) -> RowFacts:
        """The strongest control, the one with the lowest mean."""
        return self.against[0].control

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds for which the row and the strongest control have a finished trial."""
        return self.against[0].seeds

    @property
    def difference(self) -> MeanDifference:
        """Of log perplexity over these seeds, row less the strongest control."""
        return self.against[0].difference

    @cached_property
    def judged(self) -> Verdict:
        """How the row compares with the controls."""
        if self.is_control:
            return Verdict("control")
        if min(each.difference.n for each in self.against) < RANK_SEEDS:
            return Verdict("too few seeds")
        of_row, of_control = obstacle(self.row), obstacle(self.control)
        of_controls = [obstacle(each.control) for each in self.against]
        for why in (of_row, self.missing, *of_controls):
            if why and why not in LIMITS:
                return Verdict("undecided", why)
        limit = limit_of(of_row, of_control)
        found = verdict(self.difference, self.beyond, self.at_settings, limit)
        if found.word in ("better", "worse") and splits_disagree(self.row, self.control, self.test):
            return Verdict("undecided", DISAGREES)
        return found

    @property
    def verdict(self) -> str:
        """The same as text."""
        return str(self.judged)

    @property
    def p_holm(self) -> float | None:
        """The corrected p of a difference, beyond what tuning leaves open; None for one seed and
        for a control.
        """
        return None if self.beyond is None else self.beyond.different

    @property
    def stars(self) -> str:
        """The stars of p_holm; '' where the row or a control cannot be judged."""
        if self.judged.word in ("control", "too few seeds") or self.judged.reason == DISAGREES:
            return ""
        if obstacle(self.row) or obstacle(self.control) or self.missing:
            return ""
        for each in self.against:
            # A weaker control that has not converged limits nothing: the strongest one decides.
            if obstacle(each.control) not in ("", *LIMITS):
                return ""
        return stars(self.p_holm, self.difference.n)

    @property
    def p_sign_flip(self) -> float | None:
        """p of the sign-flip test of the pairs, not corrected; None for one seed, and where the
        test is Welch's.
        """
        if self.test == "welch" or len(self.seeds) < 2:
            return None
        pairs = zip(*self._logarithms, strict=True)
        return sign_flip([ours - theirs for ours, theirs in pairs])[0]

    @property
    def correlation(self) -> float | None:
        """The correlation of both log perplexities over the seeds; None for fewer than three."""
        return correlation(*self._logarithms)

    @property
    def _logarithms(self) -> tuple[list[float], list[float]]:
        return logarithms(self.row, self.seeds), logarithms(self.control, self.seeds)


def compare(
    lines: list[RowFacts],
    table: TableSpec,
    evidence: Evidence,
) -> dict[RowFacts, Compared]:
    """The comparison of each row with the controls of its group; none if the suite names no
    baseline, or the group has no row of it.

    The strongest control is not compared, nor is a row that shares no seed with it, nor a row with
    a compatibility switch. Where all rows of a group are controls, they are compared with the
    baseline as if they were none.

    Holm's correction and the stars are of the t test: a sign-flip test of 8 seeds has no p below 2
    / 256, which times ten comparisons is never below 0.05. The correction is over all planned
    heads: one that is not there, because it is not tuned, has not run or failed, counts with p = 1.
    So no star of an incomplete table is there only because comparisons are missing.
    """
    of_group = controls(lines, table.baseline)
    against, planned = {}, 0
    for row in lines:
        known = of_group.get(row.group, ())
        if not competes(row) or not known or row is known[0]:
            continue
        planned += row not in known
        of_row = known if row not in known else known[:1]
        found = []
        for control in of_row:
            if seeds := shared_seeds(row, control):
                found.append(Against(control, seeds, difference(row, control, seeds, table.test)))
        if found and found[0].control is known[0]:
            against[row] = tuple(found)
    tested = {}
    for row, each in against.items():
        is_control = row in of_group[row.group]
        if not is_control and min(one.difference.n for one in each) > 1:
            tested[row] = each
    # What is planned counts before it has run: else first results would be corrected too little.
    untested = planned + evidence.rows_without_point - len(tested)
    margin = nats(table.margin)
    beyond = _corrected(tested, untested, margin)
    at_settings = _corrected(_without_gaps(tested), untested, margin)
    compared = {}
    for row, found in against.items():
        known = of_group[row.group]
        is_control = row in known
        missing = ""
        if not is_control and len(found) < len(known):
            missing = "seeds missing"
        elif row.group in evidence.untuned_controls:
            missing = "a control is not tuned"
        compared[row] = Compared(
            row=row,
            is_control=is_control,
            against=found,
            missing=missing,
            test=table.test,
            beyond=beyond.get(row),
            at_settings=at_settings.get(row),
            interval=_interval(row, found[0].control, found[0].seeds, evidence),
        )
    return compared


def _corrected(
    tested: Tests,
    untested: int,
    margin: float,
) -> dict[RowFacts, Corrected]:
    """Both tests of each head, corrected over all of them and some that cannot be tested yet."""
    p_values = []
    for against in tested.values():
        of_row = [each.difference for each in against]
        p_values.append(_p_values(of_row, margin))
    different = holm([each.different for each in p_values], untested)
    equivalent = holm([each.equivalent for each in p_values], untested)
    return dict(zip(tested, map(Corrected, different, equivalent), strict=True))


def _p_values(found: list[MeanDifference], margin: float) -> Corrected:
    """p of a head against all controls, before the correction for other heads.

    Better than every control, or not worse than any of them by the margin: the largest p counts,
    without a correction (an intersection-union test). Worse than the strongest control, or not
    better than it by the margin: p times the number of controls, because the results themselves
    show which is the strongest.
    Source: Berger (1982), Multiparameter hypothesis testing and acceptance sampling, Technometrics
        24.
    """
    strongest = max(found, key=lambda each: each.mean)
    if strongest.mean < 0:
        different = max(each.p_settled for each in found)
    else:
        different = min(1.0, len(found) * strongest.p_settled)
    not_below = max(not_worse(each, margin) for each in found)
    not_above = min(1.0, len(found) * not_worse(strongest.reverse, margin))
    return Corrected(different, max(not_below, not_above))


def _without_gaps(tested: Tests) -> Tests:
    found = {}
    for row, against in tested.items():
        found[row] = ()
        for each in against:
            without = replace(each.difference, below=0.0, above=0.0)
            found[row] += (each._replace(difference=without),)
    return found


def controls(lines: list[RowFacts], baseline: str | None) -> dict[Group, tuple[RowFacts, ...]]:
    """Corpus and backbone -> the rows with which the others are compared, the strongest first: the
    controls and the baseline, or the baseline alone where all other rows are controls. The
    strongest has the lowest mean log perplexity over its own seeds.
    """
    found = {}
    for group, first in baselines(lines, baseline).items():
        rows = [row for row in lines if row.group == group and competes(row)]
        known = [row for row in rows if row.is_control or row is first]
        if len(known) == len(rows):
            known = [first]
        # Those without a result last: so a row is compared with the ones that there are.
        found[group] = tuple(sorted(known, key=lambda row: (not scored_seeds(row), _mean(row))))
    return found


def _mean(row: RowFacts) -> float:
    seeds = tuple(scored_seeds(row))
    return fmean(logarithms(row, seeds)) if seeds else math.inf


def baselines(lines: list[RowFacts], baseline: str | None) -> dict[Group, RowFacts]:
    """Corpus and backbone -> the baseline of this group."""
    found: dict[Group, RowFacts] = {}
    comparable = [row for row in lines if row.compat is None]
    for row in of_head(comparable, baseline):
        found.setdefault(row.group, row)
    return found


def _interval(
    row: RowFacts,
    other: RowFacts,
    seeds: tuple[int, ...],
    evidence: Evidence,
) -> Interval | None:
    if len(seeds) != 1:
        return None
    one, two = row.records[seeds[0]].id, other.records[seeds[0]].id
    ours, theirs = evidence.token_scores(one), evidence.token_scores(two)
    if ours is None or theirs is None:
        return None
    try:
        return block_interval(differences(theirs, ours).nats)
    except RecordError as misfit:
        evidence.warn(f"{one} and {two}: {misfit}")
        return None
