"""The history of a results folder, from its records: what has been run, and how long it took."""

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError
from harness.plan.reader import ENDING, FOLDER
from harness.records import sidecars, store
from harness.records.plausible import moment
from harness.records.record import TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialHistory:
    """A trial that has a record.

    Args:
        minutes: of training; None if it was not trained.
        token_scores: whether its token scores are stored; None if the trial is not ok, or is a tuning trial,
            which keeps none.
        bytes: size of all files in the trial's folder.
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
    bytes: int
    tuning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteHistory:
    """The records of one suite together.

    Args:
        device_minutes: training time, summed over the records, and for data-parallel trials over their devices.
        wall_minutes: from the first start of a trial to the last end, pauses included; None without a record.
        bytes: size of all files in the suite's folder.
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
    return sorted(place.name for place in folders if trial_ids(place))


def of_suite(results: Path, suite: str, warn: Callable[[str], None]) -> SuiteHistory:
    """The history of a suite. Records that do not verify are not used; `warn` is called with a sentence for each."""
    runs, found = store.runs_folder(results, suite), records_of(results, suite, warn)
    begun = store.interrupted(runs, trial_ids(runs)) - found.keys()
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
        bytes=bytes_below(runs),
    )


def of_trials(results: Path, suite: str, records: Mapping[str, TrialRecord]) -> list[TrialHistory]:
    """The finished trials of a suite, in the order in which they finished; `records`: all of them, by id."""
    runs, names = store.runs_folder(results, suite), _names(suite, records)
    rows = [
        TrialHistory(
            id=record.id,
            **{kind: of_kind[str(getattr(record.spec, kind))] for kind, of_kind in names.items()},
            seed=record.spec.seed,
            status=record.status,
            test_ppl=record.metrics.get("test_ppl"),
            minutes=record.metrics.get("train_minutes"),
            device=record.environment.device,
            finished=record.environment.finished,
            token_scores=(store.folder(runs, record.id) / sidecars.TOKEN_NLL.file).is_file()
            if record.status == "ok" and not record.tuning
            else None,
            bytes=bytes_below(store.folder(runs, record.id)),
            tuning=record.tuning,
        )
        for record in records.values()
    ]
    return sorted(rows, key=lambda row: (row.finished, row.id))


def _names(suite: str, records: Mapping[str, TrialRecord]) -> dict[str, dict[str, str]]:
    """Kind -> str(component) -> its name as in tables, with the labels of the suite's file. A component that is not
    known here is written in full.
    """
    from harness.plan.loading import labels  # here: with torch, which the list of suites need not wait for
    from harness.plan.names import names_of, shown
    from harness.registry import BACKBONES, CORPORA, HEADS

    given, names = labels(FOLDER / f"{suite}{ENDING}"), {}
    for kind, registry in {"head": HEADS, "backbone": BACKBONES, "corpus": CORPORA}.items():
        specs = {str(spec): spec for spec in (getattr(record.spec, kind) for record in records.values())}
        known, of_suite = {}, {}
        for text, spec in specs.items():
            try:
                label = given.get(kind, {}).get(str(shown(spec, registry)))
            except HarnessError:
                continue
            known[text] = spec
            of_suite |= {text: label} if label else {}
        names[kind] = {**dict(zip(specs, specs, strict=True)), **names_of(known.values(), registry, labels=of_suite)}
    return names


def records_of(results: Path, suite: str, warn: Callable[[str], None]) -> dict[str, TrialRecord]:
    """The verified records of a suite, by id; `warn` is called with a sentence for each of the others."""
    runs = store.runs_folder(results, suite)
    found, warnings = store.load_all(runs, trial_ids(runs))
    for warning in warnings:
        warn(warning)
    return found


def trial_ids(runs: Path) -> list[str]:
    """The ids of the trials that have a folder in that of a suite, sorted."""
    return sorted(place.name for place in runs.iterdir() if place.is_dir() and not place.name.startswith("."))


def bytes_below(folder: Path) -> int:
    """The size of all files below a folder. Links are not followed; files that are removed meanwhile are left out."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue
    return total
