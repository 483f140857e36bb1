"""Is a record true? What is stored is compared with what its weights, or the same training, give on this machine.

identical: the same weights and the same numbers, bit for bit.
plausible: other bits, because the processor, a version or the number of threads is another, and numbers within a limit.
different: anything else.

Records are in a results folder, in any folder, or in an exported file. Nothing in them is executed, and no file is
opened whose path comes from a record.
"""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from harness.errors import ExecutionError, HarnessError, RecordError
from harness.exchange.bundle import FILES, Files, opened
from harness.execution.executors import Event
from harness.plan.selection import facts_of, matching
from harness.plan.specs import TRIAL_ID, Contents
from harness.printable import sentence
from harness.records import sealed, store
from harness.records.contents import confirmed
from harness.records.record import MENDED, SCHEMA, Environment, TrialRecord
from harness.records.replicates import AGREEMENT, NO_RESULT, Seeds, difference
from harness.records.sidecars import TOKEN_NLL, TokenScores
from harness.training.checkpoint import BEST
from harness.trial.trained import folders_of
from harness.verification.measured import Measured, VerificationOptions, evaluate_again, train_again

Answer = Literal["identical", "plausible", "different", "not checked"]

# Nats of one token, with equal weights: float32 sums of several hundred products are rounded differently.
TOKEN_AGREEMENT = 1e-3
VALID = 2  # the column of a curve that has validation perplexities
CURVE_AGREEMENT = 1e-4  # relative, of the numbers of an epoch, with equal weights
FACTS = ("device", "threads", "python", "torch", "harness", "commit", "matmul_route")  # that bits may depend on


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record and what lies beside it.

    Args:
        name: suite and trial id; the path of the file when the record cannot be read.
        record: None when it cannot be read.
        fault: why it cannot be read, or which part of it contradicts another part.
        best: the file of its weights, if it exists.
        contents: what the trial read; None when this version of the harness cannot compute it.
        scores: the scores of its test tokens, if the file exists.
        seeds: the perplexities of the records from the same place.
    """

    name: str
    record: TrialRecord | None = None
    fault: str = ""
    files: Files | None = None
    best: Path | None = None
    contents: Contents | None = None
    scores: TokenScores | None = None
    seeds: Seeds = field(default_factory=Seeds)


def find_records(target: str, results: Path, only: tuple[str, ...] = ()) -> Iterator[StoredRecord]:
    """Yield the records that a user names, one after the other.

    Args:
        target: a record.json or its folder; a file that `harness export` wrote; or the id of a trial in `results`, or
            its first digits.
        only: conditions as in `harness run --only`. A record that cannot be read meets no condition.

    Raises: ExecutionError or RecordError when the target is none of these; SuiteError when no record meets a condition.
    """
    place = Path(target)
    if place.is_dir() or (place.exists() and place.suffix == ".json"):
        yield from _in_folder((place / store.FILE_NAME if place.is_dir() else place).resolve(), only)
    elif place.exists():
        with opened(place) as bundle:
            of_trials = map(bundle.files, bundle.trials)
            found = [_stored(files, files.place / store.FILE_NAME) for files in of_trials]
            yield from _examined(found, [each.record for each in found if each.record is not None], only)
    elif re.fullmatch("[0-9a-f]+", target):
        for folder in folders_of(results, target):
            yield from _in_folder(folder / store.FILE_NAME, only)
    else:
        raise ExecutionError(
            f"{target} does not exist and is not the id of a trial: expected a record.json or its folder, a file of "
            "`harness export`, or the first digits of an id, as `harness runs SUITE` shows them"
        )


def _in_folder(place: Path, only: tuple[str, ...]) -> Iterator[StoredRecord]:
    """The record in a file. In the folder of a trial, the other records of its row are in the folders beside that."""
    folder, together = place.parent, []
    if re.fullmatch(TRIAL_ID, folder.name):
        ids = [each.name for each in sorted(folder.parent.iterdir()) if re.fullmatch(TRIAL_ID, each.name)]
        together = list(store.load_all(folder.parent, ids)[0].values())
    files = Files(folder, lambda name: sealed.read(place if name == store.FILE_NAME else folder / name, FILES[name]))
    best = folder / BEST if (folder / BEST).is_file() else None
    yield from _examined([replace(_stored(files, place), best=best)], together, only)


def _stored(files: Files, place: Path) -> StoredRecord:
    """The verified record among the files of a trial, whose id is compared where the name of their folder is one."""
    trial = files.place.name
    try:
        if (content := files.content(store.FILE_NAME)) is None:
            raise RecordError(f"{place} does not exist")
        if not re.fullmatch(TRIAL_ID, trial):
            own = sealed.parsed(content, TrialRecord, place, schema=SCHEMA).id
            trial = own if re.fullmatch(TRIAL_ID, own) else ""
        record = store.parsed(content, trial, place)
    except RecordError as error:
        return StoredRecord(name=str(place), fault=str(error))
    return StoredRecord(name=f"{record.suite}/{record.id}", record=record, files=files)


def _examined(found: list[StoredRecord], together: list[TrialRecord], only: tuple[str, ...]) -> Iterator[StoredRecord]:
    """The records that meet the conditions. What lies beside one is large, so it is read when it is its turn."""
    seeds = Seeds(together)
    for each in _picked(found, only):
        if (record := each.record) is None:
            yield each
            continue
        about = {}
        try:
            about["contents"] = confirmed(record)
            if (content := each.files.content(TOKEN_NLL.file)) is not None:
                about["scores"] = TOKEN_NLL.parsed(content, record, each.files.place / TOKEN_NLL.file)
        except RecordError as error:
            about["fault"] = str(error)
        yield replace(each, seeds=seeds, **about)


def _picked(found: list[StoredRecord], only: tuple[str, ...]) -> list[StoredRecord]:
    if not only:
        return found
    facts, read = {}, [each for each in found if each.record is not None]
    for each in read:
        with suppress(HarnessError):  # its components are not installed
            facts |= facts_of([each.record.spec])
    ids = {trial for condition in only for trial in matching(facts, condition)}
    return [each for each in read if each.record.id in ids]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result for one record.

    Args:
        trial: head, backbone, corpus and seed; '' when the record cannot be read.
        limit: the allowed difference between their logarithms.
        differs: differences between the two environments, such as 'torch 2.12 there, 2.13 here'.
    """

    name: str
    outcome: Answer
    sentence: str
    trial: str = ""
    record_ppl: float | None = None
    ppl: float | None = None
    limit: float | None = None
    differs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return self.outcome in ("identical", "plausible")

    def __str__(self) -> str:
        about = f" ({self.trial})" if self.trial else ""
        where = f"; differences: {', '.join(self.differs)}" if self.differs else ""
        notes = "".join(f"; {note}" for note in self.notes)
        return sentence(f"{self.name}{about}: {self.outcome}: {self.sentence}{where}{notes}")


