"""The rank of each row of a group, and its difference to the best row, with its test."""

from dataclasses import dataclass
from itertools import combinations

from harness.report.evidence.convergence import collapsed
from harness.report.evidence.multiple import holm, stars
from harness.report.evidence.ranks import rankable
from harness.report.evidence.seed_pairs import difference, shared_seeds
from harness.report.evidence.statistics import MeanDifference
from harness.report.evidence.table_rows import Row
from harness.report.evidence.verdicts import obstacle
from harness.report.leaderboard.groups import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a row in its group.

    Args:
        rank: from 1, by mean validation perplexity, of the rows that can be ranked; None for the others.
        difference: of log test perplexity over the seeds shared with the first row, row less that one, with the
            paired t test; None for that row itself, and where no seed is shared.
        p_holm: p of this test, corrected by Holm's method over all pairs of rows of the group, because any of them
            could have been the best one. None for fewer than two shared seeds.
        stars: of p_holm; '' where a row cannot be judged, and for fewer than six seeds.
    """

    rank: int | None
    difference: MeanDifference | None = None
    p_holm: float | None = None
    stars: str = ""


def places(group: Group) -> list[Place]:
    """The place of each entry of a group, in order. Rows that are computed with `compat` have no tests, nor have
    n-grams.
    """
    rows = [entry.row for entry in group.entries]
    scored = [index for index, row in enumerate(rows) if row.values("valid_ppl") and not collapsed(row)]
    ranks = {index: rank for rank, index in enumerate(filter(lambda index: rankable(rows[index]), scored), start=1)}
    tested = [index for index in scored if group.compat is None and not rows[index].is_ngram]
    found = {
        (a, b): difference(rows[b], rows[a], seeds, "paired")
        for a, b in combinations(tested, 2)
        if (seeds := shared_seeds(rows[a], rows[b]))
    }
    several = {pair: each for pair, each in found.items() if each.n > 1}
    adjusted = dict(zip(several, holm([each.p_t for each in several.values()]), strict=True))
    best = scored[0] if scored else None
    return [
        _place(ranks.get(index), rows[best], row, found.get((best, index)), adjusted.get((best, index)))
        if index in scored
        else Place(rank=None)
        for index, row in enumerate(rows)
    ]


def _place(rank: int | None, best: Row, row: Row, found: MeanDifference | None, p_holm: float | None) -> Place:
    judged = p_holm is not None and not obstacle(row) and not obstacle(best)
    return Place(rank=rank, difference=found, p_holm=p_holm, stars=stars(p_holm, found.n) if judged else "")
