"""Removes from a results folder what no run needs any more: `harness runs --prune`.

The records of trials that no suite plans are exported first. An archive is complete, on the disk, and compared with the
files of each trial before these are removed. So whenever the process is killed, each record is in the results folder,
in an archive, or in both. A trial whose lock another process holds is left alone.
"""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.errors import StorageError
from harness.exchange import bundle
from harness.exchange.exporter import export_records
from harness.exchange.unneeded import GONE, Unneeded, files_of_checkpoints
from harness.machine.files import read_bounded
from harness.records import store
from harness.records.record import TrialRecord
from harness.report.history import bytes_below
from harness.trial.run import RESUMABLE, tidy

FOLDER = "pruned"  # of the archives, in the results folder
MAX_BYTES, MAX_TRIALS = 2**30, 10_000  # of one archive


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was removed.

    Args:
        trials: the number of trials that no suite plans.
        bytes: the size of everything that was removed.
        archives: the files that hold the records of these trials.
        kept: a sentence for each trial that was left.
    """

    trials: int
    bytes: int
    archives: tuple[Path, ...]
    kept: tuple[str, ...]


def prune(results: Path, found: Iterable[Unneeded], warn: Callable[[str], None]) -> Pruned:
    """Remove what was found.

    Args:
        results: the results folder.
        warn: receives a sentence for each file beside a record that does not verify. Its trial is left.
    Raises: StorageError when an archive cannot be written. Then no trial of that archive was removed.
    """
    trials, removed, archives, kept = 0, 0, [], []
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
    for each in found:
        runs = store.runs_folder(results, each.suite)
        for number, ids in enumerate(_portions(each.unplanned), start=1):
            place = results / FOLDER / f"{each.suite}-{stamp}-{number}.zip"
            export_records(results, place, suites=(each.suite,), trials=tuple(ids), warn=warn)
            archives.append(place)
            with bundle.opened(place) as archive:
                for trial in archive.manifest.trials:
                    size, why = _remove_trial(runs, trial, archive)
                    trials, removed = trials + (not why), removed + size
                    kept += [f"trial {trial.id} of {each.suite} is kept: {why}"] if why else []
            kept += _left_out(archive, each.suite, ids)
        removed += sum(_remove_temporary(runs, place) for place in each.temporary)
        for trial in each.checkpoints:
            size, why = _remove_checkpoints(runs, trial)
            removed += size
            kept += [f"the checkpoints of trial {trial} of {each.suite} are kept: {why}"] if why else []
    return Pruned(trials=trials, bytes=removed, archives=tuple(archives), kept=tuple(kept))


def _portions(trials: Mapping[str, int]) -> Iterator[list[str]]:
    """Ids of trials, in lists whose folders have at most about MAX_BYTES."""
    portion, size = [], 0
    for trial, more in trials.items():
        if portion and (size + more > MAX_BYTES or len(portion) == MAX_TRIALS):
            yield portion
            portion, size = [], 0
        portion.append(trial)
        size += more
    if portion:
        yield portion


def _left_out(archive: bundle.Bundle, suite: str, ids: list[str]) -> list[str]:
    exported = {trial.id for trial in archive.manifest.trials}
    return [f"trial {each} of {suite} is kept: its record does not verify" for each in ids if each not in exported]


def _remove_trial(runs: Path, trial: bundle.Trial, archive: bundle.Bundle) -> tuple[int, str]:
    """Remove the folder of a trial that is in an archive. Returns its size, or 0 and why it is kept."""
    folder = store.folder(runs, trial.id)
    try:
        with store.writing(runs, trial.id, wait=0):
            if not _is_exported(folder, trial, archive):
                return 0, "its files have changed, or one of them does not verify"
            if aside := [name for name in (store.PREVIOUS, store.DAMAGED) if (folder / name).exists()]:
                return 0, f"it has {' and '.join(aside)}, which an export leaves out"
            size = bytes_below(folder)
            gone = folder.with_name(f"{GONE}{trial.id}-{time.time_ns()}")
            folder.rename(gone)  # at once: after a kill there is the whole trial, or what the next call removes
            shutil.rmtree(gone)
            return size, ""
    except StorageError:
        return 0, "another process is working on it"


def _is_exported(folder: Path, trial: bundle.Trial, archive: bundle.Bundle) -> bool:
    """Whether each file of a trial that an export has is in the archive, byte for byte."""
    present = {name for name in bundle.FILES if (folder / name).exists()}
    return present == trial.files.keys() and all(
        read_bounded(folder / name, bundle.FILES[name]) == archive.content(trial, name) for name in present
    )


def _remove_checkpoints(runs: Path, trial: str) -> tuple[int, str]:
    """Remove the checkpoints of a finished trial. Returns their size, or 0 and why they are kept."""
    try:
        with store.writing(runs, trial, wait=0):
            record = _finished(runs, trial)
            if record is None:
                return 0, "the trial is not finished any more"
            size = sum(place.stat().st_size for place in files_of_checkpoints(store.folder(runs, trial)))
            tidy(store.folder(runs, trial), record.status)
            return size, ""
    except StorageError:
        return 0, "another process is working on it"


def _finished(runs: Path, trial: str) -> TrialRecord | None:
    record = store.load_all(runs, [trial])[0].get(trial)
    return record if record is not None and record.status not in RESUMABLE else None


def _remove_temporary(runs: Path, place: Path) -> int:
    """Remove a temporary file or folder; returns its size."""
    if place.parent == runs:  # a folder: of a process that has ended, or of a trial that was exported
        size = bytes_below(place)
        shutil.rmtree(place, ignore_errors=True)
        return size
    try:
        size = place.lstat().st_size
        with store.writing(runs, place.parent.name, wait=0):  # removes what is stale in the folder of the trial
            return size
    except (StorageError, FileNotFoundError):
        return 0
