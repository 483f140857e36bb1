"""Makes the file of a submission out of a results folder: everything that it lacks is found first."""

import inspect
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import harness
from harness import plan
from harness.code import hashes
from harness.errors import HarnessError, SuiteError
from harness.extensions import needed
from harness.plan.reader import suite_name
from harness.plan.suite import Row
from harness.records import choices, sidecars, store
from harness.records.record import TrialRecord
from harness.registry import HEADS
from harness.submissions import archive, released, source_rules
from harness.submissions.card import NEW_CARD, Card, FullCard, core_hours_of, hardware_of, read_card
from harness.submissions.inside import ENDED, planned_rows, planned_trials

SENT = (store.FILE_NAME, sidecars.TIMING.file, sidecars.TOKEN_NLL.file)  # of each trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be submitted.

    Args:
        suite: the name of a suite that comes with the harness.
        head: the entry of `heads`, as YAML.
        card: the file of the author's card.
        source: the file of the head's source; None: where its class is, if it is not of the harness.
        results: the results folder with its trials.
        to: the folder of submissions.
    """

    suite: str
    head: str
    card: Path
    source: Path | None
    results: Path
    to: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The file that was written, and what is in it."""

    place: Path
    card: FullCard
    trials: int
    tuning: int
    source: Path | None


def make(wish: Wish) -> Made:
    """Write the file of a submission, <to>/<suite>/<head>-<date>.zip.

    Raises: SuiteError with a sentence for each thing that is missing; nothing was written then.
    """
    faults: list[str] = []
    card = _card(wish.card, faults)
    rows, records = _planned(wish, faults)
    sent = _complete(wish.head, rows, records, faults) if records is not None else []
    name, source = _source(wish, card, faults)
    if faults:
        raise SuiteError(faults)
    today = datetime.now(UTC).date().isoformat()
    computed = {"hardware": hardware_of(sent), "core_hours": core_hours_of(sent), "harness": harness.__version__}
    about = {"suite": records.suite.name, "head": wish.head, "date": today, **computed}
    full = FullCard.model_validate({**card.model_dump(), **about})
    place = wish.to / full.suite / f"{name}-{today}.zip"
    if place.exists():
        raise SuiteError([f"{place} exists already; move it away, or name another folder by --to"])
    parts = {archive.CARD: full.model_dump_json(indent=1, exclude_none=True).encode()}  # JSON is YAML
    if source is not None:
        parts[archive.SOURCE] = source.read_bytes()
    parts[archive.RECORDS] = _exported(records, rows, sent)
    for part, content in parts.items():
        if len(content) > archive.MOST[part]:
            raise SuiteError([f"{part} has {len(content):,} bytes, expected at most {archive.MOST[part]:,}"])
    archive.write(place, parts)
    tuning = sum(each.tuning for each in sent)
    return Made(place=place, card=full, trials=len(sent) - tuning, tuning=tuning, source=source)


def _card(place: Path, faults: list[str]) -> Card | None:
    try:
        card = read_card(place, Card)
    except SuiteError as fault:
        faults += fault.problems
        return None
    if any(text in NEW_CARD for text in (card.name, card.sentence, *card.authors)):
        faults.append(f"{place}: its name, sentence or authors are still those of a new card")
    return card


def _planned(wish: Wish, faults: list[str]) -> tuple[list[Row], choices.Records | None]:
    """The rows of the head in the suite as it is released, and its records."""
    try:
        archive.head_of(wish.head)
        suite = plan.load(released.suite_file(suite_name(wish.suite)), (f"heads+={wish.head}",))
        records = choices.read(suite, wish.results, faults.append)
        return planned_rows(records.suite), records
    except SuiteError as fault:
        faults += fault.problems
    except HarnessError as fault:
        faults.append(str(fault))
    return [], None


def _complete(head: str, rows: Sequence[Row], records: choices.Records, faults: list[str]) -> list[TrialRecord]:
    """The records of some rows. Adds a sentence for each thing that is missing."""
    name, _ = archive.head_of(head)
    command = f"`harness run {records.suite.name} --set 'heads+={head}' --only head={name}` trains what is missing"
    ids, lacking = planned_trials(rows, records)
    faults += [f"{each}; {command}" for each in lacking]
    sent = [records.found[trial] for trial in ids if trial in records.found]
    runs = records.runs
    for record in sent:
        if record.status not in ENDED:
            faults.append(f"trial {record.id} has the status '{record.status}'; --retry-failed runs it again")
        elif record.status == "ok" and not record.tuning:
            if record.certificate is None:
                faults.append(f"trial {record.id} has no certificate ({record.uncertified})")
            if not (store.folder(runs, record.id) / sidecars.TOKEN_NLL.file).is_file():
                faults.append(f"trial {record.id} has no scores of its test tokens ({sidecars.TOKEN_NLL.file})")
    return sent


def _source(wish: Wish, card: Card | None, faults: list[str]) -> tuple[str, Path | None]:
    """The name of the head, and the file of its source; None for a head of the harness."""
    try:
        name, _ = archive.head_of(wish.head)
        place = wish.source or Path(inspect.getfile(HEADS.get(name)))
    except (HarnessError, TypeError, OSError):  # which was reported with the plan
        return "", None
    if wish.source is None and hashes.is_listed("head", name):
        return name, None
    if not place.is_file():
        faults.append(f"{place}: no such file; name the head's source by --source")
        return name, None
    faults += [f"{place}: {each}" for each in source_rules.faults(place.read_text(encoding="utf-8", errors="replace"))]
    if card is not None and card.licence is None:
        faults.append(f"{wish.card}: it names no licence of {place}; add a line like 'licence: Apache-2.0'")
    return name, place


def _exported(records: choices.Records, rows: Sequence[Row], sent: Sequence[TrialRecord]) -> bytes:
    """What `harness export` writes of some trials, and of the choices of their rows alone."""
    suite = records.suite.name
    with tempfile.TemporaryDirectory(prefix="harness-submission-") as folder:
        results = Path(folder)
        runs = store.runs_folder(results, suite)
        for record in sent:
            target = store.folder(runs, record.id)
            target.mkdir(parents=True)
            for name in SENT:
                if (file := store.folder(records.runs, record.id) / name).is_file():
                    shutil.copyfile(file, target / name)
        if made := [row.choice for row in rows if row.choice is not None]:
            choices.save(runs, made)
        needed("harness.exchange.copying:export_records", "a submission")(results, results / archive.RECORDS)
        return (results / archive.RECORDS).read_bytes()
