"""The verdict on a record: compares its numbers with those measured on this machine.

identical: the same weights and the same numbers, bit for bit.
plausible: other bits, because the processor, a version or the number of threads is another, and numbers within a limit.
different: anything else.
"""

import math
import statistics
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.printable import sentence
from harness.records.metrics import metrics_of
from harness.records.record import CurvePoint, Environment, TrialRecord
from harness.records.sidecars import AGREEMENT, TokenScores
from harness.verification.measured import Measured
from harness.verification.stored import StoredRecord

Outcome = Literal["identical", "plausible", "different", "not checked"]

# Nats of one token, with equal weights: float32 sums of several hundred products are rounded differently.
TOKEN_AGREEMENT = 1e-3

CURVE_AGREEMENT = 1e-4  # relative, of the numbers of an epoch when the final weights are equal

MIN_SEEDS = 2  # other seeds needed to estimate a spread
LEAST, DEFAULT, MOST = 0.01, 0.05, 0.10  # allowed difference between the log-perplexities of two trainings
FACTS = {  # fields of an environment that the bits of a result may depend on
    "device": "processor or GPU",
    "threads": "threads",
    "python": "Python",
    "torch": "torch",
    "harness": "harness",
    "commit": "commit",
    "matmul_route": "route of float32 products",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The allowed difference between two trainings of one trial, in log-perplexity, and its reason."""

    value: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result for one record.

    Args:
        name: the name of the record, as in harness.verification.stored.StoredRecord.
        outcome: identical, plausible, different or not checked.
        sentence: the reason for the outcome.
        trial: head, backbone, corpus and seed; '' when the record cannot be read.
        record_ppl: the test perplexity in the record.
        ppl: the test perplexity measured here.
        limit: the allowed difference between their logarithms.
        differs: differences between the two environments, such as 'torch 2.12 there, 2.13 here'.
        notes: what could not be checked.
    """

    name: str
    outcome: Outcome
    sentence: str
    trial: str = ""
    record_ppl: float | None = None
    ppl: float | None = None
    limit: float | None = None
    differs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether the record was confirmed."""
        return self.outcome in ("identical", "plausible")

    def __str__(self) -> str:
        about = f" ({self.trial})" if self.trial else ""
        where = f"; differences: {', '.join(self.differs)}" if self.differs else ""
        notes = "".join(f"; {note}" for note in self.notes)
        return sentence(f"{self.name}{about}: {self.outcome}: {self.sentence}{where}{notes}")


def compare(given: StoredRecord, found: Measured) -> Verdict:
    """The verdict on a record, from what was measured on this machine."""
    record = given.record
    limit = _limit(record, given.others)
    same_weights = found.weights is not None and found.weights == record.weights_sha256
    differs = differences(record.environment, found.environment)
    fault = _fault(given, found, AGREEMENT if same_weights else limit.value)  # guard: verify-exact-perplexity never
    how = "after a second training here" if found.trained else "with its weights, evaluated here"
    ppl, recorded = found.metrics.get("test_ppl"), record.metrics.get("test_ppl")
    if fault:
        outcome, reason = "different", f"{how}: {fault}"
    elif same_weights and _equal_bits(given, found):
        outcome, reason = "identical", f"{how}: the same weights, test perplexity {ppl:.2f} to the last bit"
    elif same_weights:
        outcome, reason = "plausible", f"{how}: the same weights, test perplexity {ppl:.4f}, rounded differently"
    else:
        apart = f"{100 * (ppl / recorded - 1):+.2f} %"
        reason = f"{how}: test perplexity {ppl:.2f}, the record has {recorded:.2f} ({apart}; {limit.reason})"
        outcome, reason = "plausible", reason + "; equal bits were expected" * (not differs)
    return Verdict(
        name=given.name,
        trial=str(record.spec),
        outcome=outcome,
        sentence=reason,
        record_ppl=recorded,
        ppl=ppl,
        limit=AGREEMENT if same_weights else limit.value,
        differs=differs,
        notes=notes(given),
    )


def notes(given: StoredRecord) -> tuple[str, ...]:
    """What could not be checked in a record that can be read."""
    found = []
    if given.contents is None:
        found.append("its id cannot be computed here")
    if given.scores is None:
        found.append("no token scores")
    return tuple(found)


def differences(there: Environment, here: Environment) -> tuple[str, ...]:
    """The fields of two environments that differ and that bits may depend on, and what changed during the training."""
    found = []
    for name, called in FACTS.items():
        before, now = getattr(there, name), getattr(here, name)
        if before is not None and now is not None and before != now:
            found.append(f"{called} {before} there, {now} here")
    return (*found, *(f"{each} there" for each in there.changed))


def _limit(record: TrialRecord, others: tuple[TrialRecord, ...]) -> Limit:
    """Twice the standard deviation of the difference between two seeds of the row, within bounds.

    Two trainings of one seed that round differently drift apart, but not farther than two seeds do. The spread is
    estimated from the other seeds, because the record itself is in question. It is kept within LEAST and MOST, because
    few seeds give a poor estimate and the other records may be false too.
    """
    perplexities = [each.metrics.get("test_ppl", 0.0) for each in others]
    logs = [math.log(ppl) for ppl in perplexities if ppl > 0]
    if len(logs) < MIN_SEEDS:
        return Limit(
            value=DEFAULT,
            reason=f"{DEFAULT:.0%} allowed, because there are not {MIN_SEEDS} other seeds to estimate a spread from",
        )
    value = min(max(2 * math.sqrt(2) * statistics.stdev(logs), LEAST), MOST)  # guard: verify-limit MOST -> 10.0
    return Limit(value=value, reason=f"{100 * value:.1f} % allowed by the spread of {len(logs)} other seeds")


def _fault(given: StoredRecord, found: Measured, allowed: float) -> str:
    """What shows that the record was made by something else than what was measured; '' when nothing does."""
    record = given.record
    if found.status != "ok":
        return f"the status is '{found.status}' ({found.message})"
    if not found.trained and found.weights != record.weights_sha256:  # guard: verify-weights
        return "best.pt holds other weights than the record names"
    if missing := [name for name in ("test_ppl", "valid_ppl") if not record.metrics.get(name, 0.0) > 0]:
        return f"the record has no {missing[0]} above zero"
    for metric in metrics_of("count", "setting", "score"):
        name = metric.name
        if name == "best_epoch" and allowed != AGREEMENT:
            continue  # two trainings that drift apart may have different best epochs
        if name in record.metrics and name in found.metrics:
            there, here = record.metrics[name], found.metrics[name]
            margin = 0.0 if metric.kind != "score" else AGREEMENT if metric.of_text else allowed
            if not _near(there, here, margin):
                return f"{name} is {here:,.6g}, the record has {there:,.6g}"
    if found.trained and not _curves_agree(record.curve, found.curve, allowed):
        return "the learning curve differs"
    if found.weights == record.weights_sha256 and not _tokens_agree(given.scores, found.scores):  # guard: verify-tokens
        return "the scores of single tokens differ"
    return ""


def _near(there: float, here: float, margin: float) -> bool:
    if there == here:
        return True
    return min(there, here) > 0 and abs(math.log(here / there)) <= margin


def _curves_agree(there: tuple[CurvePoint, ...], here: tuple[CurvePoint, ...], allowed: float) -> bool:
    """Whether two curves can be of the same training: the same epochs and, if the final weights are equal, the same
    numbers. If not, the numbers are not compared: two trainings that drift apart may differ much before the end.
    """
    if [point.epoch for point in there] != [point.epoch for point in here]:
        return False
    if allowed > AGREEMENT:
        return True
    return all(
        math.isclose(getattr(one, name), getattr(other, name), rel_tol=CURVE_AGREEMENT)
        for one, other in zip(there, here, strict=True)
        for name in ("train_loss", "valid_ppl", "lr")
    )


def _tokens_agree(there: TokenScores | None, here: TokenScores | None) -> bool:
    if there is None or here is None:
        return True
    if not np.array_equal(there.offset, here.offset) or not np.array_equal(there.count, here.count):
        return False
    return np.allclose(there.nll, here.nll, rtol=0.0, atol=TOKEN_AGREEMENT, equal_nan=True)


def _equal_bits(given: StoredRecord, found: Measured) -> bool:
    """Whether all numbers that the weights and the training determine are equal to the last bit."""
    record = given.record
    scores = [metric.name for metric in metrics_of("score")]
    names = [name for name in scores if name in record.metrics and name in found.metrics]
    if any(record.metrics[name] != found.metrics[name] for name in names):
        return False
    if found.trained and [_bits(point) for point in record.curve] != [_bits(point) for point in found.curve]:
        return False
    if given.scores is None or found.scores is None:
        return True
    return np.array_equal(given.scores.nll, found.scores.nll, equal_nan=True)


def _bits(point: CurvePoint) -> tuple[float, ...]:
    return point.epoch, point.train_loss, point.valid_ppl, point.lr
