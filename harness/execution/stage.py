"""One stage of a run: which of its trials are to be run, and how. A suite with `tune` has two stages, others one."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.execution.driver import Execution, tidy_finished, without_weights
from harness.execution.options import RunOptions, repeated
from harness.execution.progress.reporter import Reporter
from harness.execution.resources import Resources
from harness.plan.loaded_suite import Suite
from harness.plan.specs import TrialSpec
from harness.printable import counted
from harness.records import store
from harness.records.record import TrialRecord
from harness.report import retraining
from harness.trial.task import Task

SHOWN = 5  # how many trials a warning names


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The trials of a stage.

    Args:
        suite: the suite of the stage, whose trials are all of the stage.
        trials: those that the options select.
        data: the folder of the corpora's files.
        tuning: they are tuning trials.
    """

    suite: Suite
    trials: tuple[TrialSpec, ...]
    results: Path
    data: Path
    options: RunOptions
    reporter: Reporter
    tuning: bool = False

    @property
    def runs(self) -> Path:
        """The folder of the suite's records."""
        return store.runs_folder(self.results, self.suite.name)

    def execution(self, trials: Sequence[TrialSpec], *, fresh: bool) -> Execution:
        """How these of its trials are executed, or timed.

        Args:
            fresh: train them from the beginning, or time them although they have timings.
        """
        suite, options = self.suite, self.options
        gpus = suite.resources.gpus if options.gpus_per_trial is None else options.gpus_per_trial
        common = {
            "suite": suite.name,
            "runs": self.runs,
            "data": self.data.resolve(),
            "device": "cuda" if options.gpus_per_trial and options.device == "auto" else options.device,
            "executor": options.executor,
            "shared": options.shared,
            "checkpoint": suite.checkpoint,
            "timeout": suite.timeout,
            "measure": suite.measure,
            "memory_gib": suite.resources.memory_gib,
            "fresh": fresh,
            "contents": suite.contents,
            "driver": uuid.uuid4().hex,
            "tuning": self.tuning,
        }
        replaced = store.digests(self.runs, [spec.id for spec in trials])  # also of records that do not fit the suite
        return Execution(
            tasks=[Task(spec=spec, replaces=replaced.get(spec.id), **common) for spec in trials],
            resources=Resources(cpus=options.cpus_per_trial or suite.resources.cpus, gpus=gpus),
            address=options.address,
            fail_fast=options.fail_fast,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What a stage has to do.

    Args:
        todo: the trials to run.
        finished: the records of the others.
        outdated: whether code of finished trials has changed since, which was reported.
    """

    todo: list[TrialSpec]
    finished: dict[str, TrialRecord]
    outdated: bool


def pending(stage: Stage, records: Mapping[str, TrialRecord]) -> Pending:
    """Select the trials to run. Reports outdated ones, and removes the temporary files of those that are finished."""
    options = stage.options
    found = {spec.id: records[spec.id] for spec in stage.trials if spec.id in records}
    outdated = []
    if not (options.force or options.keep):
        again = repeated(options, stage.results, stage.data)
        outdated = retraining.sentences(stage.suite, stage.trials, found, *again)
    for sentence in outdated:
        stage.reporter.problem(sentence)
    todo = store.pending(stage.trials, found, retry_failed=options.retry_failed, force=options.force)
    finished = {trial: found[trial] for trial in found.keys() - {spec.id for spec in todo}}
    tidy_finished(stage.runs, finished)
    return Pending(todo=todo, finished=finished, outdated=bool(outdated))


def report(stage: Stage, found: Pending) -> None:
    """Say what is missing of the finished trials, and which of them failed; and that there is nothing to run."""
    if lost := without_weights(stage.runs, found.finished):
        stage.reporter.warn(_lost_weights(lost))
    if stage.trials and not found.todo:
        what = "nothing else to run" if found.outdated else "nothing to run"
        stage.reporter.say(f"{what}: {_all_have(len(stage.trials))} a record")
    if failed := sum(record.status != "ok" for record in found.finished.values()):
        stage.reporter.say(
            f"failed: {counted(failed, 'trial')} of these; --retry-failed runs {'it' if failed == 1 else 'them'} again"
        )


def _all_have(number: int) -> str:
    return "the trial has" if number == 1 else f"all {number} trials have"


def _lost_weights(trials: list[str]) -> str:
    more = f" and {len(trials) - SHOWN} more" if len(trials) > SHOWN else ""
    which = f"{counted(len(trials), 'finished trial')} ({', '.join(trials[:SHOWN])}{more})"
    return (
        f"the weights, best.pt, are missing or damaged of {which}. Records and tables do not need them; "
        "inspect, sample and exclusive times do. --force with --only trains such a trial again"
    )
