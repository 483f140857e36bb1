"""The records to verify, with what lies beside them: below a results folder, in any folder, or in a file of records.

Nothing in them is executed, and no file is opened that a record names.
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
from harness.records import sealed, store, token_nll
from harness.records.contents import KnownContents
from harness.records.record import SCHEMA, Contents, TrialRecord
from harness.records.token_nll import TokenScores
from harness.training.checkpoint import BEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A record and what lies beside it.

    Args:
        name: suite and trial id, or the file where the record cannot be read.
        record: None where it cannot be read.
        contents: what its trial read; None where this harness cannot say.
        scores: of its test tokens, where they were kept.
        best: the file of its weights, where it is there.
        others: records of the same settings under other seeds, from the same place.
        damage: why it cannot be read.
        contradiction: what in it contradicts the rest.
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
    """A record before what lies beside it is read: of thousands, that is read one at a time."""

    name: str
    record: TrialRecord | None = None
    damage: str = ""
    scores: Callable[[], TokenScores | None] = lambda: None
    best: Path | None = None


def stored(target: str, results: Path, only: tuple[str, ...] = ()) -> Iterator[Stored]:
    """The records that a user names, one after the other.

    Args:
        target: a record.json or its folder; a file of `harness export`; or a trial's id as `harness plan` shows it, or
            its first digits, below `results`.
        only: conditions as those of `harness run --only`. A record that cannot be read here meets none.
    Raises: ExecutionError, RecordError when the target is none of these; SuiteError for a condition that picks nothing.
    """
    place = Path(target)
    if not place.exists() and not re.fullmatch("[0-9a-f]+", target):
        raise ExecutionError(
            f"{target} does not exist, and is no id of a trial: expected a file, or digits of 0-9 and a-f"
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


def _examined(entries: list[_Entry], only: tuple[str, ...], together: list[TrialRecord]) -> Iterator[Stored]:
    """Those entries that the conditions pick, with what lies beside them read and checked."""
    known = KnownContents()
    rows: dict[str, dict[int, TrialRecord]] = {}
    for record in together:
        if record.status == "ok":
            rows.setdefault(_row(record), {})[record.spec.seed] = record
    for entry in _picked(entries, only):
        if entry.record is None:
            yield Stored(name=entry.name, damage=entry.damage)
            continue
        about, contradiction = {}, ""
        try:
            about = {"contents": known.of(entry.record), "scores": entry.scores()}
        except RecordError as error:
            contradiction = str(error)
        of_row = rows.get(_row(entry.record), {})
        others = tuple(record for seed, record in of_row.items() if seed != entry.record.spec.seed)
        about |= {"best": entry.best, "others": others, "contradiction": contradiction}
        yield Stored(name=entry.name, record=entry.record, **about)


def _picked(entries: list[_Entry], only: tuple[str, ...]) -> list[_Entry]:
    if not only:
        return entries
    known = [entry for entry in entries if entry.record is not None and _is_known(entry.record)]
    facts = facts_of(entry.record.spec for entry in known)
    ids = {trial for condition in only for trial in matching(facts, condition)}
    return [entry for entry in known if entry.record.id in ids]


def _is_known(record: TrialRecord) -> bool:
    """Whether this harness has the components of a trial."""
    try:
        facts_of([record.spec])
    except HarnessError:
        return False
    return True


def _row(record: TrialRecord) -> str:
    """All that records of one row of a table have in common: everything but the seed."""
    return record.spec.model_copy(update={"id": "", "seed": 0}).model_dump_json()


def _beside(folder: Path) -> list[TrialRecord]:
    """The records of a suite, where a trial's folder lies in a suite's."""
    if not re.fullmatch(TRIAL_ID, folder.name):
        return []
    ids = [each.name for each in sorted(folder.parent.iterdir()) if re.fullmatch(TRIAL_ID, each.name)]
    return list(store.load_all(folder.parent, ids)[0].values())


def _in_folder(place: Path) -> _Entry:
    folder = place.parent
    try:
        content = sealed.read(place, store.MAX_BYTES)
        if content is None:
            raise RecordError(f"{place} is gone")
        record = _parsed(content, place, folder.name if re.fullmatch(TRIAL_ID, folder.name) else None)
    except RecordError as error:
        return _Entry(name=str(place), damage=str(error))
    beside = folder / token_nll.FILE_NAME

    def scores() -> TokenScores | None:
        content = sealed.read(beside, token_nll.MAX_BYTES)
        return None if content is None else token_nll.parsed(content, record, beside)

    best = folder / BEST
    return _Entry(name=_name(record), record=record, scores=scores, best=best if best.is_file() else None)


def _in_bundle(bundle: Bundle, trial: Trial) -> _Entry:
    place = bundle.source(trial, store.FILE_NAME)
    try:
        record = _parsed(bundle.content(trial, store.FILE_NAME), place, trial.id)
    except RecordError as error:
        return _Entry(name=f"{trial.suite}/{trial.id}", damage=str(error))

    def scores() -> TokenScores | None:
        name = token_nll.FILE_NAME
        if name not in trial.files:
            return None
        return token_nll.parsed(bundle.content(trial, name), record, bundle.source(trial, name))

    return _Entry(name=_name(record), record=record, scores=scores)


def _parsed(content: bytes, place: Path, trial_id: str | None) -> TrialRecord:
    """The verified record of a file's content, of a trial where that is known. Raises RecordError."""
    record = sealed.parsed(content, TrialRecord, place, schema=SCHEMA)
    return store.parsed(content, trial_id or (record.id if re.fullmatch(TRIAL_ID, record.id) else ""), place)


def _name(record: TrialRecord) -> str:
    return f"{record.suite}/{record.id}"
