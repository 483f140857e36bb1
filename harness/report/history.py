"""The history of a results folder, from its records: what has been run, and how long it took."""

import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.plan.reader import ENDING, FOLDER
from harness.records import store
from harness.records.plausible import moment
from harness.records.record import TrialRecord

KINDS = ("head", "backbone", "corpus")


def suites(results: Path) -> list[str]:
    """The names of the folders below results/runs that hold trials, sorted."""
    runs = results / "runs"
    folders = [place for place in runs.iterdir() if place.is_dir()] if runs.is_dir() else []
    return sorted(place.name for place in folders if trial_ids(place))


def trials(results: Path, suite: str, records: Mapping[str, TrialRecord]) -> list[dict[str, Any]]:
    """A line for each record of a suite, by id, in the order in which the trials finished. `minutes` are of training,
    and `bytes` those of all files in the trial's folder.
    """
    runs = store.runs_folder(results, suite)
    lines = [
        {
            "id": record.id,
            **{kind: str(getattr(record.spec, kind)) for kind in KINDS},
            "seed": record.spec.seed,
            "status": record.status,
            "tuning": record.tuning,
            "test_ppl": record.metrics.get("test_ppl"),
            "minutes": record.metrics.get("train_minutes"),
            "workers": record.spec.train.data_parallel,
            "device": record.environment.device,
            "started": moment(record.environment.started).isoformat(timespec="seconds"),
            "finished": moment(record.environment.finished).isoformat(timespec="seconds"),
            "bytes": bytes_below(store.folder(runs, record.id)),
        }
        for record in records.values()
    ]
    return sorted(lines, key=lambda line: (line["finished"], line["id"]))


def total(results: Path, suite: str, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The lines of a suite's trials together. `device_minutes` are of training, summed over trials and the workers of
    each; `wall_minutes` from the first start of a trial to the last end, pauses included.
    """
    runs, known = store.runs_folder(results, suite), {line["id"] for line in lines}
    found = {
        "suite": suite,
        "records": dict(Counter(line["status"] for line in lines).most_common()),
        "interrupted": len(store.interrupted(runs, trial_ids(runs)) - known),
        "device_minutes": sum((line["minutes"] or 0.0) * line["workers"] for line in lines),
        "devices": sorted({line["device"] for line in lines}),
        "bytes": bytes_below(runs),
        "wall_minutes": None,
        "finished": None,
    }
    if lines:
        first, last = min(line["started"] for line in lines), lines[-1]["finished"]
        minutes = (moment(last) - moment(first)).total_seconds() / 60
        found |= {"wall_minutes": minutes, "finished": last}
    return found


def named(suite: str, records: Mapping[str, TrialRecord], lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines with components named as in tables, with the labels of the suite's file."""
    names = _names(suite, records)
    return [{**line, **{kind: of_kind[line[kind]] for kind, of_kind in names.items()}} for line in lines]


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
