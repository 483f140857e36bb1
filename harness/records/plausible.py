"""Whether a record is plausible: known metrics within their ranges, a curve of the right epochs, dates, digests.

Every record is checked when it is read. This finds faults and careless forgeries. It cannot find a forgery by someone
who knows these rules (docs/security.md).
"""

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from harness.printable import printable
from harness.records.metrics import METRICS, MOST, MOST_PERPLEXITY, Metric
from harness.records.record import TrialRecord

MOST_LIKELIHOOD = math.log(1e6)  # of a text under a model, relative to the process that made it
ROUNDING = 1e-4  # nats by which rounding can put the mean of equal float32 numbers below the lowest of them
CLOCKS = timedelta(days=1)  # by which the clocks of two machines may differ
DIGEST = re.compile("[0-9a-f]{64}")
MAX_REST = 2**18  # characters of a record without its curve; a suite has at most as many
MAX_CONTENT = 500  # characters of the identifier of a text or of weights


def fault(record: TrialRecord) -> str:
    """What is wrong with a record, as a sentence; '' if nothing is."""
    return next(_faults(record), "")


def moment(text: str) -> datetime | None:
    """A date and time with its zone, in ISO 8601; None for any other text."""
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo else None
    except (ValueError, OverflowError):
        return None


def fault_of_date(name: str, text: str) -> str:
    """What is wrong with a time that must not be in the future; '' if nothing is."""
    found = moment(text)
    if found is None:
        return f"{name} is '{printable(text[:40])}', expected a date and time with its zone, as in ISO 8601"
    if found > datetime.now(UTC) + CLOCKS:
        return f"{name} is {text}, which is in the future by this machine's clock"
    return ""


def fault_of_digest(name: str, text: str) -> str:
    """What is wrong with a SHA-256; '' if nothing is."""
    found = DIGEST.fullmatch(text)
    return "" if found else f"{name} is '{printable(text[:80])}', expected 64 hexadecimal digits"


def _faults(record: TrialRecord) -> Iterator[str]:
    ok = record.status == "ok"
    for name, value in record.metrics.items():
        if name in METRICS:
            yield from _out_of_range(METRICS[name], value, ok=ok)
        else:
            yield f"'{printable(name[:40])}' is no metric that this harness knows"
    if ok:
        yield from (
            f"it is ok and has no {metric.name}"
            for metric in METRICS.values()
            if metric.required and metric.name not in record.metrics
        )
        if record.weights_sha256 is None:
            yield "it is ok and has no weights_sha256"
    total, head = (record.metrics.get(name, 0) for name in ("params_total", "params_head"))
    if head > total:
        yield f"params_head is {head:,.0f}, more than params_total, {total:,.0f}"
    yield from _about_epochs(record, ok=ok)
    yield from _about_settings(record)
    yield from _about_certificate(record)
    yield from _about_source(record)
    yield from filter(None, [fault_of_digest("weights_sha256", record.weights_sha256 or "0" * 64)])
    for text in record.contents.model_dump().values() if record.contents else ():
        if text is not None and not (0 < len(text) <= MAX_CONTENT and text.isprintable()):
            yield f"contents has '{printable(text[:40])}', expected a hash, or an address whose content never changes"


def _out_of_range(metric: Metric, value: float, *, ok: bool) -> Iterator[str]:
    """A trial that failed may have any perplexity: that may be why it failed."""
    low, high = (metric.low, metric.high) if ok or metric.unit != "perplexity" else (0, math.inf)
    if not low <= value <= high:
        yield f"{metric.name} is {value:g}, expected {low:g} to {high:g}"
    if metric.whole and value != int(value):
        yield f"{metric.name} is {value:g}, expected a whole number"


def _about_epochs(record: TrialRecord, *, ok: bool) -> Iterator[str]:
    epochs, curve = record.spec.train.most_epochs, record.curve
    fewest = math.ceil(record.spec.train.epochs) + (record.spec.train.finetune is not None)
    best = record.metrics.get("best_epoch", 0)
    if not 0 <= best <= epochs or (best != epochs and best != int(best)):
        yield f"best_epoch is {best:g}, expected one of {epochs:g} epochs"
    if len(curve) > math.ceil(epochs) or (ok and len(curve) < fewest):
        yield f"the curve has {len(curve)} points, expected one for each of {epochs:g} epochs"
    for number, point in enumerate(curve, start=1):
        if point.epoch != min(number, epochs):
            yield f"point {number} of the curve is of epoch {point.epoch:g}, expected {min(number, epochs):g}"
        if ok:
            yield from (
                f"point {number} of the curve: {each}"
                for each in _out_of_range(METRICS["valid_ppl"], point.valid_ppl, ok=True)
            )
        if point.lr < 0 or not 0 <= point.seconds <= MOST:
            yield f"point {number} of the curve: lr {point.lr:g}, {point.seconds:g} seconds, expected none below 0"
        if abs(point.train_loss) > MOST_PERPLEXITY:
            yield f"point {number} of the curve: train_loss is {point.train_loss:g}, expected below {MOST_PERPLEXITY:g}"


def _about_settings(record: TrialRecord) -> Iterator[str]:
    where = record.environment
    if (length := len(record.model_dump_json(exclude={"curve"}))) > MAX_REST:
        yield f"it has {length:,} characters without its curve, expected at most {MAX_REST:,}"
    yield from filter(None, (fault_of_date(name, getattr(where, name)) for name in ("started", "finished")))
    if moment(where.finished) + CLOCKS < moment(where.started):
        yield f"finished, {where.finished}, is before started, {where.started}"
    for name, low in {"threads": 1, "load_average": 0, "sessions": 1, "retries": 0}.items():
        if not low <= getattr(where, name) <= MOST:
            yield f"{name} is {str(getattr(where, name))[:20]}, expected {low} to {MOST:g}"
    for name, value in record.spec.train.model_dump().items():
        if isinstance(value, int) and value > MOST:
            yield f"train.{name} is {str(value)[:20]}, expected at most {MOST:g}"


def _about_certificate(record: TrialRecord) -> Iterator[str]:
    certificate, ppl = record.certificate, record.metrics.get("test_ppl")
    if certificate is None or record.status != "ok" or ppl is None:
        return
    asked = (record.spec.head.params.get("compat") or {}).get("log_epsilon", 0.0)
    if certificate.log_epsilon > asked:
        yield f"its certificate allows log_epsilon {certificate.log_epsilon:g}, its settings have compat {asked:g}"
    lowest = certificate.lowest_nll
    if lowest is not None and ppl > 0 and lowest > math.log(ppl) + ROUNDING:
        yield f"no token has an nll below {lowest:g}, and test_ppl is {ppl:g}: a mean is not below the lowest"


def _about_source(record: TrialRecord) -> Iterator[str]:
    """A model that has not seen the test text is seldom more likely than the process q that made it: by Markov's
    inequality P(p(text) / q(text) > c) is at most 1 / c.
    """
    source, scored = (record.metrics.get(name, 0) for name in ("source_test_ppl", "scored_test_tokens"))
    how = record.spec.train.evaluation
    if record.status != "ok" or not source > 0 or how.eval_batches is not None or how.batching != "stream":
        return
    for name in ("test_ppl", "last_test_ppl"):
        ours = record.metrics.get(name, 0)
        if ours > 0 and scored * math.log(source / ours) > MOST_LIKELIHOOD:
            yield (
                f"{name} is {ours:g}, and the process that made the text has {source:g}: no model that has not seen "
                "the text is so much better"
            )
