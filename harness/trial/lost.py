"""The record of a trial whose worker died too often to make one."""

from harness.printable import sentence
from harness.records import store
from harness.records.record import Status, TrialRecord
from harness.training.checkpoint import Checkpoints
from harness.training.loop import Fitted
from harness.trial import attempt
from harness.trial.log import trial_log
from harness.trial.session import Session
from harness.trial.task import Task

LOCK_SECONDS = 10.0  # that a driver waits for the trial's lock


def give_up(task: Task, status: Status, message: str) -> TrialRecord:
    """Save the record of a failed trial, with the curve of its newest checkpoint, and return it. A record that the
    trial saved itself is kept and returned, unless it is the one to be replaced. Raises StorageError.
    """
    spec, folder = task.spec, task.folder
    with store.writing(task.runs, spec.id, wait=LOCK_SECONDS):
        known, _ = store.load_all(task.runs, [spec.id])
        if spec.id in known and store.digest(known[spec.id]) != task.replaces:
            return known[spec.id]
        store.set_aside(task.runs, spec.id)
        checkpoint, fitted = Checkpoints(folder).newest(spec.id), Fitted()
        if checkpoint is not None:
            fitted.load_state_dict(checkpoint.parts["fitted"])
        tried = attempt.last(folder)
        session = Session(task, checkpoint)
        record = TrialRecord(
            suite=task.suite,
            spec=spec,
            status=status,
            metrics={},
            curve=tuple(fitted.curve),
            environment=session.environment(graphed=False, retries=task.retries + (tried.retries if tried else 0)),
            message=sentence(message),
            contents=task.contents_read,
            code=session.code,
            tuning=task.tuning,
        )
        with trial_log(folder) as log:
            log.error("%s: %s", status, message)
        store.save(record, task.runs)
        attempt.end(folder)
        return record
