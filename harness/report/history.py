"""What has been run below a results folder, and what it took: by suite and by trial, from records alone."""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.records import store, token_nll
from harness.records.plausible import moment
from harness.records.record import TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialHistory:
    """A trial that has a record. `minutes`: of training, None where it got to none; `finished`: as recorded;
    `token_scores`: whether the scores of its tokens lie beside it, None where it is not ok.
    """

    id: str
    head: str
    backbone: str
    corpus: str
    seed: int
    status: str
    test_ppl: float | None
    minutes: float | None
    device: str
    finished: str
    token_scores: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteHistory:
    """The records of one suite.

    Args:
        records: their number by status.
        interrupted: trials that have a checkpoint and no record.
        device_minutes: training, summed over the records and, of data-parallel trials, over their devices.
        wall_minutes: from the first start of a trial to the last end, whatever lay between; None without a record.
        finished: the last end, UTC.
        devices: what the records name.
        bytes: of everything in the suite's folder.
    """

    suite: str
    records: dict[str, int]
    interrupted: int
    device_minutes: float
    wall_minutes: float | None
    finished: str | None
    devices: tuple[str, ...]
    bytes: int


def suites(results: Path) -> list[str]:
    """The names of the folders below results/runs that hold trials, sorted."""
    runs = results / "runs"
    folders = [place for place in runs.iterdir() if place.is_dir()] if runs.is_dir() else []
    return sorted(place.name for place in folders if _trial_ids(place))


def of_suite(results: Path, suite: str, tell: Callable[[str], None]) -> SuiteHistory:
    """A suite's records together; `tell` hears a sentence for each that does not verify, and so does not count."""
    runs, found = _found(results, suite, tell)
    begun = store.interrupted(runs, _trial_ids(runs)) - found.keys()
    starts, ends = (
        [moment(getattr(record.environment, name)) for record in found.values()] for name in ("started", "finished")
    )
    return SuiteHistory(
        suite=suite,
        records=dict(Counter(record.status for record in found.values()).most_common()),
        interrupted=len(begun),
        device_minutes=sum(
            record.metrics.get("train_minutes", 0.0) * record.spec.train.data_parallel for record in found.values()
        ),
        wall_minutes=(max(ends) - min(starts)).total_seconds() / 60 if starts and ends else None,
        finished=max(ends).isoformat(timespec="seconds") if ends else None,
        devices=tuple(sorted({record.environment.device for record in found.values()})),
        bytes=_bytes(runs),
    )


def of_trials(results: Path, suite: str, tell: Callable[[str], None]) -> list[TrialHistory]:
    """A suite's trials, in the order in which they finished."""
    runs, found = _found(results, suite, tell)
    rows = [
        TrialHistory(
            id=record.id,
            head=str(record.spec.head),
            backbone=str(record.spec.backbone),
            corpus=str(record.spec.corpus),
            seed=record.spec.seed,
            status=record.status,
            test_ppl=record.metrics.get("test_ppl"),
            minutes=record.metrics.get("train_minutes"),
            device=record.environment.device,
            finished=record.environment.finished,
            token_scores=(store.folder(runs, record.id) / token_nll.FILE_NAME).is_file()
            if record.status == "ok"
            else None,
        )
        for record in found.values()
    ]
    return sorted(rows, key=lambda row: (row.finished, row.id))


def _found(results: Path, suite: str, tell: Callable[[str], None]) -> tuple[Path, dict[str, TrialRecord]]:
    runs = store.runs_folder(results, suite)
    found, warnings = store.load_all(runs, _trial_ids(runs))
    for warning in warnings:
        tell(warning)
    return runs, found


def _trial_ids(runs: Path) -> list[str]:
    return sorted(place.name for place in runs.iterdir() if place.is_dir() and not place.name.startswith("."))


def _bytes(folder: Path) -> int:
    """Of all files below a folder; links count as links, and what is gone by now as nothing."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue
    return total