def verify_record(
    given: StoredRecord, options: VerificationOptions, *, retrain: bool, on_event: Callable[[Event], None]
) -> Verdict:
    """The verdict on one record. Its faults are part of it; they are not raised. `retrain`: train the trial again, even
    if its weights exist.
    """
    if (record := given.record) is None:
        return Verdict(name=given.name, outcome="not checked", sentence=given.fault)
    about = {"name": given.name, "trial": str(record.spec), "record_ppl": record.metrics.get("test_ppl")}
    counts = store.counted(record)
    if contradiction := given.fault or counts.message * (counts.status != record.status):
        return Verdict(outcome="different", sentence=contradiction, **about)
    unknown = {"its id cannot be computed here": given.contents, "no token scores": given.scores}
    about["notes"] = tuple(note for note, value in unknown.items() if value is None)
    try:
        if record.status != "ok":
            raise ExecutionError(
                f"its status is '{record.status}', so there is nothing to compare; `harness run {record.suite} "
                f"--retry-failed` trains it again{f', {MENDED}' if record.status == 'invalid' else ''}"
            )
        if retrain:
            found = train_again(record, given.contents, options, on_event)
        elif given.best is None:
            raise ExecutionError("there are no weights to evaluate; --retrain trains it again")
        else:
            found = evaluate_again(record, given.contents, given.best, options)
        if options.minutes is not None and found.record.status == "timeout" and found.record.curve:
            return _compared_so_far(given, found, about)
        if found.record.status in NO_RESULT:
            raise ExecutionError(f"the second training ended as '{found.record.status}': {found.record.message}")
    except HarnessError as reason:
        return Verdict(outcome="not checked", sentence=str(reason), **about)
    return _compared(given, found, about)


