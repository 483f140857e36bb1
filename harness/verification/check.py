"""Verify one record: what contradicts itself is found first, then its weights are evaluated, or it is trained again."""

from collections.abc import Callable

from harness.errors import HarnessError
from harness.execution.events import Event
from harness.records import store
from harness.verification.measured import Place, evaluated_again, trained_again
from harness.verification.stored import Stored
from harness.verification.verdict import Outcome, Verdict, judged, notes

UNDECIDED = ("error", "oom", "timeout")  # ends of a training that say more of this machine than of the record


def verified(given: Stored, place: Place, *, retrain: bool, on_event: Callable[[Event], None]) -> Verdict:
    """The verdict on one record.

    Args:
        retrain: train the trial again, whether or not its weights are there.
        on_event: hears of that training.
    """
    record = given.record
    if record is None:
        return Verdict(name=given.name, outcome="not checked", sentence=given.damage)
    counts = store.counted(record)
    if contradiction := given.contradiction or counts.message * (counts.status != record.status):
        return _without(given, "different", contradiction)
    if record.status != "ok":
        return _without(given, "not checked", f"it ended as '{record.status}', there is nothing to compare")
    if not retrain and given.best is None:
        return _without(given, "not checked", "there are no weights to evaluate; --retrain trains it again")
    try:
        found = trained_again(given, place, on_event) if retrain else evaluated_again(given, place)
    except HarnessError as fault:
        return _without(given, "not checked", str(fault))
    if found.status in UNDECIDED:
        return _without(given, "not checked", f"trained again here it ended as '{found.status}': {found.message}")
    return judged(given, found)


def _without(given: Stored, outcome: Outcome, sentence: str) -> Verdict:
    """A verdict without measurement."""
    ppl = given.record.metrics.get("test_ppl")
    missing = () if outcome == "different" else notes(given)  # what contradicts itself is not missing
    about = {"trial": str(given.record.spec), "record_ppl": ppl, "notes": missing}
    return Verdict(name=given.name, outcome=outcome, sentence=sentence, **about)
