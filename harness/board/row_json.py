"""What JSON says of a row, in the leaderboard and on the site: unrounded, with the names of METRICS."""

from collections import Counter
from typing import Any

from harness.plan.names import shown
from harness.plan.specs import TrialSpec
from harness.records.metrics import METRICS
from harness.records.sidecars import Timing
from harness.report import convergence
from harness.report.columns import measured
from harness.report.row_facts import OTHER_CODE, REGISTRIES, RowFacts, time_of
from harness.report.statistics import MeanDifference


def row_json(row: RowFacts, timings: dict[str, Timing]) -> dict[str, Any]:
    """A row without its comparisons. What is not known is None.

    Args:
        timings: of exclusive passes, by trial id.
    """
    cells = {each.name: measured(row, each, timings) for each in METRICS.values() if each.leaderboard}
    time = time_of(row, "train_ms_per_batch", timings)
    return {
        **{kind: _component(row.spec, kind, getattr(row, kind)) for kind in REGISTRIES},
        "tuned": dict(row.tuned),
        **{name: cell.value for name, cell in cells.items()},
        "sd": cells["test_ppl"].spread,
        "seeds": row.ok_seeds,
        "state": row.state,
        "statuses": dict(Counter(record.status for record in row.records.values())),
        "collapsed": convergence.collapsed(row),
        "not_converged": convergence.unconverged_seeds(row),
        "certified": bool(row.ok) and not row.uncertified,
        "outdated": sorted(each.seed for each in row.trials if each.outdated),
        "left_out": sorted(each.seed for each in row.trials if each.status == OTHER_CODE),
        "device": time and time.device,
        "exclusive": time and time.exclusive,
        "trials": list(row.ids),
    }


def _component(spec: TrialSpec, kind: str, label: str) -> dict[str, Any]:
    return {**shown(getattr(spec, kind), REGISTRIES[kind]).model_dump(), "label": label}


def difference_json(found: MeanDifference | None) -> dict[str, Any] | None:
    """A difference of log test perplexity: its mean and the interval in nats, and the number of pairs."""
    return found and {"nats": found.mean, "low": found.low, "high": found.high, "pairs": found.n}
