"""What a results folder holds, as data frames: a line for each trial, and a line for each suite."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.records import store
from harness.records.plausible import moment
from harness.records.record import TrialRecord

if TYPE_CHECKING:
    import pandas as pd


def suites(results: Path) -> list[str]:
    """The names of the folders below results/runs that hold trials, sorted."""
    runs = results / "runs"
    folders = [place for place in runs.iterdir() if place.is_dir()] if runs.is_dir() else []
    return sorted(place.name for place in folders if trial_ids(place))


def trials(results: Path, names: Iterable[str], warn: Callable[[str], None]) -> "pd.DataFrame":
    """A line for each trial of these suites that has a folder, in the order in which they finished.

    Its status is that of its record; without one 'interrupted' if there is a checkpoint, else 'no record'.
    `minutes` are of training, and `bytes` those of all files in the trial's folder.
    """
    import pandas as pd  # here: it takes half a second to import

    lines = []
    for suite in names:
        runs = store.runs_folder(results, suite)
        ids = trial_ids(runs)
        records, damaged = store.load_all(runs, ids)
        for sentence in damaged:
            warn(sentence)
        begun = store.interrupted(runs, ids)
        for trial in ids:
            line = {"suite": suite, "id": trial, "status": "interrupted" if trial in begun else "no record"}
            if trial in records:
                line |= _of_record(records[trial])
            line["bytes"] = bytes_below(store.folder(runs, trial))
            lines.append(line)
    columns = ["suite", "id", "head", "backbone", "corpus", "seed", "stage", "status", "test_ppl", "minutes"]
    columns += ["workers", "device", "started", "finished", "bytes"]
    return pd.DataFrame(lines, columns=columns).sort_values(["finished", "id"])


def _of_record(record: TrialRecord) -> dict[str, Any]:
    spec, environment = record.spec, record.environment
    return {
        "head": str(spec.head),
        "backbone": str(spec.backbone),
        "corpus": str(spec.corpus),
        "seed": spec.seed,
        "stage": "tuning" if record.tuning else "table",
        "status": record.status,
        "test_ppl": record.metrics.get("test_ppl"),
        "minutes": record.metrics.get("train_minutes"),
        "workers": spec.train.data_parallel,
        "device": environment.device,
        "started": moment(environment.started).isoformat(timespec="seconds"),
        "finished": moment(environment.finished).isoformat(timespec="seconds"),
    }


def by_suite(trials: "pd.DataFrame") -> "pd.DataFrame":
    """A line for each suite: its trials by status, and what they took together. `device_minutes` are of training,
    summed over trials and the workers of each; `wall_minutes` from the first start of a trial to the last end.
    """
    import pandas as pd

    lines = []
    for suite, of in trials.groupby("suite"):
        finished = of.dropna(subset="finished")
        wall = last = None
        if len(finished):
            last = finished["finished"].max()
            wall = (moment(last) - moment(finished["started"].min())).total_seconds() / 60
        lines.append(
            {
                "suite": suite,
                "trials": of["status"].value_counts().to_dict(),
                "device_minutes": (of["minutes"] * of["workers"]).sum(),
                "wall_minutes": wall,
                "finished": last,
                "bytes": of["bytes"].sum(),
                "devices": sorted(finished["device"].unique()),
            }
        )
    return pd.DataFrame(lines)


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
