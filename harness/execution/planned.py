"""What `harness run` would do with a suite: its trials with their parameter counts and their state."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from harness import plan
from harness.code.fingerprints import is_outdated
from harness.kernels import probe
from harness.machine import environment
from harness.plan.specs import Suite, TrialSpec
from harness.records import store
from harness.records.contents import of_suite
from harness.records.record import TrialRecord
from harness.report import retraining
from harness.report.evidence import printed_numbers
from harness.training.step_memory import StepMemory, plan_trials
from harness.trial.exclusive_times import BUSY_CORES
from harness.trial.planned_times import PlannedTime, planned_times
from harness.trial.setting import Setting
from harness.trial.sources import fetch_sources

OUTDATED = "outdated"  # the state of a trial that is 'ok' and whose code has changed since


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTrial:
    """One trial of a plan.

    Args:
        state: the status of its record, or 'outdated', 'interrupted' (a checkpoint but no record) or 'missing'.
        finished: whether it has a record.
        params_total: parameters of the whole model.
        params_head: parameters of the head.
        memory: of a training step at its peak; None when it was not asked for or cannot be computed.
        time: of the whole trial on this machine; None when it was not asked for or cannot be measured.
    """

    spec: TrialSpec
    state: str
    finished: bool
    params_total: int
    params_head: int
    memory: StepMemory | None = None
    time: PlannedTime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSuite:
    """The selected trials of a suite.

    Args:
        outdated: a sentence with a command for each file of code that has changed since trials were made.
    """

    suite: Suite
    trials: list[PlannedTrial]
    outdated: list[str]

    def __str__(self) -> str:
        """For example '8 trials, 3 to run, 1 outdated'."""
        missing = sum(not trial.finished for trial in self.trials)
        outdated = sum(trial.state == OUTDATED for trial in self.trials)
        return f"{len(self.trials)} trials, {missing} to run" + (f", {outdated} outdated" if outdated else "")

    @property
    def minutes_to_run(self) -> float:
        """The minutes of the trials that have no record, one after the other, of those whose time is known."""
        return sum(trial.time.minutes for trial in self.trials if trial.time is not None and not trial.finished)

    def step_ratio(self, trial: PlannedTrial) -> float | None:
        """The time of a trial's training step divided by that of the first row of the baseline, on the same corpus and
        backbone. None without a baseline, or where a time is not known.
        """
        spec, baseline = trial.spec, self.suite.table.baseline
        of_baseline = (
            other.time.train_ms
            for other in self.trials
            if other.spec.head.name == baseline
            and (other.spec.corpus, other.spec.backbone) == (spec.corpus, spec.backbone)
            and other.time is not None
        )
        theirs = next(of_baseline, None)
        return trial.time.train_ms / theirs if theirs and trial.time is not None and trial.time.train_ms else None

    def as_json(self, *, memory: bool, time: bool) -> dict[str, Any]:
        """The content of `harness plan --json`, with the memory and the time of trials where these are asked for."""
        entries = [
            _entry(trial)
            | ({"memory": _bytes(trial.memory)} if memory else {})
            | ({"time": _milliseconds(trial.time)} if time else {})
            for trial in self.trials
        ]
        return {"suite": self.suite.name, "version": self.suite.version, "trials": entries}


def planned(
    suite: Suite, results: Path, only: tuple[str, ...], warn: Callable[[str], None], *options: str
) -> PlannedSuite:
    """The trials of a suite that `only` selects, with their state. Nothing is downloaded, allocated or written.

    Args:
        warn: called with a sentence for each record that is damaged or does not fit the suite; it counts as missing.
        options: what a command needs beside the suite to find the records, for example '--results DIR'.
    Raises: SuiteError when a printed table or a condition of `only` is unknown.
    """
    printed_numbers.load(suite)
    specs = plan.select(suite.trials, only)
    ids, runs = [spec.id for spec in specs], store.runs_folder(results, suite.name)
    records, damaged = store.load_all(runs, ids)
    records, misfits = of_suite(records, suite)
    for sentence in (*damaged, *misfits):
        warn(sentence)
    interrupted = store.interrupted(runs, ids)
    trials = []
    for spec in specs:
        state = _state(records.get(spec.id), interrupted=spec.id in interrupted)
        total, head = suite.params[spec.id]
        finished = spec.id in records
        trials.append(PlannedTrial(spec=spec, state=state, finished=finished, params_total=total, params_head=head))
    return PlannedSuite(suite=suite, trials=trials, outdated=retraining.sentences(suite, specs, records, *options))


def with_memory(planned: PlannedSuite, device: torch.device, warn: Callable[[str], None]) -> PlannedSuite:
    """The same plan with the memory of each trial's training step, as it would be on a device.

    Args:
        warn: called with a sentence for each model whose memory cannot be computed.
    """
    trained = tuple(trial.spec for trial in planned.trials if not trial.spec.is_ngram)
    found, unknown = plan_trials(trained, device)
    for sentence in unknown:
        warn(f"the memory of a training step cannot be computed: {sentence}")
    return replace(planned, trials=[replace(trial, memory=found.get(trial.spec.id)) for trial in planned.trials])


def with_times(planned: PlannedSuite, data: Path, device: torch.device, warn: Callable[[str], None]) -> PlannedSuite:
    """The same plan with the time that each trial would take on this machine. Corpora are read, and downloaded where
    they are missing; some batches of each model are run, and nothing is written.

    Args:
        data: folder of the corpora's files.
        warn: called with a sentence for each model that cannot be timed.
    Raises: CorpusError when a corpus cannot be read or downloaded.
    """
    suite = planned.suite
    trained = [
        trial.spec for trial in planned.trials if not trial.spec.is_ngram and trial.spec.train.data_parallel == 1
    ]
    rows = {_row(spec): spec for spec in reversed(trained)}  # the first of each row
    fetch_sources(rows.values(), data)
    if (busy := environment.busy_cores()) >= BUSY_CORES:
        warn(f"other programs use {busy:.1f} cores of this machine: times are longer than on a quiet one")
    setting = Setting(
        suite=suite.name,
        runs=Path(),
        data=data.resolve(),
        device=str(device),
        executor="inline",
        threads=suite.resources.cpus,
        route=probe.chosen_route() if device.type == "cpu" else "default",
        contents=suite.contents,
    )
    found, unknown = planned_times(list(reversed(rows.values())), setting)
    for sentence in unknown:
        warn(sentence)
    times = {row: found.get(spec.id) for row, spec in rows.items()}
    return replace(planned, trials=[replace(trial, time=times.get(_row(trial.spec))) for trial in planned.trials])


def _row(spec: TrialSpec) -> tuple[str, str, str, str]:
    """Trials that differ in nothing but their seed take the same time."""
    return str(spec.corpus), str(spec.backbone), str(spec.head), str(spec.train)


def _state(record: TrialRecord | None, *, interrupted: bool) -> str:
    if record is None:
        return "interrupted" if interrupted else "missing"
    return OUTDATED if is_outdated(record) else record.status


def _entry(trial: PlannedTrial) -> dict[str, Any]:
    spec = trial.spec
    components = {kind: getattr(spec, kind).model_dump() for kind in ("corpus", "backbone", "head")}
    counts = {"params_total": trial.params_total, "params_head": trial.params_head}
    return {"id": spec.id, **components, "seed": spec.seed, **counts, "state": trial.state}


def _milliseconds(time: PlannedTime | None) -> dict[str, float] | None:
    return None if time is None else {**asdict(time), "minutes": time.minutes}


def _bytes(memory: StepMemory | None) -> dict[str, int] | None:
    return None if memory is None else {**asdict(memory), "total": memory.total}
