"""The comparisons of a suite's rows, computed once for all views, and the marks by which views show them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.report.content import UNCERTIFIED_MARK, Rank
from harness.report.evidence import Evidence
from harness.report.printed_numbers import Reproduction, of_row
from harness.report.ranks import ranks
from harness.report.row_facts import RowFacts, of_head
from harness.report.verdicts import STRONGEST, Compared, Group, baselines, compare, controls

LARGEST_NATS = 700  # of a difference shown in percent; e^710 is too large for a float


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The rows of a suite and their comparisons.

    Args:
        compared: the comparison of a row with the controls; empty if the suite names no baseline.
        ranks: the rank of a row, of its corpus, backbone and device.
        baselines: corpus and backbone -> the row of the baseline, to which times are related.
        controls: corpus and backbone -> the rows with which heads are compared, the strongest first.
    """

    evidence: Evidence
    rows: list[RowFacts]
    compared: dict[RowFacts, Compared]
    ranks: dict[RowFacts, Rank]
    reproduced: dict[RowFacts, list[Reproduction]]
    baselines: dict[Group, RowFacts]
    controls: dict[Group, tuple[RowFacts, ...]]

    @property
    def baseline(self) -> str | None:
        """The name of the baseline in headers: that of its rows, or of its class if they have several."""
        given = self.evidence.suite.table.baseline
        names = {row.head for row in of_head(self.rows, given)}
        return names.pop() if len(names) == 1 else given

    @property
    def reference(self) -> str | None:
        """What heads are compared with, in headers: the name of the strongest control, if it is one in all groups; None
        without a baseline.
        """
        if self.baseline is None:
            return None
        names = {known[0].head for known in self.controls.values()}
        return names.pop() if len(names) == 1 else STRONGEST if names else self.baseline

    def role(self, row: RowFacts) -> str:
        """'baseline' or 'strongest control', if the other rows of its group are compared with it; else ''."""
        known = self.controls.get(row.group, ())
        if not known or row is not known[0]:
            return ""
        return "baseline" if len(known) == 1 else STRONGEST

    def compared_of(self, rows: Sequence[RowFacts]) -> list[Compared]:
        """The comparisons of some rows."""
        return [each for row, each in self.compared.items() if row in rows]


def find(evidence: Evidence) -> Findings:
    """Compare the rows of a suite."""
    rows, table = evidence.rows, evidence.suite.table
    return Findings(
        evidence=evidence,
        rows=rows,
        compared=compare(rows, table, evidence),
        ranks=ranks(rows, table.test, table.margin, evidence.rows_without_point),
        reproduced={row: of_row(row, evidence.printed, changed=bool(evidence.suite.overrides)) for row in rows},
        baselines=baselines(rows, table.baseline),
        controls=controls(rows, table.baseline),
    )


def percent(nats: float) -> float:
    """A difference of log perplexity as a change of perplexity: 100 (e^nats - 1)."""
    return 100 * math.expm1(nats) if nats < LARGEST_NATS else math.inf


def certificate_mark(row: RowFacts, rows: Sequence[RowFacts]) -> str:
    """The mark of a row whose certificates say less than those of today; '' if they say as much, and where those of all
    rows say as little: then it is said once.
    """
    less = row.uncertified or (row.certified_earlier and not all_certified_earlier(rows))
    return UNCERTIFIED_MARK if less else ""


def all_certified_earlier(rows: Sequence[RowFacts]) -> bool:
    """Whether all rows with numbers are certified by earlier rules."""
    made = [row for row in rows if row.ok_seeds]
    return bool(made) and all(row.certified_earlier for row in made)
