"""A data-parallel trial in its further workers: they train along with the first one and write nothing."""

import logging
import traceback
from dataclasses import replace

from harness.containment.calls import contained, first_line
from harness.errors import CorpusError, StorageError
from harness.model import components
from harness.plan.specs import TimeoutSpec, TrialSpec
from harness.printable import sentence
from harness.records import store
from harness.records.record import Status
from harness.training.checkpoint import Checkpoints
from harness.training.data_parallel import LostWorker, Unwritten, Workers
from harness.training.loop import Diverged, Fitted
from harness.trial.failures import status_of
from harness.trial.log import trial_log
from harness.trial.lost import give_up
from harness.trial.run import measure, routed
from harness.trial.session import Session, fits
from harness.trial.setting import Setting
from harness.trial.watch import Watch


class Failed(Exception):
    """A further worker failed, which the first one cannot know: what its record is to say, and where it was."""

    def __init__(self, status: Status, message: str, trace: str):
        super().__init__(status, message, trace)
        self.status, self.message, self.trace = status, message, trace


class Ended(Exception):
    """The first worker is through before the others, which are to be ended."""


def follow(spec: TrialSpec, setting: Setting, workers: Workers) -> None:
    """Train along, from the checkpoint that the first worker goes on from. Returns once training is through, or has
    diverged, which the first worker finds too.

    The first worker keeps the trial's limits of time; the limits of memory are those of each.

    Raises: Failed with what went wrong here; LostWorker; CorpusError and StorageError, as harness.trial.run.run.
    """
    silent = logging.getLogger(f"{__name__}.{spec.id}")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    try:
        state = _taken_up(spec, setting, workers)
        setting = replace(routed(setting, state), timeout=TimeoutSpec())
        with Watch(setting, store.folder(setting.runs, spec.id), 0.0) as watch, contained(components(spec)):
            current = Session(setting, spec, state)
            measure(spec, current, watch, {}, Fitted(), Unwritten(), state, lambda progress: None, silent, workers)
    except Diverged:
        return
    except (StorageError, CorpusError):
        raise
    except Exception as error:
        if workers.explains(error):
            raise LostWorker(sentence(str(error))) from None
        raise Failed(status_of(error), first_line(error), traceback.format_exc()) from None


def _taken_up(spec: TrialSpec, setting: Setting, workers: Workers) -> dict | None:
    """The checkpoint that the first worker has; it writes none before all have read this one."""
    position = workers.first_says(0, 0)
    state = Checkpoints(store.folder(setting.runs, spec.id)).newest()
    if state is not None and not fits(state, spec.id):
        state = None
    found = [state["epoch"], state["step"]] if state is not None else [1, 0]
    if found != position:
        raise RuntimeError(f"worker {workers.rank} finds a checkpoint at {found}, the first one at {position}")
    return state


def settle(spec: TrialSpec, setting: Setting, failures: dict[int, BaseException], replaces: str | None) -> None:
    """After a trial's workers were ended: nothing, where the first one made its record; else that of a worker which
    failed.

    Args:
        failures: rank -> what was raised there, or stands for its death.
    Raises: LostWorker when a worker is gone, and others are to go on; StorageError and CorpusError, as the first did.
    """
    known, _ = store.load_all(setting.runs, [spec.id])
    if spec.id in known and store.digest(known[spec.id]) != replaces:
        return
    for failure in failures.values():
        if isinstance(failure, StorageError | CorpusError):
            raise failure
    for rank, failure in failures.items():
        if isinstance(failure, Failed):
            with trial_log(store.folder(setting.runs, spec.id)) as log:
                log.error("worker %d of %d:\n%s", rank, spec.train.data_parallel, failure.trace)
            give_up(spec, setting, failure.status, failure.message, replaces)
            return
    said = "; ".join(f"worker {rank}: {type(each).__name__}: {each}".splitlines()[0] for rank, each in failures.items())
    raise LostWorker(said or "the workers could not be started")
