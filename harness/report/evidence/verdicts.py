"""The words by which tables say how two rows compare, and which rows can be judged at all."""

import math
from typing import Literal, NamedTuple

from harness.report.evidence.convergence import collapsed, mostly_unconverged
from harness.report.evidence.multiple import RANK_SEEDS, SIGNIFICANT
from harness.report.evidence.statistics import MeanDifference
from harness.report.evidence.table_rows import Row

Obstacle = Literal[
    "", "seeds failed", "seeds missing", "equal seeds", "not certified", "unequal tuning", "collapsed", "not converged"
]
LIMITS = ("collapsed", "not converged")  # obstacles that limit a comparison to its budget, and do not prevent it
Word = Literal["better", "worse", "equivalent", "undecided", "too few seeds"]
Rank = Literal["best", "tie", "behind"]


class Corrected(NamedTuple):
    """p of a difference, and of equivalence within the margin, corrected for the comparisons of the table."""

    different: float
    equivalent: float


class Verdict(NamedTuple):
    """How a row compares with the baseline.

    Args:
        word: what the tests say.
        why: the reason why they say nothing, 'seeds missing'; or what limits the word to the budget of the suite, 'both
            not converged'. '' for neither.
    """

    word: Word
    why: str = ""

    def __str__(self) -> str:
        """'better', 'worse, not converged', 'undecided: seeds missing'."""
        if not self.why:
            return self.word
        return f"{self.word}{', ' if self.why.endswith(LIMITS) else ': '}{self.why}"


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
    if any(record.not_certified for record in row.records.values()):  # guard: uncertified-is-unranked
        return "not certified"
    if row.tuning_doubt:
        return "unequal tuning"
    if collapsed(row):
        return "collapsed"
    return "not converged" if mostly_unconverged(row) else ""


def verdict(
    found: MeanDifference, beyond: Corrected | None, at_settings: Corrected | None, row: Obstacle, baseline: Obstacle
) -> Verdict:
    """How a row compares with the baseline.

    Equivalent: the difference is within the margin (two one-sided tests), even if it is not 0. Otherwise better or
    worse if there is a difference. Otherwise undecided: because of coarse tuning, if one of the two is shown at the
    chosen settings. Rows that have collapsed or not converged are compared at the budget that they had.
    Args:
        beyond: the tests beyond what tuning leaves open; None for one seed.
        at_settings: those at the chosen settings.
        row, baseline: the obstacles of both.
    """
    if found.n < RANK_SEEDS:
        return Verdict("too few seeds")
    for each in (row, baseline):
        if each and each not in LIMITS:
            return Verdict("undecided", each)
    limit = f"both {row}" if row == baseline != "" else row or (f"baseline {baseline}" if baseline else "")
    if beyond.equivalent < SIGNIFICANT:
        return Verdict("equivalent", limit)
    if beyond.different < SIGNIFICANT:
        return Verdict("better" if found.mean < 0 else "worse", limit)
    return Verdict("undecided", "coarse tuning" if min(at_settings) < SIGNIFICANT else limit)


def nats(margin: float) -> float:
    """A relative difference of perplexity in nats: log(1 + margin)."""
    return math.log1p(margin)