def _compared(given: StoredRecord, found: Measured, about: dict[str, Any]) -> Verdict:
    there, here = given.record.metrics["test_ppl"], found.record.metrics.get("test_ppl")
    same_weights = found.record.weights_sha256 == given.record.weights_sha256
    differs = _differences(given.record.environment, found.record.environment)
    limit, by = given.seeds.allowed(given.record)
    limit = AGREEMENT if same_weights else limit
    if fault := _difference(given, found, limit):
        outcome, reason = "different", fault
    elif not same_weights:
        apart = f"{100 * (here / there - 1):+.2f} %"
        reason = f"test perplexity {here:.2f}, the record has {there:.2f} ({apart}; {by})"
        outcome, reason = "plausible", reason + "; equal bits were expected" * (not differs)
    elif not _difference(given, found, 0.0, exact=True):
        outcome, reason = "identical", f"the same weights, test perplexity {here:.2f} to the last bit"
    else:
        outcome, reason = "plausible", f"the same weights, test perplexity {here:.4f}, rounded differently"
    how = "after a second training here" if found.trained else "with its weights, evaluated here"
    return Verdict(outcome=outcome, sentence=f"{how}: {reason}", ppl=here, limit=limit, differs=differs, **about)


def _compared_so_far(given: StoredRecord, found: Measured, about: dict[str, Any]) -> Verdict:
    """The verdict where the second training was ended early: on the epochs that it finished."""
    was, now = _curve(given.record), _curve(found.record)
    limit, by = given.seeds.allowed(given.record)
    differs = _differences(given.record.environment, found.record.environment)
    how = f"after {len(now)} of {len(was)} epochs of a second training here"
    shared = was[: len(now)]
    here, there = now[-1, VALID], shared[-1, VALID]
    apart = np.abs(np.log(now[:, VALID] / shared[:, VALID])).max() if len(shared) == len(now) else math.inf
    reason = f"validation perplexity {here:.2f}, the record has {there:.2f} there"
    if np.array_equal(shared, now):
        outcome, reason = "identical", f"{reason}, and all points of the curve are equal to the last bit"
    elif apart <= limit:
        outcome, reason = "plausible", f"{reason} ({by})" + "; equal bits were expected" * (not differs)
    else:
        outcome, reason = "different", f"{reason}: the learning curves differ by up to {apart:.1%} ({by})"
    return Verdict(outcome=outcome, sentence=f"{how}: {reason}", limit=limit, differs=differs, **about)


def _differences(there: Environment, here: Environment) -> tuple[str, ...]:
    """The fields of two environments that differ and that bits may depend on, and what changed during the training."""
    pairs = [(name.replace("_", " "), getattr(there, name), getattr(here, name)) for name in FACTS]
    found = [f"{name} {was} there, {now} here" for name, was, now in pairs if None not in (was, now) and was != now]
    return (*found, *(f"{each} there" for each in there.changed))


def _difference(given: StoredRecord, found: Measured, allowed: float, *, exact: bool = False) -> str:
    """What shows that the record was made by something else than what was measured; '' when nothing does.

    Args:
        allowed: difference between the logarithms of perplexities.
        exact: nothing else may differ, either, not by a bit.
    """
    there, here = given.record, found.record
    same_weights = here.weights_sha256 == there.weights_sha256
    if here.status != "ok":
        return f"the status is '{here.status}' ({here.message})"
    if not found.trained and not same_weights:
        return "best.pt holds other weights than the record names"
    if fault := difference(there, here, allowed, exact=exact):
        return fault
    if found.trained:
        was, now = _curve(there), _curve(here)
        # with other final weights the lengths only: two trainings that drift apart may differ much before the end
        margin = 0.0 if exact else CURVE_AGREEMENT
        if len(was) != len(now) or (same_weights and not np.allclose(was, now, rtol=margin, atol=0.0)):
            return "the learning curve differs"
    margin = 0.0 if exact else TOKEN_AGREEMENT
    if same_weights and not _tokens_agree(given.scores, found.scores, margin):
        return "the scores of single tokens differ"
    return ""


def _curve(record: TrialRecord) -> np.ndarray:
    """(epochs, 4) its numbers that training determines."""
    return np.array([(point.epoch, point.train_loss, point.valid_ppl, point.lr) for point in record.curve])


def _tokens_agree(there: TokenScores | None, here: TokenScores | None, margin: float) -> bool:
    if there is None or here is None:
        return True
    if not np.array_equal(there.offset, here.offset) or not np.array_equal(there.count, here.count):
        return False
    return np.allclose(there.nll, here.nll, rtol=0.0, atol=margin, equal_nan=True)
