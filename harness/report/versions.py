"""The versions of the code that made the records of a table.

A version is the code of one head, backbone and corpus, and of the harness (harness.code.fingerprints). The numbers of a
row are of records of one version: the present code if there are such records, else the version with the most records
(of several, the newest). Records that do not contain their version are included, and a note gives their number.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from harness.code import fingerprints
from harness.code.fingerprints import KINDS, SHOWN
from harness.plan.specs import TrialSpec
from harness.records.record import UNKNOWN, TrialRecord
from harness.report.content import OUTDATED_MARK
from harness.trial import behaviour

if TYPE_CHECKING:
    from harness.report.table_rows import Row

PARTS = (*KINDS, "harness")
Changed = Mapping[str, tuple[str, ...]]  # trial id -> those of PARTS whose code has changed
Version = tuple[str, ...]  # hashes, in the order of PARTS
NOTHING_CHANGED: Changed = MappingProxyType({})


def changed(records: Iterable[TrialRecord]) -> Changed:
    """The ok records whose code has changed since they were made, by trial id."""
    found = {record.id: behaviour.changed(record) for record in records if record.status == "ok"}
    return {trial: kinds for trial, kinds in found.items() if kinds}


def left_out(records: Iterable[TrialRecord], outdated: Changed) -> frozenset[int]:
    """The seeds of a row's records that are ok, but of another version than the numbers of the row."""
    known = _versions(records, outdated)
    # guard: version-here first
    candidates = [(record, version) for record, version in known if record.id not in outdated] or known
    votes = Counter(version for _, version in candidates)
    newest: dict[Version, str] = {}
    for record, version in candidates:
        newest[version] = max(newest.get(version, ""), record.environment.finished)
    chosen = max(votes, key=lambda version: (votes[version], newest[version]), default=None)
    # guard: one-version -> return frozenset()
    return frozenset(record.spec.seed for record, version in known if version != chosen)


def of_rows(named: Iterable[tuple[str, "Row"]], outdated: Changed) -> list[str]:
    """A note on each row whose records are of several versions, or of another version than the present code.

    Args:
        named: rows with their names.
    """
    names: dict[str, list[str]] = {}
    for name, row in named:
        if row.outdated:
            names.setdefault(_of_row(row, outdated), []).append(name)
    return [f"{OUTDATED_MARK} {'; '.join(of)}: {note}" for note, of in names.items()]


def of_tuning(named: Iterable[tuple[str, list[TrialRecord]]], outdated: Changed) -> list[str]:
    """A note on each row whose tuning trials are of several versions, or of another version than the present code.

    Args:
        named: the records of the tuning trials of each row, with the row's name.
    """
    names: dict[str, list[str]] = {}
    for name, records in named:
        since = {kind for record in records for kind in outdated.get(record.id, ())}
        versions = list(dict.fromkeys(version for _, version in _versions(records, outdated)))
        if differing := _differing(versions, since):
            files = _files(records[0].spec, differing)
            made = f"by {len(versions)} versions of {files}" if len(versions) > 1 else f"before {files} changed"
            names.setdefault(made, []).append(name)
    return [
        f"{OUTDATED_MARK} {'; '.join(of)}: tuned {made}, so the present code may choose another point."
        for made, of in names.items()
    ]


def of_harness(records: Iterable[TrialRecord]) -> list[str]:
    """A note on records made by several versions of the harness itself, and one on records without a version."""
    ok = [record for record in records if record.status == "ok"]
    made = Counter(record.code.harness for record in ok if record.code is not None)
    notes, silent = [], sum(record.code is None or UNKNOWN in record.code.components for record in ok)
    if len(made.keys() - {UNKNOWN}) > 1:
        counts = ", ".join(f"{count} by {sha256[:SHOWN]}" for sha256, count in made.most_common())
        notes.append(f"The records were made by {len(made)} versions of the harness' own code: {counts}.")
    if silent:
        notes.append(
            f"{silent} records do not say which code made them."
            if silent > 1
            else "1 record does not say which code made it."
        )
    return notes


def _of_row(row: "Row", outdated: Changed) -> str:
    versions: dict[Version, list[int]] = {}
    for record, version in _versions(row.records.values(), outdated):
        versions.setdefault(version, []).append(record.spec.seed)
    since = {kind for record in row.records.values() for kind in outdated.get(record.id, ())}
    differing = _differing(list(versions), since)
    files = _files(row.trials[0], differing)
    if len(versions) < 2:
        return f"trained before {files} changed; the numbers are of the earlier code."
    made = "; ".join(
        f"{_seeds(seeds)} by {', '.join(version[at][:SHOWN] for at in differing)}"
        + ("" if row.changed.intersection(seeds) else ", the present one")
        for version, seeds in versions.items()
    )
    return f"trained by {len(versions)} versions of {files}: {made}. The numbers are of {_seeds(row.ok_seeds)} only."


def _versions(records: Iterable[TrialRecord], outdated: Changed) -> list[tuple[TrialRecord, Version]]:
    """The ok records that contain their version, with it. Those whose code has not changed since are of one version,
    also if their source differs: they behave alike. So are the harness' own codes that behave alike.
    """
    known = [record for record in records if record.status == "ok" and record.code is not None]
    present = next((_components(record) for record in known if record.id not in outdated), None)
    edited = {record.id for record in known if "harness" in outdated.get(record.id, ())}
    here = fingerprints.harness_code().sha256 if edited else UNKNOWN  # one for all: it is read where it differs

    def version(record: TrialRecord) -> Version:
        components = _components(record) if record.id in outdated else present
        return (*components, record.code.harness if record.id in edited else here)

    return [(each, version(each)) for each in known]


def _components(record: TrialRecord) -> tuple[str, ...]:
    return tuple(map(fingerprints.moved, record.code.components))


def _differing(versions: list[Version], since: Container[str]) -> list[int]:
    """The indices of the parts whose code differs between versions, or has changed since."""
    return [at for at, kind in enumerate(PARTS) if kind in since or len({each[at] for each in versions}) > 1]


def _files(spec: TrialSpec, differing: Iterable[int]) -> str:
    """The files of the code of some parts of a trial."""
    parts = [PARTS[at] for at in differing]
    return ", ".join(
        "the harness' own code" if part == "harness" else str(fingerprints.code_of(part, getattr(spec, part).name))
        for part in parts
    )


def _seeds(seeds: Iterable[int]) -> str:
    """'seed 3', 'seeds 1, 2'."""
    texts = [str(seed) for seed in seeds]
    return f"seed{'s' * (len(texts) != 1)} {', '.join(texts)}"
