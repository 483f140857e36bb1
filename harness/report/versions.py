"""The versions of the code that made the records of a table.

A version is the code of one head, backbone and corpus (harness/code/hashes.py). The numbers of a row are of records of
one version: the present code if there are such records, else the version with the most records
(of several, the newest). Records that do not contain their version are included, and a note gives their number.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from harness.code import hashes
from harness.code.hashes import KINDS
from harness.records.record import TrialRecord
from harness.report.content import OUTDATED_MARK

if TYPE_CHECKING:
    from harness.report.row_facts import RowFacts

Changed = Mapping[str, tuple[str, ...]]  # trial id -> those of KINDS whose code has changed
Version = tuple[str, ...]  # hashes, in the order of KINDS


def changed(records: Iterable[TrialRecord]) -> Changed:
    """The ok records whose code has changed since they were made, by trial id."""
    found = {record.id: hashes.changed(record) for record in records if record.status == "ok"}
    return {trial: kinds for trial, kinds in found.items() if kinds}


def of_other_code(records: Iterable[TrialRecord], outdated: Changed) -> frozenset[str]:
    """The trials of a row that are ok, but of another version than the numbers of the row."""
    known = _versions(records, outdated)
    candidates = [(record, version) for record, version in known if record.id not in outdated] or known
    votes = Counter(version for _, version in candidates)
    newest: dict[Version, str] = {}
    for record, version in candidates:
        newest[version] = max(newest.get(version, ""), record.environment.finished)
    chosen = max(votes, key=lambda version: (votes[version], newest[version]), default=None)
    return frozenset(record.id for record, version in known if version != chosen)


def of_rows(named: Iterable[tuple[str, "RowFacts"]], outdated: Changed) -> list[str]:
    """A note on each row whose records are of several versions, or of another version than the present code."""
    names: dict[str, list[str]] = {}
    for name, row in named:
        if row.outdated:
            number, files = _made_by(list(row.records.values()), outdated)
            note = f"trained before {files} changed; the numbers are of the earlier code."
            if number > 1:
                seeds = f"{'seed' if len(row.ok_seeds) == 1 else 'seeds'} {', '.join(map(str, row.ok_seeds))}"
                note = f"trained by {number} versions of {files}. The numbers are of {seeds} only."
            names.setdefault(note, []).append(name)
    return [f"{OUTDATED_MARK} {'; '.join(of)}: {note}" for note, of in names.items()]


def of_tuning(named: Iterable[tuple[str, list[TrialRecord]]], outdated: Changed) -> list[str]:
    """A note on each row whose tuning trials are of several versions, or of another version than the present code."""
    names: dict[str, list[str]] = {}
    for name, records in named:
        number, files = _made_by(records, outdated)
        if files:
            made = f"by {number} versions of {files}" if number > 1 else f"before {files} changed"
            names.setdefault(made, []).append(name)
    return [
        f"{OUTDATED_MARK} {'; '.join(of)}: tuned {made}, so the present code may choose another point."
        for made, of in names.items()
    ]


def _made_by(records: Sequence[TrialRecord], outdated: Changed) -> tuple[int, str]:
    """By how many versions some records of one row were made, and the files whose code differs between them or has
    changed since; '' for none.
    """
    versions = dict.fromkeys(version for _, version in _versions(records, outdated))
    since = {kind for record in records for kind in outdated.get(record.id, ())}
    parts = []
    for at, kind in enumerate(KINDS):
        if kind in since or len({version[at] for version in versions}) > 1:
            parts.append(kind)
    return len(versions), ", ".join(hashes.place(kind, getattr(records[0].spec, kind).name) for kind in parts)


def _versions(records: Iterable[TrialRecord], outdated: Changed) -> list[tuple[TrialRecord, Version]]:
    """The ok records that contain their version, with it. Those whose code has not changed since are of one version,
    also if their source differs: it gives the same numbers.
    """
    known = [record for record in records if record.status == "ok" and record.code is not None]
    present = next((_version(record) for record in known if record.id not in outdated), None)
    return [(record, _version(record) if record.id in outdated else present) for record in known]


def _version(record: TrialRecord) -> Version:
    return tuple(getattr(record.code, kind) for kind in KINDS)
