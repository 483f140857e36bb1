"""The record of a trial that could not make one itself: its worker died once too often."""

from harness.plan.specs import TrialSpec
from harness.printable import sentence
from harness.records import store
from harness.records.record import Status, TrialRecord
from harness.training.checkpoint import Checkpoints
from harness.training.loop import Fitted
from harness.trial import attempt
from harness.trial.log import trial_log
from harness.trial.session import Session, fits
from harness.trial.setting import Setting

LOCK_SECONDS = 10.0  # that a driver waits for a worker to be gone


def give_up(
    spec: TrialSpec, setting: Setting, status: Status, message: str, replaces: str | None = None
) -> TrialRecord:
    """Save a failed record with the curve as far as the newest checkpoint has it. One that the trial made after all is
    kept, unless it is the one to be replaced. Raises StorageError.
    """
    folder = store.folder(setting.runs, spec.id)
    with store.writing(setting.runs, spec.id, wait=LOCK_SECONDS):
        known, _ = store.load_all(setting.runs, [spec.id])
        if spec.id in known and store.digest(known[spec.id]) != replaces:
            return known[spec.id]
        store.set_aside(setting.runs, spec.id)
        state = Checkpoints(folder).newest()
        if state is not None and not fits(state, spec.id):
            state = None
        fitted = Fitted()
        if state is not None:
            fitted.resume(state["fitted"])
        tried = attempt.last(folder)
        current = Session(setting, spec, state)
        record = TrialRecord(
            suite=setting.suite,
            spec=spec,
            status=status,
            metrics={},
            curve=tuple(fitted.curve),
            environment=current.environment(graphed=False, retries=setting.retries + (tried.retries if tried else 0)),
            message=sentence(message),
            contents=setting.contents_of(spec),
            code=current.code,
        )
        with trial_log(folder) as log:
            log.error("%s: %s", status, message)
        store.save(record, setting.runs)
        attempt.end(folder)
        return record
