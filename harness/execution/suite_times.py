"""How long a suite would take on this machine (`harness plan --time`), and the ratios of steps for `match.time`."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from harness.execution.planned import PlannedSuite, PlannedTrial
from harness.kernels import products
from harness.machine import environment
from harness.plan.expansion import row_name
from harness.plan.loaded_suite import Suite
from harness.plan.specs import TrialSpec
from harness.printable import counted
from harness.trial.exclusive_times import BUSY_CORES
from harness.trial.model_times import ModelTime, model_times
from harness.trial.setup import fetch_sources
from harness.trial.task import Task

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


@dataclass(frozen=True, slots=True)
class SuiteTimes:
    """How long the models of a suite take on this machine.

    Args:
        of_rows: of the rows that could be timed.
        ratios: the time of a row's training step divided by that of the reference (`reference`), on the same corpus and
            backbone; of the rows that have one.
        busy: processor cores that other work used meanwhile.
    """

    of_rows: dict[Key, ModelTime]
    ratios: dict[Key, float]
    busy: float


def suite_times(planned: PlannedSuite, data: Path, device: torch.device, warn: Callable[[str], None]) -> SuiteTimes:
    """Time some batches of each row's model, alone and in turns. Corpora are read, and downloaded where they are
    missing. Data-parallel trials and n-grams are left out.

    Args:
        data: folder of the corpora's files.
        warn: called with a sentence for each model that cannot be timed.
    Raises: CorpusError when a corpus cannot be read or downloaded.
    """
    specs = _firsts(planned)
    fetch_sources(specs.values(), data)
    other_work = environment.OtherWork()
    found, unknown = model_times([task_alone(planned.suite, spec, data, device) for spec in specs.values()])
    if (busy := round(other_work.cores(), 2)) >= BUSY_CORES:
        warn(f"other programs used {busy:.1f} cores of this machine: times are longer than on a quiet one")
    for sentence in unknown:
        warn(sentence)
    of_rows = {key: found[spec.id] for key, spec in specs.items() if spec.id in found}
    return SuiteTimes(of_rows, _ratios(specs, of_rows, reference(planned.suite)), busy)


def row_times(planned: PlannedSuite, times: SuiteTimes) -> list[RowTime]:
    """How long the trials of each row of a plan take. The plan may be another one than that whose models were timed, of
    the same rows.
    """
    suite = planned.suite
    return [
        RowTime(
            **dict(zip(("corpus", "backbone", "head"), key, strict=True)),
            epochs=_epochs_of_table(suite, spec),
            time=times.of_rows.get(key),
            ratio=times.ratios.get(key),
            to_tune=_missing(suite, planned.tuning, key),
            to_run=(*_missing(suite, planned.trials, key), *_later(planned, key)),
        )
        for key, spec in _firsts(planned).items()
    ]


def reference(suite: Suite) -> str | None:
    """The head of ratio 1: that of `match.time`, or the baseline; None without both."""
    return suite.match.time if suite.match is not None and suite.match.time is not None else suite.table.baseline


def match_text(planned: PlannedSuite, times: SuiteTimes, device: torch.device) -> str | None:
    """The key `match` to paste into the suite, so that every head gets the training time of the reference; None if the
    suite has no reference or matches parameters, a row was not timed, or other work used BUSY_CORES cores or more.
    """
    suite = planned.suite
    rows = {_key(suite, spec): spec for spec in (*suite.tuning_trials, *suite.trials) if not spec.is_ngram}
    by_params = suite.match is not None and suite.match.time is None
    if by_params or not rows.keys() <= times.ratios.keys() or times.busy >= BUSY_CORES:
        return None
    several = len({key[:2] for key in rows}) > 1
    names = {key: row_name(*key) if several else key[2] for key in rows}
    where = (
        f"{environment.device_name(device)}, {counted(suite.resources.cpus, 'thread')}, torch {torch.__version__}, "
        f"harness at {environment.commit()}, {environment.now()}; other work used {times.busy:.1f} cores"
    )
    lines = [f"    {json.dumps(name)}: {times.ratios[key]:.{RATIO_DIGITS}g}" for key, name in names.items()]
    head = json.dumps(reference(suite))
    return "\n".join(["match:", f"  time: {head}", f"  measured: {json.dumps(where)}", "  ratios:", *lines])


def task_alone(suite: Suite, spec: TrialSpec, data: Path, device: torch.device) -> Task:
    """The task of a trial whose model is tried in this process, and leaves nothing."""
    return Task(
        spec=spec,
        suite=suite.name,
        runs=Path(),
        data=data.resolve(),
        device=str(device),
        executor="inline",
        threads=suite.resources.cpus,
        route=products.chosen_route() if device.type == "cpu" else "default",
        contents=suite.contents,
    )


def _firsts(planned: PlannedSuite) -> dict[Key, TrialSpec]:
    """The first trial of each row that can be timed."""
    timed = [each.spec for each in planned.models if not each.spec.is_ngram and each.spec.train.data_parallel == 1]
    specs: dict[Key, TrialSpec] = {}
    for spec in timed:
        specs.setdefault(_key(planned.suite, spec), spec)
    return specs


def _key(suite: Suite, spec: TrialSpec) -> Key:
    return str(spec.corpus), str(suite.compared("backbone", spec)), str(suite.compared("head", spec))


def _epochs_of_table(suite: Suite, spec: TrialSpec) -> float:
    """The epochs of a row's trials of the table; the trial may be one that tunes."""
    rows = suite.tuning.rows if suite.tuning is not None else ()
    finals = {each.trial.id: each.finals[0] for row in rows for each in row.candidates}
    return finals.get(spec.id, spec).train.epochs


def _ratios(specs: dict[Key, TrialSpec], found: dict[Key, ModelTime], name: str | None) -> dict[Key, float]:
    """The ratio of each row to the first row of the head `name` with the same corpus and backbone. The head that the
    plan prints so comes before others of this name.
    """
    times = {key: each.train_ms for key, each in found.items()}
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
