"""The ranks of the rows of a group of the leaderboard: rows that cannot be distinguished share theirs."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.board.groups import Group
from harness.plan.suite_file import TableSpec
from harness.report.convergence import collapsed
from harness.report.ranks import rankable
from harness.report.row_facts import RowFacts
from harness.report.statistics import MeanDifference
from harness.report.verdicts import difference, nats, shared_seeds

MARGIN = TableSpec().margin  # of suites that declare none: smaller differences are of no interest


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """The place of a row in its group.

    Args:
        rank: the first and the last of the ranks that the row shares, from 1, by mean test perplexity; None for a row
            that cannot be ranked.
        difference: of log test perplexity over the seeds shared with the first row, row less that one; None for that
            row itself, where no seed is shared, and for n-grams and rows that are computed with `compat`.
    """

    rank: tuple[int, int] | None
    difference: MeanDifference | None = None


def places(group: Group) -> list[Ranked]:
    """The place of each entry of a group, in order.

    There is no test: records know neither the test that a suite declares nor what tuning leaves open (the space of its
    values), and rows of several suites were not tuned alike. The table of a suite has the tests of its rows.
    """
    rows = [entry.row for entry in group.entries]
    scored = [index for index, row in enumerate(rows) if row.values("test_ppl") and not collapsed(row)]
    ranks = _shared_ranks([index for index in scored if rankable(rows[index])], rows, group)
    return [
        Ranked(rank=ranks.get(index), difference=_difference(row, rows[scored[0]], group) if index in scored else None)
        for index, row in enumerate(rows)
    ]


def _shared_ranks(ranked: Sequence[int], rows: Sequence[RowFacts], group: Group) -> dict[int, tuple[int, int]]:
    """Index of a row -> the first and the last of the ranks that it shares.

    A tie begins at its lowest row, and ends with the last row that cannot be distinguished from that one. The rows
    between these two share the rank, too: no row ranks behind one with a higher perplexity.
    """
    found, begin = {}, 0
    while begin < len(ranked):
        first, *others = (rows[index] for index in ranked[begin:])
        alike = [at for at, row in enumerate(others, start=1) if not _is_behind(_difference(row, first, group))]
        end = begin + max(alike, default=0) + 1
        found |= dict.fromkeys(ranked[begin:end], (begin + 1, end))
        begin = end
    return found


def _is_behind(found: MeanDifference | None) -> bool:
    """Whether a row can be distinguished from a lower one: its interval is above 0 and not within the margin."""
    return found is not None and found.low is not None and found.low > 0 and found.high >= nats(MARGIN)


def _difference(row: RowFacts, first: RowFacts, group: Group) -> MeanDifference | None:
    compares = row is not first and group.compat is None and not row.is_ngram and not first.is_ngram
    seeds = shared_seeds(row, first) if compares else ()
    return difference(row, first, seeds, "paired") if seeds else None
