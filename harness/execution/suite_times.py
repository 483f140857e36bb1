"""How long a suite would take on this machine (`harness plan --time`), and the file of ratios for `match.time`."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from harness.errors import ExecutionError
from harness.execution.planned import PlannedSuite, PlannedTrial
from harness.kernels import probe
from harness.machine import environment
from harness.machine.files import write_atomically
from harness.plan.budgets import StepRatio, StepRatios, of_step, ratios_file
from harness.plan.loaded_suite import Suite
from harness.plan.specs import TrialSpec
from harness.plan.two_stages import everything
from harness.trial.exclusive_times import BUSY_CORES
from harness.trial.model_times import ModelTime, model_times
from harness.trial.setting import Setting
from harness.trial.sources import fetch_sources

RATIO_DIGITS = 3  # significant ones
Key = tuple[str, str, str]  # corpus, backbone, head, without what is tuned


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTime:
    """How long the trials of a row take.

    Args:
        epochs: of a trial of the table.
        time: None where the model could not be timed.
        ratio: the time of a training step divided by that of the reference (`reference`), on the same corpus and
            backbone; None without one.
        to_tune: the epochs of each tuning trial that has no record.
        to_run: the epochs of each trial of the table that has no record, those without an id included.
    """

    corpus: str
    backbone: str
    head: str
    epochs: float
    time: ModelTime | None
    ratio: float | None
    to_tune: tuple[float, ...]
    to_run: tuple[float, ...]

    @property
    def minutes_to_tune(self) -> float:
        """The minutes of the tuning trials to run, one after the other; 0 where the model could not be timed."""
        return self._minutes(self.to_tune)

    @property
    def minutes_to_run(self) -> float:
        """The same of the trials of the table."""
        return self._minutes(self.to_run)

    def _minutes(self, epochs: tuple[float, ...]) -> float:
        return 0.0 if self.time is None else sum(map(self.time.minutes, epochs))

    def as_json(self) -> dict[str, Any]:
        """The content of an entry of `times` in `harness plan --json`."""
        measured = None if self.time is None else {**asdict(self.time), "minutes": self.time.minutes(self.epochs)}
        about = {"corpus": self.corpus, "backbone": self.backbone, "head": self.head, "epochs": self.epochs}
        to_run = {"minutes_to_tune": self.minutes_to_tune, "minutes_to_run": self.minutes_to_run}
        return {**about, "time": measured, "step_ratio": self.ratio, **to_run}


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
    specs: dict[Key, TrialSpec] = {}  # the first trial of each row
    for each in timed:
        specs.setdefault(_key(suite, each.spec), each.spec)
    fetch_sources(specs.values(), data)
    if (busy := environment.busy_cores()) >= BUSY_CORES:
        warn(f"other programs use {busy:.1f} cores of this machine: times are longer than on a quiet one")
    found, unknown = model_times(list(specs.values()), setting_alone(suite, data, device))
    for sentence in unknown:
        warn(sentence)
    ratios = _ratios(specs, found, reference(suite))
    return [
        RowTime(
            **dict(zip(("corpus", "backbone", "head"), key, strict=True)),
            epochs=_epochs_of_table(suite, spec),
            time=found.get(spec.id),
            ratio=ratios.get(key),
            to_tune=_missing(suite, planned.tuning, key),
            to_run=(*_missing(suite, planned.trials, key), *_later(planned, key)),
        )
        for key, spec in specs.items()
    ]


def reference(suite: Suite) -> str | None:
    """The head of ratio 1: that of `match.time`, or the baseline; None without both."""
    return suite.match.time if suite.match is not None and suite.match.time is not None else suite.table.baseline


def save_ratios(suite: Suite, rows: list[RowTime], device: torch.device) -> Path:
    """Write the file of ratios beside the suite, which `match.time` reads. Trials get their ids by it, so an existing
    file is not replaced.

    Raises: ExecutionError when there is one, or a row was not timed; StorageError.
    """
    path = ratios_file(suite.path)
    if path.exists():
        raise ExecutionError(f"{path} exists, and the ids of trials depend on it; delete it to measure again")
    trained = [spec for spec in everything(suite) if not spec.is_ngram]
    timed = {(row.corpus, row.backbone, row.head) for row in rows if row.ratio}
    if unknown := sorted({key for spec in trained if (key := _key(suite, spec)) not in timed}):
        names = "; ".join(", ".join(key) for key in unknown)
        raise ExecutionError(f"{path.name} is not written, because these rows have no time: {names}")
    measured = {
        "device": environment.device_name(device),
        "threads": suite.resources.cpus,
        "torch": str(torch.__version__),
        "commit": environment.commit(),
        "taken": environment.now(),
    }
    ratios = tuple(
        StepRatio(corpus=row.corpus, backbone=row.backbone, head=row.head, step_ratio=_rounded(row.ratio))
        for row in rows
    )
    content = StepRatios(time=suite.match.time, train=of_step(trained[0].train), measured=measured, rows=ratios)
    write_atomically(path, f"{content.model_dump_json(indent=1)}\n".encode())
    return path


def _rounded(ratio: float) -> float:
    return float(f"{ratio:.{RATIO_DIGITS}g}")


def setting_alone(suite: Suite, data: Path, device: torch.device) -> Setting:
    """The setting of models that are tried in this process, one after the other, and leave nothing."""
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


def _ratios(specs: dict[Key, TrialSpec], found: dict[str, ModelTime], name: str | None) -> dict[Key, float]:
    """The ratio of each row to the first row of the head `name` with the same corpus and backbone. The head that the
    plan prints so comes before others of this name.
    """
    times = {key: found[spec.id].train_ms for key, spec in specs.items() if spec.id in found}
    bases: dict[tuple[str, str], float] = {}
    exact = any(key[2] == name for key in specs)
    for key, milliseconds in times.items():
        if name == (key[2] if exact else specs[key].head.name):
            bases.setdefault(key[:2], milliseconds)
    return {key: milliseconds / bases[key[:2]] for key, milliseconds in times.items() if bases.get(key[:2])}


def _missing(suite: Suite, trials: list[PlannedTrial], key: Key) -> tuple[float, ...]:
    """The epochs of the trials of a row that have no record."""
    missing = [each.spec for each in trials if not each.finished]
    return tuple(spec.train.epochs for spec in missing if _key(suite, spec) == key)


def _later(planned: PlannedSuite, key: Key) -> list[float]:
    """The epochs of the trials of a row that have no id yet."""
    firsts = {each.spec.id: each.spec for each in planned.tuning}
    return [
        _epochs_of_table(planned.suite, firsts[row.first])
        for row in planned.later
        if (row.corpus, row.backbone, row.head) == key and not row.lost
        for _ in row.seeds
    ]
