"""One trial that was trained more than once, on several machines: a result and its replicates.

`replicates.json` beside a record holds the other records of its trial that `harness import` found. Two records of one
trial are:

    equal       the same status, weights and metrics, bit for bit; times and memory may differ
    rounded     other bits, with a test perplexity within `allowed`
    different   anything else: one of them is wrong, or was made by other code
    unknown     one of them ended for a reason of its machine (error, oom, timeout), so it has no result
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from harness.plan.suite_file import DynamicSpec
from harness.records.metrics import metrics_of
from harness.records.record import TrialRecord

Relation = Literal["equal", "rounded", "different", "unknown"]

SCHEMA = 1
AGREEMENT = 1e-5  # relative, of perplexities: float32 rounds the nats of each token by about 1e-7
MIN_SEEDS = 2  # other seeds needed to estimate a spread
LEAST, DEFAULT, MOST = 0.01, 0.05, 0.10  # allowed difference between the log-perplexities of two trainings
NO_RESULT = ("error", "oom", "timeout")


class Replicates(BaseModel):
    """The content of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    schema_version: int = SCHEMA
    trial: str
    records: tuple[TrialRecord, ...]


class Seeds:
    """The test perplexities of the seeds of each row: of some records, what two trainings of one of them may differ by.

    Two trainings of one trial that round differently drift apart, but not farther than two seeds do. The spread is
    estimated from the other seeds of the row, because the record itself is in question. It is kept within LEAST and
    MOST, because few seeds give a poor estimate and the other records may be false too.
    """

    def __init__(self, records: Iterable[TrialRecord] = ()):
        self._log_ppl: dict[str, dict[int, float]] = {}
        for record in records:
            self.add(record)

    def add(self, record: TrialRecord) -> None:
        """Count a record, if it is ok and the first of its seed."""
        if record.status == "ok":
            of_row = self._log_ppl.setdefault(_row(record), {})
            of_row.setdefault(record.spec.seed, math.log(record.metrics["test_ppl"]))

    def allowed(self, record: TrialRecord) -> tuple[float, str]:
        """The allowed difference between the log-perplexities of two trainings of a trial, and its reason: twice the
        standard deviation of the difference between two seeds, within bounds.
        """
        of_row = self._log_ppl.get(_row(record), {})
        others = [value for seed, value in of_row.items() if seed != record.spec.seed]
        if len(others) < MIN_SEEDS:
            why = f"there are not {MIN_SEEDS} other seeds to estimate a spread from"
            return DEFAULT, f"{DEFAULT:.0%} allowed, because {why}"
        value = min(max(2 * math.sqrt(2) * statistics.stdev(others), LEAST), MOST)
        return value, f"{100 * value:.1f} % allowed by the spread of {len(others)} other seeds"

    def relation(self, one: TrialRecord, other: TrialRecord) -> Relation:
        """How two records of a trial are related."""
        if one.status in NO_RESULT or other.status in NO_RESULT:
            return "unknown"
        if one.status != other.status:
            return "different"
        same_weights = one.weights_sha256 == other.weights_sha256
        if same_weights and not difference(one, other, 0.0, exact=True):
            return "equal"
        allowed = AGREEMENT if same_weights else self.allowed(one)[0]
        return "different" if difference(one, other, allowed) else "rounded"

    def contradiction(self, found: Sequence[TrialRecord]) -> tuple[TrialRecord, TrialRecord] | None:
        """Two records of one trial with different results: one that is ok, and another one that is ok or invalid; None
        if there are no such two. A training that diverged on one machine only takes no result from the other.
        """
        judged = [record for record in found if record.status in ("ok", "invalid")]
        first = next((record for record in judged if record.status == "ok"), None)
        for other in judged if first is not None else ():
            if self.relation(first, other) == "different":
                return first, other
        return None


def result(record: TrialRecord) -> str:
    """The result of a record for messages: '70.91', or 'diverged'."""
    return f"{record.metrics['test_ppl']:.2f}" if record.status == "ok" else record.status


def _row(record: TrialRecord) -> str:
    """What the records of one row of a table have in common: everything except the seed."""
    return record.spec.model_copy(update={"id": "", "seed": 0}).model_dump_json()


def difference(there: TrialRecord, here: TrialRecord, allowed: float, *, exact: bool = False) -> str:
    """The first metric in which two records of a trial differ, as a sentence; '' if there is none. Costs (times,
    memory) may differ, and so may perplexities under dynamic evaluation with other settings, which are in no trial's
    id.

    Args:
        allowed: difference between the logarithms of perplexities.
        exact: no bit may differ.
    """
    same_weights = here.weights_sha256 == there.weights_sha256
    same_settings = DynamicSpec.of_metrics(there.metrics) == DynamicSpec.of_metrics(here.metrics)
    for metric in metrics_of("count", "setting", "score"):
        was, now = (record.metrics.get(metric.name) for record in (there, here))
        if metric.name == "best_epoch" and not same_weights:
            continue  # two trainings that drift apart may have different best epochs
        if metric.name.startswith("dynamic_") and not same_settings:
            continue
        if was is None or now is None or was == now:
            continue
        margin = 0.0 if exact or metric.kind != "score" else AGREEMENT if metric.of_text else allowed
        if not (min(was, now) > 0 and abs(math.log(now / was)) <= margin):
            return f"{metric.name} is {now:,.6g}, the record has {was:,.6g}"
    return ""
