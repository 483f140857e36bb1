"""Copies records between a results folder and one file. Everything in a file is checked before anything is written."""

import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import harness
from harness.code.hashes import is_outdated
from harness.errors import RecordError, StorageError, nearest
from harness.exchange.bundle import MANIFEST, Bundle, BundledTrial, Files, Manifest, add, choices_path, opened
from harness.machine.files import atomically, lacks_room, write_atomically, write_fault
from harness.plan.specs import SUITE_NAME, TRIAL_ID
from harness.plan.tuning import Choice
from harness.printable import counted
from harness.records import choices, sealed, store
from harness.records.contents import confirmed, without_folders
from harness.records.record import TrialRecord
from harness.records.replicates import NO_RESULT, Replicates, Seeds, result
from harness.records.sidecars import REPLICATES, SIDECARS, TOKEN_NLL

BLOCK = 4096  # bytes of a disk that a file may take beyond its size
MAX_NAMED = 5  # trials that a message names
MOST_REPLICATES = 20  # of a trial
TOO_LARGE = (
    "an exported file holds at most 2 GiB in 65,535 files, and these are more: export one suite at a time (--suite), "
    "or leave out the scores of tokens (--no-token-nll)"
)
NOTED = {  # what an import says of some of the records
    "of unknown id": "{} whose id could not be checked: made with plug-ins, or by another version",
    "outdated": "{} made by other code than is here; `harness plan` shows what is outdated",
}

Action = Literal["new", "known", "replicate", "replaced"]
Warn = Callable[[str], None]
Found = TypeVar("Found")


def export_records(
    results: Path,
    place: Path,
    *,
    suites: tuple[str, ...] = (),
    trials: tuple[str, ...] = (),
    token_nll: bool = True,
    warn: Warn = lambda sentence: None,
) -> list[BundledTrial]:
    """Write the verified records of a results folder into one file, with their timings, scores of tokens and
    diagnostics, and the choices of suites with `tune`, but without weights, logs and checkpoints. Of the paths of texts
    and models only the last part is written. The same records give the same bytes.

    Args:
        place: the file to write. It must not exist.
        suites: only these suites; () for all.
        trials: only the trials with these ids; () for all.
        warn: receives a sentence for each file that does not verify. Such a file is left out.
    Returns: the trials that were written.
    Raises: RecordError when there is no record to write, a suite or trial has none, or they are too large for one file;
        StorageError when the file exists already or cannot be written.
    """
    folders = _folders(results, suites, trials)
    if place.exists():
        raise StorageError(f"{place} exists already; name another file, or remove it")
    if not place.absolute().parent.is_dir():
        raise StorageError(f"there is no folder {place.parent} for {place.name}; make it, or name another one")
    beside = [name for name in SIDECARS if token_nll or name != TOKEN_NLL.file]
    try:
        with atomically(place) as file, zipfile.ZipFile(file, "w", allowZip64=False) as archive:
            written = [trial for folder in folders if (trial := _add_trial(archive, folder, beside, warn)) is not None]
            if not written:
                raise RecordError(f"{results / 'runs'} holds no record that verifies")
            for suite in {trial.suite: None for trial in written}:
                content = _verified(partial(_choices, store.runs_folder(results, suite) / choices.FILE_NAME), warn)
                if content is not None:
                    add(archive, choices_path(suite), content)
            add(archive, MANIFEST, Manifest(harness=harness.__version__).model_dump_json(indent=1).encode())
            return written
    except zipfile.LargeZipFile as cause:
        raise RecordError(TOO_LARGE) from cause


def _folders(results: Path, suites: tuple[str, ...], trials: tuple[str, ...]) -> list[Path]:
    """The folders of the chosen trials with a record, sorted by suite and id. Raises RecordError as export_records."""
    runs = results.resolve() / "runs"
    found = sorted(place.parent for place in runs.glob(f"*/*/{store.FILE_NAME}"))
    found = [each for each in found if re.fullmatch(SUITE_NAME, each.parent.name) and re.fullmatch(TRIAL_ID, each.name)]
    known = sorted({each.parent.name for each in found})
    for suite in (each for each in suites if each not in known):
        others = f"{nearest(suite, known)} (known: {', '.join(known) or 'none'})"
        raise RecordError(f"{runs} holds no records of a suite '{suite}'{others}")
    found = [each for each in found if not suites or each.parent.name in suites]
    ids = {each.name for each in found}
    for trial in (each for each in trials if each not in ids):
        raise RecordError(f"no record of a trial '{trial}' among the {len(found)} that --suite and --results choose")
    return [each for each in found if not trials or each.name in trials]


