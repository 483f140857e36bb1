"""Records on disk: written atomically, and verified when they are read.

A record is the file results/runs/<suite>/<trial id>/record.json. Its `sha256` is computed over the canonical JSON of
everything else in it. A record that does not verify is not used.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness.errors import RecordError, StorageError
from harness.machine import locks
from harness.machine.files import remove_stale
from harness.records import sealed
from harness.records.plausible import fault
from harness.records.record import SCHEMA, TrialRecord

FILE_NAME = "record.json"
PREVIOUS, DAMAGED = "record.previous.json", "record.bad"  # what a new training puts aside
LOCKS = ".locks"
CHECKPOINTS = "checkpoint-*.pt"  # in the folder of a trial that is not finished
CONTRADICTED = "the record says ok, and its certificate says otherwise"
MAX_BYTES = 16 * 1024**2  # enough for 100,000 epochs


def runs_folder(results: Path, suite: str) -> Path:
    return results.resolve() / "runs" / suite


def folder(runs: Path, trial_id: str) -> Path:
    """A trial's own folder: record, log, weights."""
    return runs / trial_id


def save(record: TrialRecord, runs: Path) -> Path:
    place = folder(runs, record.id) / FILE_NAME
    sealed.save(record, place)
    return place


def digest(record: TrialRecord) -> str:
    """SHA-256 of the whole content of a record: its checksum. The record of a rerun has another one."""
    return sealed.digest(record)


def load(runs: Path, trial_id: str) -> TrialRecord | None:
    """The verified record of a trial as `counted` returns it; None if there is none.

    Raises: RecordError when it is damaged, edited, of another schema or of another trial, or not plausible.
    """
    place = folder(runs, trial_id) / FILE_NAME
    with sealed.remedied(f"`harness run {runs.name}` trains the trial again, and keeps this file as {DAMAGED}"):
        content = sealed.read(place, MAX_BYTES)
        return None if content is None else counted(parsed(content, trial_id, place))


def counted(record: TrialRecord) -> TrialRecord:
    """A record with the status that counts: 'invalid' if it says 'ok' and its certificate breaks a rule.

    No trial ends like this: the record was edited, or the limits were different when it was made.
    """
    fault = record.certificate.fault if record.status == "ok" and record.certificate is not None else None
    if fault is None:
        return record
    return record.model_copy(update={"status": "invalid", "message": f"{CONTRADICTED}: {fault}"})


def measured(record: TrialRecord) -> TrialRecord:
    """A new record, before it is saved: 'invalid' if it is ok but not plausible, for example with a perplexity below 1.

    Otherwise it would be refused when it is read, and every run would train its trial again.
    """
    wrong = fault(record) if record.status == "ok" else ""
    return record.model_copy(update={"status": "invalid", "message": wrong}) if wrong else record


def parsed(content: bytes, trial_id: str, place: Path) -> TrialRecord:
    """The verified record in the content of a file; `place` is for messages. Raises RecordError as `load` does."""
    record = sealed.parsed(content, TrialRecord, place, schema=SCHEMA)
    if record.id != trial_id:
        raise RecordError(f"{place}: holds the record of trial {record.id}")
    if wrong := fault(record):
        raise RecordError(f"{place}: {wrong}; the record does not count")
    return record


def load_all(runs: Path, trial_ids: list[str]) -> tuple[dict[str, TrialRecord], list[str]]:
    """The verified records of some trials, by id, and a sentence for each record that does not verify."""
    found, warnings = sealed.each(lambda trial: load(runs, trial), trial_ids)
    warnings += [
        f"{folder(runs, trial) / FILE_NAME}: {record.message}; it counts as invalid"
        for trial, record in found.items()
        if record.message.startswith(CONTRADICTED)
    ]
    return found, warnings


def interrupted(runs: Path, trial_ids: Iterable[str]) -> set[str]:
    """The trials that have a checkpoint. Those of them without a record are resumed by the next run."""
    return {trial_id for trial_id in trial_ids if any(folder(runs, trial_id).glob(CHECKPOINTS))}


def set_aside(runs: Path, trial_id: str) -> None:
    """Move the record of a trial that is run again: to record.previous.json, or to record.bad if it does not verify."""
    place = folder(runs, trial_id) / FILE_NAME
    try:
        found = load(runs, trial_id)
    except RecordError:
        place.replace(place.with_name(DAMAGED))
        return
    if found is not None:
        previous = place.with_name(PREVIOUS)
        if found.status == "ok" or not previous.exists():  # a record that was ok is kept, not one of a failed trial
            place.replace(previous)
        else:
            place.unlink()


@contextmanager
def writing(runs: Path, trial_id: str, *, wait: float = -1) -> Iterator[None]:
    """Hold the lock of a trial's folder, which one process can hold at a time. The end of the process releases it.

    Args:
        wait: seconds to wait for the lock; negative: without limit.
    Raises: StorageError when the lock file cannot be created or locked.
    """
    place = lock_of(runs, trial_id)
    with ExitStack() as held:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(locks.held(place, wait=wait))
        except OSError as cause:
            raise StorageError(
                f"{place} cannot be locked ({cause.strerror or cause}); name another results folder by --results"
            ) from cause
        remove_stale(folder(runs, trial_id))
        yield


def lock_of(runs: Path, trial_id: str) -> Path:
    return runs / LOCKS / f"{trial_id}.lock"
