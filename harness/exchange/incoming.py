"""Records out of one file into a results folder: all is checked before anything is written."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harness.code.fingerprints import is_outdated
from harness.errors import RecordError, StorageError
from harness.exchange.bundle import BESIDE, FILES, Bundle, Trial, check_beside, opened
from harness.machine.files import write_atomically
from harness.records import agreement, sealed, store
from harness.records.contents import KnownContents
from harness.records.record import TrialRecord

SHOWN = 5  # of the trials in conflict


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What became of the records of a file.

    Args:
        new, replaced, known: trials whose record was not here, took the place of another, was here already.
        unjudged: of all these, the ids that could not be computed anew: of corpora in files, plug-ins, other versions.
        differing: a sentence for each of them of which another suite has different results here.
        uncertified: of all these, the ok ones without a certificate.
        warnings: a sentence for each that says ok against its own certificate, and counts as invalid.
        other_code: of all these, the records made by other code of a head, backbone or corpus than is here.
    """

    new: int = 0
    replaced: int = 0
    known: int = 0
    unjudged: int = 0
    differing: tuple[str, ...] = ()
    uncertified: int = 0
    warnings: tuple[str, ...] = ()
    other_code: int = 0

    def sentences(self) -> list[str]:
        """What a user should know about these records: one sentence each."""
        found = [f"{sentence}; the leaderboard leaves it out" for sentence in self.differing]
        if self.unjudged:
            found.append(
                f"the ids of {self.unjudged} records could not be checked: they use local text files, plug-ins, or "
                "another version"
            )
        found += self.warnings
        if self.uncertified:
            found.append(
                f"{self.uncertified} of these records have no certificate: they were made before records had one"
            )
        if self.other_code:
            found.append(
                f"{self.other_code} of these records were made by other code of a head, backbone or corpus than the "
                "code here; `harness plan SUITE` shows them as outdated"
            )
        return found


def take_in(place: Path, results: Path, *, replacing: bool = False) -> Taken:
    """Write the records of a file below a results folder, with what lies beside them. Of a record that is here already
    only what is not yet beside it is written. One that does not verify here is none, and set aside.

    Args:
        replacing: a different record of the same trial is set aside; otherwise it keeps everything from being written.
    Raises: RecordError when the file is damaged, or holds what is no record of its trial, or for such a conflict:
        nothing is written then. StorageError when a trial is being run here, or its folder cannot be written: what was
        taken in until then stays, whole, and the same command goes on.
    """
    with opened(place) as bundle:
        taken = _checked(bundle)
        if not replacing:
            _refuse_conflicts(bundle, results)
        for trial in bundle.manifest.trials:
            became = _write(bundle, trial, store.runs_folder(results, trial.suite), replacing=replacing)
            taken = replace(taken, **{became: getattr(taken, became) + 1})
        return replace(taken, differing=tuple(_differing(bundle, results)))


def _checked(bundle: Bundle) -> Taken:
    """Verify every file; what is to be said of the records, of which none is taken in yet."""
    known, unjudged, uncertified, warnings = KnownContents(), 0, 0, []
    for trial in bundle.manifest.trials:
        record = _record(bundle, trial)
        try:
            unjudged += known.of(record) is None
        except RecordError as misfit:
            raise RecordError(f"{bundle.place}: {misfit}") from misfit
        uncertified += record.uncertified
        if record.message.startswith(store.CONTRADICTED):
            warnings.append(f"trial {record.id}: {record.message}; it counts as invalid")
        for name in trial.files.keys() & BESIDE:
            check_beside(name, bundle.content(trial, name), record, bundle.source(trial, name))
    return Taken(
        unjudged=unjudged,
        uncertified=uncertified,
        warnings=tuple(warnings),
        other_code=_of_other_code(bundle),
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
    """That no trial has a different record here."""
    found = [
        f"{trial.suite}/{trial.id}"
        for trial in bundle.manifest.trials
        if _stands_against(store.runs_folder(results, trial.suite), _record(bundle, trial))
    ]
    if found:
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise RecordError(
            f"{results / 'runs'} holds other records of {len(found)} of these trials: {', '.join(found[:SHOWN])}{more}"
            "; nothing was imported; with --replace they are set aside"
        )


def _differing(bundle: Bundle, results: Path) -> Iterator[str]:
    """A sentence for each imported trial of which another suite has different results below a results folder."""
    suites = sorted(place.name for place in (results.resolve() / "runs").iterdir() if place.is_dir())
    for trial in bundle.manifest.trials:
        ours = _here(store.runs_folder(results, trial.suite), trial.id)
        for suite in suites:
            other = _here(store.runs_folder(results, suite), trial.id) if suite != trial.suite else None
            if ours and other and agreement.contradicting([ours, other]):
                yield f"trial {trial.id} has different results in the suites {trial.suite} and {suite}"
                break


def _here(runs: Path, trial_id: str) -> TrialRecord | None:
    """A trial's record; None where there is none that verifies."""
    return store.load_all(runs, [trial_id])[0].get(trial_id)


def _stands_against(runs: Path, record: TrialRecord) -> bool:
    here = _here(runs, record.id)
    return here is not None and here != record


def _write(bundle: Bundle, trial: Trial, runs: Path, *, replacing: bool) -> str:
    """Write what is not here of a trial, its record last: that is what makes it finished. Returns what became of it."""
    record, folder = _record(bundle, trial), store.folder(runs, trial.id)
    with store.writing(runs, trial.id, wait=0):
        here = _here(runs, trial.id)
        if here is not None and here != record and not replacing:
            raise StorageError(f"trial {trial.id} was finished here meanwhile, differently; the same command says more")
        if here != record:
            store.set_aside(runs, trial.id)
            for name in BESIDE:  # they are of another training
                (folder / name).unlink(missing_ok=True)
        for name in trial.files.keys() & BESIDE:
            if not _is_beside(name, record, folder):
                write_atomically(folder / name, bundle.content(trial, name))
        if here != record:
            write_atomically(folder / store.FILE_NAME, bundle.content(trial, store.FILE_NAME))
    return "known" if here == record else "new" if here is None else "replaced"


def _is_beside(name: str, record: TrialRecord, folder: Path) -> bool:
    """Whether a file lies beside a record that is the record's."""
    try:
        content = sealed.read(folder / name, FILES[name])
        if content is not None:
            check_beside(name, content, record, folder / name)
        return content is not None
    except RecordError:
        return False