def _add_trial(archive: zipfile.ZipFile, folder: Path, beside: list[str], warn: Warn) -> BundledTrial | None:
    """Write the record of a trial and what lies beside it; None when the record does not verify."""
    files = Files.in_folder(folder)
    if _verified(lambda: files.record, warn) is None:
        return None
    record = store.parsed(files.content(store.FILE_NAME), folder.name, folder / store.FILE_NAME)
    shown = without_folders(record)
    contents = {store.FILE_NAME: files.content(store.FILE_NAME) if shown == record else sealed.content_of(shown)}
    contents |= {name: _verified(partial(files.beside, name), warn) for name in beside}
    trial = BundledTrial(folder.parent.name, folder.name)
    for name, content in contents.items():
        if content is not None:
            add(archive, trial.path(name), content)
            trial.files[name] = len(content)
    return trial


def _choices(place: Path) -> bytes | None:
    """The content of a file of choices; None if there is none. Raises RecordError for one that does not verify."""
    content = sealed.read(place, choices.MAX_BYTES)
    if content is not None:
        choices.parsed(content, place.parent.name, place)
    return content


def _verified(read: Callable[[], Found], warn: Warn) -> Found | None:
    """What `read` returns; None with a warning for what does not verify."""
    try:
        return read()
    except RecordError as damaged:
        warn(str(damaged))
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import. `replaced`: records that replaced another one of the same trial; `replicate`: records of
    another training, which were added to the replicates of the record that is here.
    """

    new: int = 0
    replaced: int = 0
    known: int = 0
    replicate: int = 0
    warnings: tuple[str, ...] = ()


def import_records(place: Path, results: Path, *, replacing: bool = False) -> Imported:
    """Write the records of a file, with what lies beside them and choices of tuning, into a results folder.

    When the results folder already has a record, it stays: missing files beside it are written, and a record of another
    training of the trial becomes a replicate. A record of the results folder that does not verify is renamed and
    replaced, and so is one without a result (of a worker that died, for example).

    Args:
        replacing: rename and replace a record with another result of the same trial, and take the choices of tuning
            from the file where they differ.
    Raises: RecordError when the file is damaged or a record is not of its trial, and StorageError when the disk has no
        room for them: nothing was written then; StorageError when a trial is running, or its folder cannot be written:
        the same command writes the others.
    """
    with opened(place) as bundle:
        warnings, made, seeds = _checked(bundle, results, replacing=replacing)
        if not replacing:
            warnings += _others(bundle, results, seeds)
        how = Counter(_write(bundle, trial, results, seeds, replacing) for trial in bundle.trials)
        for suite, found in made.items():
            choices.save(store.runs_folder(results, suite), found)
        warnings += _differing(bundle, results, seeds)
        return Imported(**how, warnings=tuple(warnings))


def _checked(bundle: Bundle, results: Path, *, replacing: bool) -> tuple[list[str], dict[str, list[Choice]], Seeds]:
    """Verify every file of an archive. Its records may be too large to be held in memory, so each is read alone.

    Returns: sentences; the choices of each suite with `tune` that are to be written; the perplexities of the seeds of
        each row, in the file and here.
    """
    number, warnings, tuned, made, seeds, needed = Counter(), [], {}, {}, Seeds(), 0
    for trial in bundle.trials:
        files = bundle.files(trial)
        record = files.record
        for name in SIDECARS:
            files.beside(name)
        try:
            number["of unknown id"] += confirmed(record) is None
        except RecordError as fault:
            raise RecordError(f"{bundle.place}: {fault}") from fault
        number["outdated"] += is_outdated(record)
        if record.message.startswith(store.CONTRADICTED):
            warnings.append(f"trial {record.id}: {record.message}; it counts as invalid")
        here = _here(results, trial.suite, trial.id)
        if here is None or without_folders(here) != without_folders(record):
            needed += sum(size + BLOCK for size in trial.files.values())
        for each in (here, record):
            if each is not None:
                seeds.add(each)
        if record.tuning:
            tuned[trial.suite, trial.id] = choices.perplexity(record)
    for suite in bundle.tuned:
        place = bundle.place / choices_path(suite)
        here = choices.readable(store.runs_folder(results, suite), lambda damage: None)
        before = {frozenset(each.valid_ppl): each.trial for each in here}
        made[suite] = []
        for choice in choices.parsed(bundle.content(choices_path(suite)), suite, place):
            if wrong := [each for each, ppl in choice.valid_ppl.items() if tuned.get((suite, each), ppl) != ppl]:
                raise RecordError(f"{place}: the choice of '{choice.row}' contradicts the record of trial {wrong[0]}")
            if before.get(frozenset(choice.valid_ppl), choice.trial) == choice.trial or replacing:
                made[suite].append(choice)
            else:
                warnings.append(
                    f"{suite}, {choice.row}: tuning chose another point there; the choice that is here is kept "
                    "(--replace takes that of the file)"
                )
    if reason := write_fault(results / "runs"):
        raise StorageError(
            f"{results / 'runs'} cannot be written ({reason}); nothing was written: name another folder by --results"
        )
    if lack := lacks_room(results / "runs", needed):
        raise StorageError(
            f"the records of {bundle.place} {lack}; nothing was written: free some room, or name another folder by "
            "--results"
        )
    warnings += [NOTED[what].format(counted(number[what], "record")) for what in NOTED if number[what]]
    return warnings, made, seeds


def _others(bundle: Bundle, results: Path, seeds: Seeds) -> list[str]:
    """A sentence that names the trials of which the results folder has another result, with both perplexities."""
    others = []
    for trial in bundle.trials:
        here = _here(results, trial.suite, trial.id)
        if here is not None and seeds.relation(here, record := bundle.files(trial).record) == "different":
            others.append(f"{trial.suite}/{trial.id} ({result(here)} here, {result(record)} there)")
    if not others:
        return []
    more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
    return [
        f"{counted(len(others), 'trial')} with another result here, further apart than rounding explains (harness docs "
        f"certificates): {', '.join(others[:MAX_NAMED])}{more}; the records that are here count, and those of the file "
        "are kept as replicates; --replace takes them instead"
    ]


def _differing(bundle: Bundle, results: Path, seeds: Seeds) -> Iterator[str]:
    """A sentence for each imported trial that has different results in another suite of the results folder."""
    runs = results.resolve() / "runs"
    suites = sorted(place.name for place in runs.iterdir() if place.is_dir())
    for trial in bundle.trials:
        others = [suite for suite in suites if suite != trial.suite and (runs / suite / trial.id).is_dir()]
        ours = _here(results, trial.suite, trial.id) if others else None
        for suite in others:
            other = _here(results, suite, trial.id)
            if ours and other and seeds.contradiction([ours, other]):
                two = f"the suites {trial.suite} ({result(ours)}) and {suite} ({result(other)})"
                yield f"trial {trial.id} has different results in {two}; the leaderboard leaves it out"
                break


def _here(results: Path, suite: str, trial_id: str) -> TrialRecord | None:
    """The record of a trial in the results folder, or None when there is none that verifies."""
    return store.load_all(store.runs_folder(results, suite), [trial_id])[0].get(trial_id)


def _action(here: TrialRecord | None, record: TrialRecord, seeds: Seeds, replacing: bool) -> Action:
    """What an import does with a record, given the one of the same trial that is here."""
    if here is None:
        return "new"
    if without_folders(here) == without_folders(record):
        return "known"
    relation = seeds.relation(here, record)
    if relation == "unknown" or here.tuning != record.tuning:
        has_result = here.status in NO_RESULT and record.status not in NO_RESULT
        of_table = here.tuning and not record.tuning
        return "replaced" if has_result or of_table else "known"
    return "replaced" if replacing and relation == "different" else "replicate"


def _write(bundle: Bundle, trial: BundledTrial, results: Path, seeds: Seeds, replacing: bool) -> Action:
    """Write the missing files of a trial. The record is written last, because a trial with a record is finished."""
    runs, files = store.runs_folder(results, trial.suite), bundle.files(trial)
    record, folder = files.record, store.folder(runs, trial.id)
    with store.writing(runs, trial.id, wait=0):
        here = _here(results, trial.suite, trial.id)
        action = _action(here, record, seeds, replacing)
        replaces = action in ("new", "replaced")
        if replaces:
            store.set_aside(runs, trial.id)
            for name in SIDECARS:  # they belong to another training
                (folder / name).unlink(missing_ok=True)
        kept = record if replaces else here
        if kept.weights_sha256 == record.weights_sha256:
            for name in (trial.files.keys() & SIDECARS) - {REPLICATES.file}:
                if _verified(partial(Files.in_folder(folder).beside, name), lambda damage: None) is None:
                    write_atomically(folder / name, files.content(name))
        others = [record] if action == "replicate" else []
        if (content := files.beside(REPLICATES.file)) is not None:
            others += REPLICATES.parsed(content, record, folder)
        if not _add_replicates(runs, kept, others) and action == "replicate":
            action = "known"
        if replaces:
            write_atomically(folder / store.FILE_NAME, files.content(store.FILE_NAME))
    return action


def _add_replicates(runs: Path, record: TrialRecord, more: Iterable[TrialRecord]) -> int:
    """Add records of other trainings of a trial to the replicates beside its record: each once, and MOST_REPLICATES at
    most. A file that is damaged is replaced. Returns: how many were added. Raises: StorageError.
    """
    try:
        before = REPLICATES.load(runs, record) or ()
    except RecordError:
        before = ()
    kept = list(before)
    for each in more:
        known = [without_folders(one) for one in (record, *kept)]
        if without_folders(each) not in known and len(kept) < MOST_REPLICATES:
            kept.append(each)
    added = len(kept) - len(before)
    if added:
        sealed.save(Replicates(trial=record.id, records=tuple(kept)), store.folder(runs, record.id) / REPLICATES.file)
    return added
