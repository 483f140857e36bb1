"""How long a suite would take on this machine (`harness plan --time`). Nothing is written."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from harness.execution.planned import PlannedSuite, PlannedTrial
from harness.kernels import probe
from harness.machine import environment
from harness.plan.loaded_suite import Suite
from harness.plan.specs import TrialSpec
from harness.trial.exclusive_times import BUSY_CORES
from harness.trial.model_times import ModelTime, model_times
from harness.trial.setting import Setting
from harness.trial.sources import fetch_sources

Key = tuple[str, str, str]  # corpus, backbone, head, without what is tuned


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTime:
    """How long the trials of a row take.

    Args:
        spec: one of its trials; its model was timed.
        epochs: of a trial of the table.
        time: None where the model could not be timed.
        ratio: the time of a training step divided by that of the baseline, on the same corpus and backbone. None
            without a baseline.
        to_run: the epochs of each trial that has no record, of both stages.
    """

    corpus: str
    backbone: str
    head: str
    spec: TrialSpec
    epochs: float
    time: ModelTime | None
    ratio: float | None
    to_run: tuple[float, ...]

    @property
    def minutes_to_run(self) -> float:
        """The minutes of these trials, one after the other; 0 where the model could not be timed."""
        return 0.0 if self.time is None else sum(map(self.time.minutes, self.to_run))

    def as_json(self) -> dict[str, Any]:
        """The content of an entry of `times` in `harness plan --json`."""
        measured = None if self.time is None else {**asdict(self.time), "minutes": self.time.minutes(self.epochs)}
        about = {"corpus": self.corpus, "backbone": self.backbone, "head": self.head, "epochs": self.epochs}
        return {**about, "time": measured, "step_ratio": self.ratio, "minutes_to_run": self.minutes_to_run}


def suite_times(planned: PlannedSuite, data: Path, device: torch.device, warn: Callable[[str], None]) -> list[RowTime]:
    """Time some batches of each row's model, alone and in turns. Corpora are read, and downloaded where they are
    missing. Data-parallel trials and n-grams are left out.

    Args:
        data: folder of the corpora's files.
        warn: called with a sentence for each model that cannot be timed.
    Raises: CorpusError when a corpus cannot be read or downloaded.
    """
    suite = planned.suite
    timed = [each for each in planned.models if not each.spec.is_ngram and each.spec.train.data_parallel == 1]
    first: dict[Key, PlannedTrial] = {}
    for each in timed:
        first.setdefault(_key(suite, each.spec), each)
    specs = [each.spec for each in first.values()]
    fetch_sources(specs, data)
    if (busy := environment.busy_cores()) >= BUSY_CORES:
        warn(f"other programs use {busy:.1f} cores of this machine: times are longer than on a quiet one")
    found, unknown = model_times(specs, _setting(suite, data, device))
    for sentence in unknown:
        warn(sentence)
    return [
        RowTime(
            **dict(zip(("corpus", "backbone", "head"), key, strict=True)),
            spec=each.spec,
            epochs=_epochs_of_table(suite, each.spec),
            time=found.get(each.spec.id),
            ratio=_ratio(each.spec, specs, found, suite.table.baseline),
            to_run=_to_run(planned, key),
        )
        for key, each in first.items()
    ]


def _setting(suite: Suite, data: Path, device: torch.device) -> Setting:
    return Setting(
        suite=suite.name,
        runs=Path(),
        data=data.resolve(),
        device=str(device),
        executor="inline",
        threads=suite.resources.cpus,
        route=probe.chosen_route() if device.type == "cpu" else "default",
        contents=suite.contents,
    )


def _key(suite: Suite, spec: TrialSpec) -> Key:
    return str(spec.corpus), str(suite.compared("backbone", spec)), str(suite.compared("head", spec))


def _epochs_of_table(suite: Suite, spec: TrialSpec) -> float:
    """The epochs of a row's trials of the table; the trial may be one that tunes."""
    rows = suite.tuning.rows if suite.tuning is not None else ()
    finals = {each.trial.id: each.finals[0] for row in rows for each in row.candidates}
    return finals.get(spec.id, spec).train.epochs


def _ratio(spec: TrialSpec, specs: list[TrialSpec], found: dict[str, ModelTime], baseline: str | None) -> float | None:
    """The first row of the baseline on the same corpus and backbone counts."""
    base = next(
        (
            found[other.id]
            for other in specs
            if (other.head.name, other.corpus, other.backbone.name) == (baseline, spec.corpus, spec.backbone.name)
            and other.id in found
        ),
        None,
    )
    own = found.get(spec.id)
    return own.train_ms / base.train_ms if own is not None and base is not None and base.train_ms else None


def _to_run(planned: PlannedSuite, key: Key) -> tuple[float, ...]:
    """The epochs of the trials of a row that have no record, those without an id included."""
    suite = planned.suite
    missing = [each.spec for each in (*planned.tuning, *planned.trials) if not each.finished]
    later = [
        _epochs_of_table(suite, next(each.spec for each in planned.tuning if each.spec.id == row.first))
        for row in planned.later
        if (row.corpus, row.backbone, row.head) == key and not row.lost
        for _ in row.seeds
    ]
    return (*(spec.train.epochs for spec in missing if _key(suite, spec) == key), *later)
