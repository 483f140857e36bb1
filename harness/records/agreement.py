"""Whether two records of one trial have the same results."""

from collections.abc import Iterable

from harness.records.metrics import METRICS
from harness.records.record import TrialRecord


def agree(one: TrialRecord, other: TrialRecord) -> bool:
    """Whether two records of a trial have the same status, weights and metrics. Costs (times, memory) may differ."""
    shared = [name for name in one.metrics if name in other.metrics and not _is_cost(name)]
    same = all(one.metrics[name] == other.metrics[name] for name in shared)
    return same and (one.status, one.weights_sha256) == (other.status, other.weights_sha256)


def contradicting(found: Iterable[TrialRecord]) -> tuple[TrialRecord, TrialRecord] | None:
    """Two records of one trial with different results: one that is ok, and another one that is ok or invalid.

    Returns None if there are no such two. A trial that failed in another way has no results.
    """
    judged = [record for record in found if record.status in ("ok", "invalid")]
    first = next((record for record in judged if record.status == "ok"), None)
    return next(((first, other) for other in judged if first is not None and not agree(first, other)), None)


def _is_cost(metric: str) -> bool:
    return METRICS[metric].kind == "cost"
