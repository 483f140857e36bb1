"""What an MLflow run shows of the results of `harness diagnose` beside a record. Nothing here imports MLflow."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.errors import RecordError
from harness.records import sidecars, store
from harness.records.record import TrialRecord
from harness.records.sidecars import Diagnosis
from harness.tracking.run_fields import Point, rounded

GROUP = "diagnostics"  # of charts in MLflow's UI: after the learning curves, in the order of the alphabet


def diagnosed_points(runs: Path, record: TrialRecord) -> list[Point]:
    """The numbers in the tables of diagnostics, of the newest result of each diagnostic: 'diagnostics/gates.used'.

    A damaged file counts as none: `harness diagnose` says so, and replaces it.
    """
    if not (store.folder(runs, record.id) / sidecars.DIAGNOSES.file).is_file():
        return []
    try:
        stored = sidecars.DIAGNOSES.load(runs, record) or ()
    except RecordError:
        return []
    newest: dict[str, Diagnosis] = {}
    for each in sorted(stored, key=lambda each: each.taken):
        newest[each.diagnostic] = each
    return list(_numbers(newest))


def checksum(points: Sequence[Point]) -> str:
    """The first digits of the SHA-256 of some numbers: a run that shows others is written again."""
    listed = "\n".join(sorted(f"{point.key} {point.value!r}" for point in points))
    return hashlib.sha256(listed.encode()).hexdigest()[:16]


def _numbers(newest: dict[str, Diagnosis]) -> Iterator[Point]:
    from harness.diagnostics.catalogue import DIAGNOSTICS  # here: it imports torch, which most folders do not need
    from harness.diagnostics.diagnosing import result_of

    for name, diagnostic in DIAGNOSTICS.items():
        result = result_of(newest[name], diagnostic) if name in newest else None
        for figure in diagnostic.figures if result is not None else ():
            if (value := figure.value(result)) is not None:
                yield Point(f"{GROUP}/{name}.{_key(figure.name)}", rounded(float(value)), 0)


def _key(name: str) -> str:
    """The name of a column, as MLflow allows it: 'centred: rank 1e-3' -> 'centred_rank_1e-3'."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", name).strip("_")
