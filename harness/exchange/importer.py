"""Reads the records of one file into a results folder. Everything is checked before anything is written."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import RecordError, StorageError
from harness.exchange.bundle import FILES, Bundle, Trial, check_beside, choices_path, opened
from harness.machine.files import write_atomically
from harness.plan.tuning import Choice
from harness.printable import counted
from harness.records import choices, plausible, sealed, store
from harness.records.contents import KnownContents
from harness.records.record import TrialRecord
from harness.records.sidecars import SIDECARS
from harness.trial.behaviour import is_outdated

MAX_NAMED = 5  # trials that a message names


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import.

    Args:
        new: the number of records that the results folder did not have.
        replaced: the number of records that replaced a different record of the same trial.
        known: the number of records that the results folder had already.
        unverified_ids: the number of records whose id could not be computed again, because a corpus is in a file of
            the user, a plug-in is not installed, or the versions differ.
        differing: a sentence for each trial that has different results in another suite of the results folder.
        uncertified: the number of ok records without a certificate.
        warnings: a sentence for each record that says ok but contradicts its own certificate. It counts as invalid.
        other_code: the number of records made by another version of the code of a head, backbone or corpus.
    """

    new: int = 0
    replaced: int = 0
    known: int = 0
    unverified_ids: int = 0
    differing: tuple[str, ...] = ()
    uncertified: int = 0
    warnings: tuple[str, ...] = ()
    other_code: int = 0

    def sentences(self) -> list[str]:
        """What a user should know about these records: one sentence each."""
        found = [f"{sentence}; the leaderboard leaves it out" for sentence in self.differing]
        if self.unverified_ids:
            found.append(
                f"the ids of {counted(self.unverified_ids, 'record')} could not be checked: made with local text "
                "files, plug-ins, or another version"
            )
        found += self.warnings
        if self.uncertified:
            have = "has" if self.uncertified == 1 else "have"
            found.append(f"{self.uncertified} of these records {have} no certificate: made before records had one")
        if self.other_code:
            were = "was" if self.other_code == 1 else "were"
            found.append(
                f"{self.other_code} of these records {were} made by other code of a head, backbone or corpus than the "
                "code here; `harness plan SUITE` shows them as outdated"
            )
        return found


def import_records(place: Path, results: Path, *, replacing: bool = False) -> Imported:
    """Write the records of a file, with their timings, scores of tokens and choices of tuning, into a results folder.

    When the results folder already has a record, only missing files beside it are written. A record of the results
    folder that does not verify is renamed and replaced.

    Args:
        place: a file that `harness export` wrote.
        results: the results folder.
        replacing: rename a different record of the same trial. Otherwise such a record is a conflict.

    Raises:
        RecordError: the file is damaged, a record is not of its trial, or there is a conflict. Nothing was written.
        StorageError: a trial is running, or its folder cannot be written. The records written before remain; the same
            command writes the others.
    """
    with opened(place) as bundle:
        imported, made = _checked(bundle), _choices(bundle)
        if not replacing:  # guard: import-conflicts
            _refuse_conflicts(bundle, results)
            _refuse_other_choices(made, results)
        for trial in bundle.manifest.trials:
            kind = _write(bundle, trial, store.runs_folder(results, trial.suite), replacing=replacing)
            imported = replace(imported, **{kind: getattr(imported, kind) + 1})
        for suite, found in made.items():
            choices.save(store.runs_folder(results, suite), found)
        # guard: import-contradiction -> return imported
        return replace(imported, differing=tuple(_differing(bundle, results)))


def _checked(bundle: Bundle) -> Imported:
    """Verify every file of an archive. Returns the counts and warnings that do not depend on the results folder."""
    known, unverified_ids, uncertified, warnings = KnownContents(), 0, 0, []
    for trial in bundle.manifest.trials:
        record = _record(bundle, trial)
        try:
            unverified_ids += known.of(record) is None
        except RecordError as fault:
            raise RecordError(f"{bundle.place}: {fault}") from fault
        uncertified += record.uncertified
        if record.message.startswith(store.CONTRADICTED):
            warnings.append(f"trial {record.id}: {record.message}; it counts as invalid")
        for name in trial.files.keys() & SIDECARS:
            check_beside(name, bundle.content(trial, name), record, bundle.source(trial, name))
    return Imported(
        unverified_ids=unverified_ids,
        uncertified=uncertified,
        warnings=tuple(warnings),
        other_code=_of_other_code(bundle),
    )


