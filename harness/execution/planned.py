"""What `harness run` would do with a suite: its trials with their parameter counts and their state."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from harness.execution.options import RunOptions
from harness.plan.loaded_suite import Suite
from harness.plan.selection import chosen_rows, chosen_trials
from harness.plan.specs import TrialSpec
from harness.plan.tuning import Choice, Point
from harness.printable import counted
from harness.records import choices, store
from harness.records.choices import Records
from harness.records.record import TrialRecord
from harness.report import retraining
from harness.report.evidence import printed_numbers
from harness.training.step_memory import StepMemory, plan_trials
from harness.trial.behaviour import is_outdated

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
        point: the values of the keys that are tuned; {} without `tune`.
    """

    spec: TrialSpec
    state: str
    finished: bool
    params_total: int
    params_head: int
    memory: StepMemory | None = None
    point: Point = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterTrials:
    """A row whose trials have no ids yet: they depend on the point that tuning will choose.

    Args:
        corpus, backbone, head: without what is tuned.
        seeds: those of the suite.
        first: the id of the first tuning trial of the row.
        lost: every tuning trial of the row failed, so these trials will not be trained.
    """

    corpus: str
    backbone: str
    head: str
    seeds: tuple[int, ...]
    first: str
    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSuite:
    """The selected trials of a suite.

    Args:
        trials: those of the table.
        outdated: a sentence with a command for each file of code that has changed since trials were made.
        tuning: the tuning trials of a suite with `tune`.
        later: the trials of the table that have no id yet, because no point is chosen for their row: one for each row,
            with the seeds for which it stands.
    """

    suite: Suite
    trials: list[PlannedTrial]
    outdated: list[str]
    tuning: list[PlannedTrial] = field(default_factory=list)
    later: list[LaterTrials] = field(default_factory=list)

    def __str__(self) -> str:
        """For example '8 trials, 3 to run, 1 outdated'; of a suite with `tune` the same for both stages."""
        if self.suite.tuning is None:
            return _counts(self.trials)
        tuning = self.suite.tuning
        later = sum(len(each.seeds) for each in self.later)
        after = f", {later} more after tuning" if later else ""
        return (
            f"stage 1, tuning: {_counts(self.tuning)}, {tuning.budget} each; "
            f"stage 2, the table: {_counts(self.trials)}{after}, {tuning.final_budget} each"
        )

    @property
    def models(self) -> list[PlannedTrial]:
        """Trials with every model of the table; for a row without a point, one of its tuning trials."""
        stand_ins = {each.first for each in self.later}
        return [*self.trials, *(trial for trial in self.tuning if trial.spec.id in stand_ins)]

    def as_json(self, *, memory: bool) -> dict[str, Any]:
        """The content of `harness plan --json`, with the memory of a training step if `memory`."""
        entries = [_entry(trial) | ({"memory": _bytes(trial.memory)} if memory else {}) for trial in self.trials]
        made = {"suite": self.suite.name, "version": self.suite.version, "trials": entries}
        if self.suite.tuning is None:
            return made
        later = [asdict(each) for each in self.later]
        return {**made, "tuning": [_entry(trial) for trial in self.tuning], "after_tuning": later}


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
    read = choices.read(suite, results, warn)
    suite, records = read.suite, read.found
    specs, tuning, later, points = chosen_trials(suite, only), (), [], {}
    if suite.tuning is not None:
        points = suite.tuning.points
        rows = chosen_rows(suite, only)
        tuning = tuple(trial for row in rows for trial in suite.tuning.rows[row].tuning_trials)
        later = _later(suite, rows)
    both = (*tuning, *specs)
    interrupted = store.interrupted(read.runs, [spec.id for spec in both])

    def states(stage: Iterable[TrialSpec]) -> list[PlannedTrial]:
        return [
            PlannedTrial(
                spec=spec,
                state=_state(records.get(spec.id), interrupted=spec.id in interrupted),
                finished=spec.id in records,
                params_total=suite.params[spec.id][0],
                params_head=suite.params[spec.id][1],
                point=points.get(spec.id, {}),
            )
            for spec in stage
        ]

    outdated = retraining.sentences(suite, both, records, *options)
    return PlannedSuite(suite=suite, trials=states(specs), tuning=states(tuning), later=later, outdated=outdated)


