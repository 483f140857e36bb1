"""The comparisons of a suite's rows, computed once for all views, and the marks by which views show them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.report.content import EARLIER_MARK, UNCERTIFIED_MARK, Rank
from harness.report.evidence import Evidence
from harness.report.printed_numbers import Reproduction, of_row
from harness.report.ranks import ranks
from harness.report.table_rows import Row, of_head
from harness.report.verdicts import Compared, baselines, compare

LARGEST_NATS = 700  # of a difference shown in percent; e^710 is too large for a float


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The rows of a suite and their comparisons.

    Args:
        compared: the comparison of a row with the baseline; empty if the suite names no baseline.
        ranks: the rank of a row, of its corpus, backbone and device.
        baselines: corpus and backbone -> the row with which the others are compared.
    """

    evidence: Evidence
    lines: list[Row]
    compared: dict[Row, Compared]
    ranks: dict[Row, Rank]
    reproduced: dict[Row, list[Reproduction]]
    baselines: dict[tuple[str, str], Row]

    @property
    def baseline(self) -> str | None:
        """The name of the baseline in headers: that of its rows, or of its class if they have several."""
        given = self.evidence.suite.table.baseline
        names = {row.head for row in of_head(self.lines, given)}
        return names.pop() if len(names) == 1 else given

    def compared_of(self, lines: Sequence[Row]) -> list[Compared]:
        """The comparisons of some rows."""
        return [each for row, each in self.compared.items() if row in lines]


def find(evidence: Evidence) -> Findings:
    """Compare the rows of a suite."""
    lines, table = evidence.rows, evidence.suite.table
    return Findings(
        evidence=evidence,
        lines=lines,
        compared=compare(lines, table, evidence),
        ranks=ranks(lines, table.test, evidence.rows_without_point),
        reproduced={line: of_row(line, evidence.printed, changed=bool(evidence.suite.overrides)) for line in lines},
        baselines=baselines(lines, table.baseline),
    )


def percent(nats: float) -> float:
    """A difference of log perplexity as a change of perplexity: 100 (e^nats - 1)."""
    return 100 * math.expm1(nats) if nats < LARGEST_NATS else math.inf


def certificate_mark(row: Row, rows: Sequence[Row]) -> str:
    """The mark of a row whose certificates say less than those of today; '' if they say as much, and where those of all
    rows say as little: then it is said once.
    """
    if row.uncertified:
        return UNCERTIFIED_MARK
    return EARLIER_MARK if row.certified_earlier and not all_certified_earlier(rows) else ""


def all_certified_earlier(rows: Sequence[Row]) -> bool:
    """Whether all rows with numbers are certified by earlier rules."""
    made = [row for row in rows if row.ok_seeds]
    return bool(made) and all(row.certified_earlier for row in made)