def _choices(bundle: Bundle) -> dict[str, tuple[Choice, ...]]:
    """The choices of each suite of an archive. Raises RecordError when they contradict records of the archive."""
    made, tuned = {}, {}
    for trial in bundle.manifest.trials:
        if (record := _record(bundle, trial)).tuning:
            tuned[trial.suite, trial.id] = choices.perplexity(record)
    for suite in bundle.manifest.tuning:
        place = bundle.place / choices_path(suite)
        made[suite] = choices.parsed(bundle.choices(suite), suite, place)
        for choice in made[suite]:
            for trial, ppl in choice.valid_ppl.items():
                if tuned.get((suite, trial), ppl) != ppl:
                    raise RecordError(f"{place}: the choice of '{choice.row}' contradicts the record of trial {trial}")
    return made


def _refuse_other_choices(made: dict[str, tuple[Choice, ...]], results: Path) -> None:
    """Raise RecordError when the results folder has another choice of the same tuning trials."""
    for suite, found in made.items():
        here = choices.readable(store.runs_folder(results, suite), lambda damage: None)
        for choice in found:
            before = [each for each in here if each.valid_ppl.keys() == choice.valid_ppl.keys()]
            if before and before[0].trial != choice.trial:
                raise RecordError(
                    f"{results / 'runs' / choices_path(suite)} holds another choice of '{choice.row}'; nothing was "
                    "imported; --replace imports the choice with its records"
                )


def _of_other_code(bundle: Bundle) -> int:
    return sum(is_outdated(_record(bundle, trial)) for trial in bundle.manifest.trials)


def _record(bundle: Bundle, trial: Trial) -> TrialRecord:
    place = bundle.source(trial, store.FILE_NAME)
    record = store.parsed(bundle.content(trial, store.FILE_NAME), trial.id, place)
    if record.suite != trial.suite:
        raise RecordError(f"{place}: holds a record of the suite '{record.suite}'")
    return store.counted(record)


def _refuse_conflicts(bundle: Bundle, results: Path) -> None:
    """Raise RecordError when the results folder has a different record of one of the trials."""
    found = [
        f"{trial.suite}/{trial.id}"
        for trial in bundle.manifest.trials
        if _conflicts(store.runs_folder(results, trial.suite), _record(bundle, trial))
    ]
    if found:
        more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
        raise RecordError(
            f"{results / 'runs'} holds other records of {len(found)} of these trials: "
            f"{', '.join(found[:MAX_NAMED])}{more}; nothing was imported; "
            "--replace imports them and keeps the other records as record.previous.json"
        )


def _differing(bundle: Bundle, results: Path) -> Iterator[str]:
    """A sentence for each imported trial that has different results in another suite of the results folder."""
    suites = sorted(place.name for place in (results.resolve() / "runs").iterdir() if place.is_dir())
    for trial in bundle.manifest.trials:
        ours = _load(store.runs_folder(results, trial.suite), trial.id)
        for suite in suites:
            other = _load(store.runs_folder(results, suite), trial.id) if suite != trial.suite else None
            if ours and other and plausible.contradicting([ours, other]):
                yield f"trial {trial.id} has different results in the suites {trial.suite} and {suite}"
                break


def _load(runs: Path, trial_id: str) -> TrialRecord | None:
    """The record of a trial, or None when there is none that verifies."""
    return store.load_all(runs, [trial_id])[0].get(trial_id)


def _conflicts(runs: Path, record: TrialRecord) -> bool:
    here = _load(runs, record.id)
    return here is not None and here != record


def _write(bundle: Bundle, trial: Trial, runs: Path, *, replacing: bool) -> str:
    """Write the missing files of a trial. The record is written last, because a trial with a record is finished.

    Returns:
        'new', 'replaced' or 'known'.
    """
    record, folder = _record(bundle, trial), store.folder(runs, trial.id)
    with store.writing(runs, trial.id, wait=0):
        here = _load(runs, trial.id)
        if here is not None and here != record and not replacing:
            raise StorageError(
                f"trial {trial.id} was finished here during the import, with another result; run the import again"
            )
        if here != record:
            store.set_aside(runs, trial.id)
            for name in SIDECARS:  # they belong to another training
                (folder / name).unlink(missing_ok=True)
        for name in trial.files.keys() & SIDECARS:
            if not _is_present(name, record, folder):
                write_atomically(folder / name, bundle.content(trial, name))
        if here != record:
            write_atomically(folder / store.FILE_NAME, bundle.content(trial, store.FILE_NAME))
    return "known" if here == record else "new" if here is None else "replaced"


def _is_present(name: str, record: TrialRecord, folder: Path) -> bool:
    """Whether a file lies in the folder of a trial and belongs to its record."""
    try:
        content = sealed.read(folder / name, FILES[name])
        if content is not None:
            check_beside(name, content, record, folder / name)
        return content is not None
    except RecordError:
        return False