def due(records: Records, options: RunOptions, tried: Collection[str] = ()) -> list[TrialSpec]:
    """The selected trials that can run now: those that tuning asks for; the trials of the table when it asks for none.

    A trial runs if it has no record; with `retry_failed` also if it failed, with `force` in any case; and once.

    Args:
        tried: the ids of the trials that were run by this command.
    Raises: SuiteError for a wrong condition.
    """

    def again(trial: TrialSpec) -> bool:
        record = records.found.get(trial.id)
        if trial.id in tried:
            return False
        return options.force or record is None or (options.retry_failed and record.status != "ok")

    suite, asked = records.suite, []
    for row in [] if suite.tuning is None else chosen_rows(suite, options.only):
        tuned = suite.tuning.rows[row]
        trials = [trial for trial in tuned.tuning_trials if trial.id in records.tuning and not again(trial)]
        step = tuned.next({trial.id: choices.perplexity(records.tuning[trial.id]) for trial in trials})
        asked += [] if isinstance(step, Choice) else filter(again, step)
    return asked or [trial for trial in chosen_trials(suite, options.only) if again(trial)]


def _later(suite: Suite, rows: Iterable[int]) -> list[LaterTrials]:
    found = []
    for row in rows:
        first, choice = suite.tuning.rows[row].candidates[0], suite.tuning.choices[row]
        if choice is None or choice.trial is None:
            made_of = {kind: str(suite.compared(kind, first.trial)) for kind in ("backbone", "head")}
            seeds, lost = tuple(trial.seed for trial in first.finals), choice is not None
            found.append(
                LaterTrials(corpus=str(first.trial.corpus), **made_of, seeds=seeds, first=first.trial.id, lost=lost)
            )
    return found


def _counts(trials: list[PlannedTrial]) -> str:
    missing = sum(not trial.finished for trial in trials)
    outdated = sum(trial.state == OUTDATED for trial in trials)
    return f"{counted(len(trials), 'trial')}, {missing} to run" + (f", {outdated} outdated" if outdated else "")


def with_memory(planned: PlannedSuite, device: torch.device, warn: Callable[[str], None]) -> PlannedSuite:
    """The same plan with the memory of each trial's training step, as it would be on a device.

    Args:
        warn: called with a sentence for each model whose memory cannot be computed.
    """
    trained = tuple(trial.spec for trial in planned.models if not trial.spec.is_ngram)
    found, unknown = plan_trials(trained, device)
    for sentence in unknown:
        warn(f"the memory of a training step cannot be computed: {sentence}")
    measured = [
        [replace(each, memory=found.get(each.spec.id)) for each in of] for of in (planned.trials, planned.tuning)
    ]
    return replace(planned, trials=measured[0], tuning=measured[1])


def _state(record: TrialRecord | None, *, interrupted: bool) -> str:
    if record is None:
        return "interrupted" if interrupted else "missing"
    return OUTDATED if is_outdated(record) else record.status


def _entry(trial: PlannedTrial) -> dict[str, Any]:
    spec = trial.spec
    components = {kind: getattr(spec, kind).model_dump() for kind in ("corpus", "backbone", "head")}
    counts = {"params_total": trial.params_total, "params_head": trial.params_head}
    entry = {"id": spec.id, **components, "seed": spec.seed, **counts, "state": trial.state}
    return {**entry, "point": trial.point} if trial.point else entry


def _bytes(memory: StepMemory | None) -> dict[str, int] | None:
    return None if memory is None else {**asdict(memory), "total": memory.total}
