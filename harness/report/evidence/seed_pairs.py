"""The seeds that two rows share, and the difference of their test perplexities over these."""

import math
from dataclasses import replace
from statistics import fmean

from harness.plan.suite_file import Test
from harness.report.evidence import statistics
from harness.report.evidence.statistics import MeanDifference
from harness.report.evidence.table_rows import Row


def shared_seeds(row: Row, other: Row) -> tuple[int, ...]:
    """The seeds for which both rows have a finished trial with a test perplexity."""
    theirs = scored_seeds(other)
    return tuple(seed for seed in scored_seeds(row) if seed in theirs)


def scored_seeds(row: Row) -> list[int]:
    """The ok seeds with a test perplexity. A forged one that is not above 0 has no logarithm."""
    return [seed for seed in row.ok_seeds if row.records[seed].metrics.get("test_ppl", 0) > 0]


def logarithms(row: Row, seeds: tuple[int, ...]) -> list[float]:
    """The log perplexities of some seeds, in nats per token."""
    return [math.log(value) for value in row.values("test_ppl", seeds)]


def difference(row: Row, other: Row, seeds: tuple[int, ...], test: Test) -> MeanDifference:
    """Compare the log perplexities of shared seeds, row less other. Raises ValueError when there is no seed.

    A tuning gap leaves a mean log perplexity at 0 or above, because no perplexity is below 1.
    """
    ours, theirs = logarithms(row, seeds), logarithms(other, seeds)
    if test == "welch":
        found = statistics.welch(ours, theirs)
    else:
        found = statistics.paired([our - their for our, their in zip(ours, theirs, strict=True)])
    return replace(found, below=min(row.tuning_gap, fmean(ours)), above=min(other.tuning_gap, fmean(theirs)))
