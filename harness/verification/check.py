"""Verifies one record: looks for contradictions in it, then evaluates its weights or trains its trial again."""

from collections.abc import Callable

from harness.errors import HarnessError
from harness.execution.executors import Event
from harness.records import store
from harness.verification.measured import VerificationOptions, evaluate_again, train_again
from harness.verification.stored import StoredRecord
from harness.verification.verdict import Outcome, Verdict, compare, notes

UNDECIDED = ("error", "oom", "timeout")  # a training that ends so says nothing about the record


def verify_record(
    given: StoredRecord, options: VerificationOptions, *, retrain: bool, on_event: Callable[[Event], None]
) -> Verdict:
    """Verify one record.

    Args:
        given: the record and the files beside it.
        options: where corpora are, the device, and what may be read.
        retrain: train the trial again, even if its weights exist.
        on_event: receives the events of that training.

    Returns:
        The verdict. Faults of the record are part of it; they are not raised.
    """
    record = given.record
    if record is None:
        return Verdict(name=given.name, outcome="not checked", sentence=given.damage)
    counts = store.counted(record)
    # guard: verify-own-certificate last
    if contradiction := given.contradiction or counts.message * (counts.status != record.status):
        return _without(given, "different", contradiction)
    if record.status != "ok":
        return _without(given, "not checked", f"its status is '{record.status}', so there is nothing to compare")
    if not retrain and given.best is None:
        return _without(given, "not checked", "there are no weights to evaluate; --retrain trains it again")
    try:
        found = train_again(given, options, on_event) if retrain else evaluate_again(given, options)
    except HarnessError as fault:
        return _without(given, "not checked", str(fault))
    if found.status in UNDECIDED:
        return _without(given, "not checked", f"the second training ended as '{found.status}': {found.message}")
    return compare(given, found)


def _without(given: StoredRecord, outcome: Outcome, sentence: str) -> Verdict:
    """A verdict on a record that was not measured here."""
    ppl = given.record.metrics.get("test_ppl")
    missing = () if outcome == "different" else notes(given)
    about = {"trial": str(given.record.spec), "record_ppl": ppl, "notes": missing}
    return Verdict(name=given.name, outcome=outcome, sentence=sentence, **about)
