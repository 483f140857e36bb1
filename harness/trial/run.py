"""One trial from its spec to its record. The one function to read first is `run`."""

import logging
from collections.abc import Callable
from pathlib import Path

from harness.containment.calls import contained
from harness.machine.stop_request import StopRequest
from harness.model import components
from harness.plan.specs import TrialSpec
from harness.records import store
from harness.records.record import Status, TrialRecord
from harness.training.checkpoint import Checkpoint, Checkpoints, Position
from harness.training.data_parallel import Workers
from harness.training.loop import Progress
from harness.trial import attempt, behaviour, stages
from harness.trial.conditions import conditions, with_exact_route
from harness.trial.context import TrialContext
from harness.trial.failures import failure_as_status, refuse_hopeless
from harness.trial.log import trial_log
from harness.trial.session import Session
from harness.trial.setting import Setting
from harness.trial.watch import Watch

RESUMABLE = ("timeout", "oom")  # statuses of trials that a later run may resume: their checkpoints stay


def run(
    spec: TrialSpec,
    setting: Setting,
    report: Callable[[Progress], None],
    replaces: str | None = None,
    workers: Workers | None = None,
    stop: StopRequest | None = None,
) -> TrialRecord:
    """Run one trial, from its newest checkpoint if it has one. Returns its record, which is saved. A trial that fails
    has a record, too; the traceback is in its log. While another process runs the trial, this waits for its record.

    Args:
        replaces: digest of the record that is to be replaced; any other record that is found is returned.
        workers: of which this is the first; the others run harness.trial.follow.follow.
        stop: whether training is to stop after the step under way, by default when this process gets a signal.
    Raises: StorageError when the folder cannot be written, CorpusError without the corpus, LostWorker when another
        worker has ended, KeyboardInterrupt when the trial was asked to stop: it can be resumed later.
    """
    folder = store.folder(setting.runs, spec.id)
    with store.writing(setting.runs, spec.id):  # the trial's lock
        if (finished := _other_record(spec, setting, replaces)) is not None:
            tidy(folder, finished.status)
            return finished
        store.set_aside(setting.runs, spec.id)
        with trial_log(folder) as log:
            trial = begin(spec, setting, report, workers or Workers(), log, stop or StopRequest())
            with failure_as_status(trial):
                refuse_hopeless(trial)
                trial.workers.from_first(*trial.attempt.position)
                with trial.watch, contained(components(spec), log.warning):
                    built = stages.build(trial)
                    with conditions(spec, trial.setting):
                        stages.fit(trial, built)
                        directions = stages.evaluate(trial, built)
                        stages.time(trial, built)
                        stages.check(trial, built, directions)
                    stages.complete(trial, built, directions)
                    trial.outcome.behaviour = behaviour.of_trial(spec)
            record = record_of(trial)
        store.save(record, setting.runs)
        tidy(folder, record.status)
        return record


def begin(
    spec: TrialSpec,
    setting: Setting,
    report: Callable[[Progress], None],
    workers: Workers,
    log: logging.Logger,
    stop: StopRequest,
) -> TrialContext:
    """Find the checkpoint to resume from, note the attempt in the trial's folder, and begin a session."""
    log.info("trial %s: %s", spec.id, spec)
    folder = store.folder(setting.runs, spec.id)
    again = attempt.follows(folder, setting.driver)
    checkpoints = Checkpoints(folder, log.warning)
    resumed = _resumed(checkpoints, spec, log, fresh=setting.fresh and not again)
    setting = with_exact_route(setting, resumed)
    stuck = attempt.stuck(folder) if again else ""
    this = attempt.begin(folder, setting.driver, resumed.position if resumed is not None else Position())
    session = Session(setting, spec, resumed)
    for reason in session.switched_off:
        log.warning("%s", reason)
    return TrialContext(
        spec=spec,
        setting=setting,
        session=session,
        log=log,
        workers=workers,
        watch=Watch(setting, folder, session.elapsed),
        checkpoints=checkpoints,
        report=report,
        resumed=resumed,
        attempt=this,
        stop=stop,
        stuck=stuck,
    )


def record_of(trial: TrialContext) -> TrialRecord:
    """The record of a trial that has ended."""
    setting, outcome = trial.setting, trial.outcome
    retries = setting.retries + trial.attempt.retries
    record = TrialRecord(
        suite=setting.suite,
        spec=trial.spec,
        status=outcome.status,
        metrics=outcome.metrics,
        curve=tuple(outcome.fitted.curve),
        environment=trial.session.environment(graphed=outcome.fitted.graphed, retries=retries),
        message=outcome.message,
        weights_sha256=outcome.weights_sha256,
        contents=setting.contents_of(trial.spec),
        certificate=outcome.certificate,
        code=trial.session.code,
        behaviour=outcome.behaviour,
        tuning=setting.tuning,
    )
    record = store.measured(record)
    trial.log.info("%s %s", record.status, record.metrics)
    return record


def tidy(folder: Path, status: Status) -> None:
    """Remove the files that a finished trial does not need. `attempt.json` goes last: it marks what is not tidied."""
    if status not in RESUMABLE:
        Checkpoints(folder).remove()
    attempt.end(folder)


def _other_record(spec: TrialSpec, setting: Setting, replaces: str | None) -> TrialRecord | None:
    """The trial's record, unless it is the one to be replaced."""
    known, _ = store.load_all(setting.runs, [spec.id])
    return known[spec.id] if spec.id in known and store.digest(known[spec.id]) != replaces else None


def _resumed(checkpoints: Checkpoints, spec: TrialSpec, log: logging.Logger, *, fresh: bool) -> Checkpoint | None:
    """The checkpoint to resume from. When there is none, or with `fresh`, all checkpoints are removed: by their names
    they would count as newer than those to come.
    """
    found = None if fresh else checkpoints.newest(spec.id)
    if found is None:
        checkpoints.remove()
        return None
    log.info("goes on from its checkpoint: epoch %d, %d steps done", *found.position)
    return found
