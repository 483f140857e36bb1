"""Records out of a results folder, into one file."""

import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import harness
from harness.errors import RecordError, StorageError
from harness.exchange.bundle import BESIDE, FILES, MANIFEST, Manifest, Trial, add, check_beside, new
from harness.machine.files import atomically
from harness.plan.specs import SUITE_NAME, TRIAL_ID
from harness.records import sealed, store
from harness.records.token_nll import FILE_NAME as TOKEN_SCORES
from harness.registry import nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What an export wrote: trials, suites, and of each kind of file beside a record how many."""

    trials: int
    suites: int
    beside: dict[str, int]


def export(
    results: Path,
    place: Path,
    *,
    suites: tuple[str, ...] = (),
    token_nll: bool = True,
    tell: Callable[[str], None] = lambda sentence: None,
) -> Written:
    """Write the verified records below a results folder, of some suites or of all, and what lies beside them but for
    weights, logs and checkpoints. Equal files give equal bytes.

    Args:
        token_nll: take the scores of tokens along, by far the largest part.
        tell: hears a sentence for each file that does not verify, and is left out.
    Raises: RecordError when there is nothing to write, a suite has no records, or one file does not hold them;
        StorageError when the file is there already or cannot be written.
    """
    folders = _folders(results, suites)
    if place.exists():
        raise StorageError(f"{place} is there already; name another file, or remove it")
    beside = [name for name in BESIDE if token_nll or name != TOKEN_SCORES]
    trials = []
    try:
        with atomically(place) as file, new(file) as archive:
            for folder in folders:
                suite, trial = folder.parent.name, folder.name
                files = _files(folder, beside, tell)
                packed = {name: add(archive, f"{suite}/{trial}/{name}", content) for name, content in files.items()}
                if packed:
                    trials.append(Trial(suite=suite, id=trial, files=packed))
            if not trials:
                raise RecordError(f"{results / 'runs'} holds no record that verifies")
            manifest = Manifest(harness=harness.__version__, trials=tuple(trials))
            add(archive, MANIFEST, manifest.model_dump_json(indent=1).encode())
    except zipfile.LargeZipFile as cause:
        raise RecordError(
            "a file of records holds 2 GiB in 65,535 files, these are more: export one suite at a time (--suite), "
            "or leave out the scores of tokens (--no-token-nll)"
        ) from cause
    counts = {name: sum(name in trial.files for trial in trials) for name in beside}
    return Written(trials=len(trials), suites=len({trial.suite for trial in trials}), beside=counts)


def _folders(results: Path, suites: tuple[str, ...]) -> list[Path]:
    """The folders of trials that have a record, by suite and id."""
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


def _files(folder: Path, beside: list[str], tell: Callable[[str], None]) -> dict[str, bytes]:
    """A trial's record and those files beside it that are the record's, by name; none where the record is none."""
    place = folder / store.FILE_NAME
    try:
        content = sealed.read(place, store.MAX_BYTES)
        if content is None:
            return {}
        record = store.parsed(content, folder.name, place)
        if record.suite != folder.parent.name:
            raise RecordError(f"{place}: holds a record of the suite '{record.suite}'")
    except RecordError as damaged:
        tell(str(damaged))
        return {}
    files = {store.FILE_NAME: content}
    for name in beside:
        try:
            found = sealed.read(folder / name, FILES[name])
            if found is not None:
                check_beside(name, found, record, folder / name)
                files[name] = found
        except RecordError as damaged:
            tell(str(damaged))
    return files
