"""The rank of each row of a group, and its difference to the first row."""

from dataclasses import dataclass

from harness.report.evidence.convergence import collapsed
from harness.report.evidence.ranks import rankable
from harness.report.evidence.seed_pairs import difference, shared_seeds
from harness.report.evidence.statistics import MeanDifference
from harness.report.evidence.table_rows import Row
from harness.report.leaderboard.groups import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a row in its group.

    Args:
        rank: from 1, by mean validation perplexity, of the rows that can be ranked; None for the others.
        difference: of log test perplexity over the seeds shared with the first row, row less that one; None for that
            row itself, where no seed is shared, and for n-grams and rows that are computed with `compat`.
    """

    rank: int | None
    difference: MeanDifference | None = None


def places(group: Group) -> list[Place]:
    """The place of each entry of a group, in order.

    There is no test: records know neither the test that a suite declares nor what tuning leaves open (the space of its
    values), and rows of several suites were not tuned alike. The table of a suite has the tests of its rows.
    """
    rows = [entry.row for entry in group.entries]
    scored = [index for index, row in enumerate(rows) if row.values("valid_ppl") and not collapsed(row)]
    ranks = {index: rank for rank, index in enumerate(filter(lambda index: rankable(rows[index]), scored), start=1)}
    return [
        Place(rank=ranks.get(index), difference=_difference(row, rows[scored[0]], group) if index in scored else None)
        for index, row in enumerate(rows)
    ]


def _difference(row: Row, first: Row, group: Group) -> MeanDifference | None:
    compares = row is not first and group.compat is None and not row.is_ngram and not first.is_ngram
    seeds = shared_seeds(row, first) if compares else ()
    return difference(row, first, seeds, "paired") if seeds else None
