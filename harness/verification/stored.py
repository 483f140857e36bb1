"""Finds the records to verify and the files beside them: in a results folder, in any folder, or in an exported file.

Nothing in them is executed, and no file is opened whose path comes from a record.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.diagnostics.trained import folders_of
from harness.errors import ExecutionError, HarnessError, RecordError
from harness.exchange.bundle import Bundle, Trial, opened
from harness.plan.selection import facts_of, matching
from harness.plan.specs import TRIAL_ID
from harness.records import sealed, sidecars, store
from harness.records.contents import KnownContents
from harness.records.record import SCHEMA, Contents, TrialRecord
from harness.records.sidecars import TokenScores
from harness.training.checkpoint import BEST


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record and the files beside it.

    Args:
        name: suite and trial id; the path of the file when the record cannot be read.
        record: None when it cannot be read.
        contents: what the trial read; None when this version of the harness cannot compute it.
        scores: the scores of its test tokens, if the file exists.
        best: the file of its weights, if it exists.
        others: records from the same place that differ only in the seed.
        damage: why the record cannot be read.
        contradiction: which part of the record contradicts another part.
    """

    name: str
    record: TrialRecord | None = None
    contents: Contents | None = None
    scores: TokenScores | None = None
    best: Path | None = None
    others: tuple[TrialRecord, ...] = ()
    damage: str = ""
    contradiction: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A record before the files beside it are read. They are large, so they are read for one record at a time."""

    name: str
    record: TrialRecord | None = None
    damage: str = ""
    scores: Callable[[], TokenScores | None] = lambda: None
    best: Path | None = None


def find_records(target: str, results: Path, only: tuple[str, ...] = ()) -> Iterator[StoredRecord]:
    """Yield the records that a user names, one after the other.

    Args:
        target: a record.json or its folder; a file that `harness export` wrote; or the id of a trial in `results`, or
            its first digits.
        results: the results folder.
        only: conditions as in `harness run --only`. A record that cannot be read meets no condition.

    Raises:
        ExecutionError, RecordError: the target is none of these.
        SuiteError: no record meets a condition.
    """
    place = Path(target)
    if not place.exists() and not re.fullmatch("[0-9a-f]+", target):
        raise ExecutionError(
            f"{target} does not exist and is not the id of a trial: expected a file, or digits of 0-9 and a-f"
        )
    if not place.exists():
        for folder in folders_of(results, target):
            yield from _examined([_in_folder(folder / store.FILE_NAME)], only, _beside(folder))
    elif place.is_dir() or place.suffix == ".json":
        place = (place / store.FILE_NAME if place.is_dir() else place).resolve()
        yield from _examined([_in_folder(place)], only, _beside(place.parent))
    else:
        with opened(place) as bundle:
            entries = [_in_bundle(bundle, trial) for trial in bundle.manifest.trials]
            yield from _examined(entries, only, [entry.record for entry in entries if entry.record is not None])


def _examined(entries: list[_Entry], only: tuple[str, ...], together: list[TrialRecord]) -> Iterator[StoredRecord]:
    """The entries that meet the conditions, after the files beside them were read and checked."""
    known = KnownContents()
    rows: dict[str, dict[int, TrialRecord]] = {}
    for record in together:
        if record.status == "ok":
            rows.setdefault(_row(record), {})[record.spec.seed] = record
    for entry in _picked(entries, only):
        if entry.record is None:
            yield StoredRecord(name=entry.name, damage=entry.damage)
            continue
        about, contradiction = {}, ""
        try:
            about = {"contents": known.of(entry.record), "scores": entry.scores()}
        except RecordError as error:
            contradiction = str(error)  # guard: verify-id
        of_row = rows.get(_row(entry.record), {})
        others = tuple(record for seed, record in of_row.items() if seed != entry.record.spec.seed)
        about |= {"best": entry.best, "others": others, "contradiction": contradiction}
        yield StoredRecord(name=entry.name, record=entry.record, **about)


def _picked(entries: list[_Entry], only: tuple[str, ...]) -> list[_Entry]:
    if not only:
        return entries
    known = [entry for entry in entries if entry.record is not None and _can_be_read(entry.record)]
    facts = facts_of(entry.record.spec for entry in known)
    ids = {trial for condition in only for trial in matching(facts, condition)}
    return [entry for entry in known if entry.record.id in ids]


def _can_be_read(record: TrialRecord) -> bool:
    """Whether the components of a trial are installed."""
    try:
        facts_of([record.spec])
    except HarnessError:
        return False
    return True


def _row(record: TrialRecord) -> str:
    """What the records of one row of a table have in common: everything except the seed."""
    return record.spec.model_copy(update={"id": "", "seed": 0}).model_dump_json()


def _beside(folder: Path) -> list[TrialRecord]:
    """The records of all trials beside a trial's folder, if this folder is in a suite's folder."""
    if not re.fullmatch(TRIAL_ID, folder.name):
        return []
    ids = [each.name for each in sorted(folder.parent.iterdir()) if re.fullmatch(TRIAL_ID, each.name)]
    return list(store.load_all(folder.parent, ids)[0].values())


def _in_folder(place: Path) -> _Entry:
    folder = place.parent
    try:
        content = sealed.read(place, store.MAX_BYTES)
        if content is None:
            raise RecordError(f"{place} does not exist any more")
        record = _parsed(content, place, folder.name if re.fullmatch(TRIAL_ID, folder.name) else None)
    except RecordError as error:
        return _Entry(name=str(place), damage=str(error))
    beside = folder / sidecars.TOKEN_NLL.file

    def scores() -> TokenScores | None:
        content = sealed.read(beside, sidecars.TOKEN_NLL.max_bytes)
        return None if content is None else sidecars.TOKEN_NLL.parsed(content, record, beside)

    best = folder / BEST
    return _Entry(name=_name(record), record=record, scores=scores, best=best if best.is_file() else None)


def _in_bundle(bundle: Bundle, trial: Trial) -> _Entry:
    place = bundle.source(trial, store.FILE_NAME)
    try:
        record = _parsed(bundle.content(trial, store.FILE_NAME), place, trial.id)
    except RecordError as error:
        return _Entry(name=f"{trial.suite}/{trial.id}", damage=str(error))

    def scores() -> TokenScores | None:
        name = sidecars.TOKEN_NLL.file
        if name not in trial.files:
            return None
        return sidecars.TOKEN_NLL.parsed(bundle.content(trial, name), record, bundle.source(trial, name))

    return _Entry(name=_name(record), record=record, scores=scores)


def _parsed(content: bytes, place: Path, trial_id: str | None) -> TrialRecord:
    """The verified record in the content of a file. Its trial is compared if it is given. Raises RecordError."""
    record = sealed.parsed(content, TrialRecord, place, schema=SCHEMA)
    return store.parsed(content, trial_id or (record.id if re.fullmatch(TRIAL_ID, record.id) else ""), place)


def _name(record: TrialRecord) -> str:
    return f"{record.suite}/{record.id}"
