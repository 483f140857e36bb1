"""The comparisons of a suite's rows, computed once for all views, and the marks by which views show them."""

import math
from dataclasses import dataclass
from typing import Literal

from harness.report.evidence.comparisons import Compared, compare, ties
from harness.report.evidence.gather import Evidence
from harness.report.evidence.reproduced import Reproduction, of_row
from harness.report.evidence.table_rows import Row

COMPAT_MARK = "†"  # computed as a published code does
SHARED_MARK = "‡"  # a time measured while other work ran
TIE_MARK = "≈"  # not distinguishable from the best
BLOCKS_MARK = "§"  # an interval over blocks of text, not over seeds
UNCERTIFIED_MARK = "°"  # of records without a certificate
LARGEST_NATS = 700  # of a difference shown in percent; e^710 is too large for a float


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The rows of a suite and their comparisons.

    Args:
        lines: all rows of the suite.
        compared: index of a row -> its comparison with the baseline; empty if the suite names no baseline.
        ranks: index of a row -> 'best' or 'tie', of its corpus, backbone and device.
        tied: indices of the ties, and of the best rows that they tie with.
        reproduced: for each row, the printed numbers that have a tolerance.
    """

    evidence: Evidence
    lines: list[Row]
    compared: dict[int, Compared]
    ranks: dict[int, Literal["best", "tie"]]
    tied: frozenset[int]
    reproduced: list[list[Reproduction]]


def find(evidence: Evidence) -> Findings:
    """Compare the rows of a suite."""
    lines = evidence.rows
    baseline = evidence.suite.table.baseline
    ranks = ties(lines, evidence)
    contested = {_place(lines[index]) for index, rank in ranks.items() if rank == "tie"}
    return Findings(
        evidence=evidence,
        lines=lines,
        compared={} if baseline is None else compare(lines, baseline, evidence),
        ranks=ranks,
        tied=frozenset(index for index in ranks if _place(lines[index]) in contested),
        reproduced=[of_row(line, evidence) for line in lines],
    )


def percent(nats: float) -> float:
    """A difference of log perplexity as a change of perplexity: 100 (e^nats - 1)."""
    return 100 * math.expm1(nats) if nats < LARGEST_NATS else math.inf


def _place(row: Row) -> tuple[tuple[str, str], frozenset[str]]:
    return row.group, frozenset(row.records[seed].environment.device for seed in row.ok_seeds)
