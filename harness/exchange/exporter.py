"""Writes the records of a results folder into one file."""

import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import harness
from harness.errors import RecordError, StorageError, nearest
from harness.exchange.bundle import (
    FILES,
    MANIFEST,
    Manifest,
    Member,
    Trial,
    add,
    check_beside,
    choices_path,
    new,
)
from harness.machine.files import atomically
from harness.plan.specs import SUITE_NAME, TRIAL_ID
from harness.records import choices, sealed, store
from harness.records.sidecars import SIDECARS, TOKEN_NLL

TOO_LARGE = (
    "an exported file holds at most 2 GiB in 65,535 files, and these are more: export one suite at a time (--suite), "
    "or leave out the scores of tokens (--no-token-nll)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export wrote.

    Args:
        trials: the number of trials.
        suites: the number of suites.
        beside: for each kind of file beside a record, the number of such files.
    """

    trials: int
    suites: int
    beside: dict[str, int]


def export_records(
    results: Path,
    place: Path,
    *,
    suites: tuple[str, ...] = (),
    trials: tuple[str, ...] = (),
    token_nll: bool = True,
    warn: Callable[[str], None] = lambda sentence: None,
) -> Exported:
    """Write the verified records of a results folder into one file, with their timings, scores of tokens and
    diagnostics, and the choices of suites with `tune`, but without weights, logs and checkpoints. The same records give
    the same bytes.

    Args:
        results: the results folder.
        place: the file to write. It must not exist.
        suites: only these suites; () for all.
        trials: only the trials with these ids; () for all.
        token_nll: include the scores of tokens, which are by far the largest part.
        warn: receives a sentence for each file that does not verify. Such a file is left out.

    Raises:
        RecordError: there is no record to write, a suite or trial has no record, or they are too large for one file.
        StorageError: the file exists already or cannot be written.
    """
    folders = _of_trials(_folders(results, suites), trials)
    if place.exists():
        raise StorageError(f"{place} exists already; name another file, or remove it")
    beside = [name for name in SIDECARS if token_nll or name != TOKEN_NLL.file]
    try:
        with atomically(place) as file, new(file) as archive:
            written = _add_trials(archive, folders, beside, warn)
            if not written:
                raise RecordError(f"{results / 'runs'} holds no record that verifies")
            tuning = _add_choices(archive, results, sorted({trial.suite for trial in written}), warn)
            manifest = Manifest(harness=harness.__version__, trials=written, tuning=tuning)
            unused = set() if tuning else {"tuning"}
            add(archive, MANIFEST, manifest.model_dump_json(indent=1, exclude=unused).encode())
    except zipfile.LargeZipFile as cause:
        raise RecordError(TOO_LARGE) from cause
    counts = {name: sum(name in trial.files for trial in written) for name in beside}
    return Exported(trials=len(written), suites=len({trial.suite for trial in written}), beside=counts)


def _add_trials(
    archive: zipfile.ZipFile, folders: list[Path], beside: list[str], warn: Callable[[str], None]
) -> tuple[Trial, ...]:
    """Write the files of trials into an archive, and return what the manifest says of them."""
    trials = []
    for folder in folders:
        suite, trial = folder.parent.name, folder.name
        files = _files(folder, beside, warn)
        members = {name: add(archive, f"{suite}/{trial}/{name}", content) for name, content in files.items()}
        if members:
            trials.append(Trial(suite=suite, id=trial, files=members))
    return tuple(trials)


def _add_choices(
    archive: zipfile.ZipFile, results: Path, suites: list[str], warn: Callable[[str], None]
) -> dict[str, Member]:
    """Write the choices of suites with `tune` into an archive, and return what the manifest says of them."""
    found = {}
    for suite in suites:
        place = store.runs_folder(results, suite) / choices.FILE_NAME
        try:
            content = sealed.read(place, choices.MAX_BYTES)
            if content is not None:
                choices.parsed(content, suite, place)
                found[suite] = add(archive, choices_path(suite), content)
        except RecordError as damaged:
            warn(str(damaged))
    return found


def _folders(results: Path, suites: tuple[str, ...]) -> list[Path]:
    """The folders of trials with a record, sorted by suite and id."""
    runs = results.resolve() / "runs"
    found = sorted(place.parent for place in runs.glob(f"*/*/{store.FILE_NAME}"))
    trials = [
        each for each in found if re.fullmatch(SUITE_NAME, each.parent.name) and re.fullmatch(TRIAL_ID, each.name)
    ]
    known = sorted({each.parent.name for each in trials})
    for suite in suites:
        if suite not in known:
            others = f"{nearest(suite, known)} (known: {', '.join(known) or 'none'})"
            raise RecordError(f"{runs} holds no records of a suite '{suite}'{others}")
    return [each for each in trials if not suites or each.parent.name in suites]


def _of_trials(folders: list[Path], trials: tuple[str, ...]) -> list[Path]:
    """The folders of some trials. Raises RecordError when one has no record there."""
    for trial in trials:
        if trial not in {each.name for each in folders}:
            raise RecordError(
                f"no record of a trial '{trial}' among the {len(folders)} that --suite and --results choose"
            )
    return [each for each in folders if not trials or each.name in trials]


def _files(folder: Path, beside: list[str], warn: Callable[[str], None]) -> dict[str, bytes]:
    """The record of a trial and the files beside it that belong to this record: name -> content. Empty when the record
    does not verify.
    """
    place = folder / store.FILE_NAME
    try:
        content = sealed.read(place, store.MAX_BYTES)
        if content is None:
            return {}
        record = store.parsed(content, folder.name, place)
        if record.suite != folder.parent.name:
            raise RecordError(f"{place}: holds a record of the suite '{record.suite}'")
    except RecordError as damaged:
        warn(str(damaged))
        return {}
    files = {store.FILE_NAME: content}
    for name in beside:
        try:
            found = sealed.read(folder / name, FILES[name])
            if found is not None:
                check_beside(name, found, record, folder / name)
                files[name] = found
        except RecordError as damaged:
            warn(str(damaged))
    return files
