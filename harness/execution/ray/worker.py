"""What a Ray worker does: it runs one trial, in a process of its own, and reports its progress to Ray Tune."""

import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.trainable.function_trainable import wrap_function

from harness.errors import CorpusError, StorageError
from harness.execution.ray.cluster import STOP_SECONDS
from harness.machine.stop_request import StopRequest
from harness.registry import use_home
from harness.training.loop import Progress
from harness.trial.run import run
from harness.trial.task import Task

MAX_FAILURES = 10  # of the workers of one trial in one run; a trial that fails twice in one place ends earlier
_STOP = StopRequest()  # of this process, by a signal or by Tune
_IDLE = threading.Event()  # no trial is under way
_IDLE.set()


def packed(task: Task, scratch: Path) -> dict[str, Any]:
    """What Ray gives a worker: the task as JSON, with its id, and the folder for the temporary files of the run's
    executor, which has copies of the user's heads and backbones.
    """
    return {"id": task.id, "task": task.to_json(), "scratch": str(scratch)}


class Saved(Exception):
    """This worker was asked to end and has saved its trial. Unless the run ends, Tune starts another worker for it."""


def run_trial(config: dict[str, Any]) -> None:
    """Run one trial; it saves its record. When the worker cannot write or cannot read the corpus, which is not the
    trial's fault, there is no record, and Tune gets the reason.
    """
    task = Task.from_json(config["trial"]["task"])
    use_home(Path(config["trial"]["scratch"]))
    _IDLE.clear()
    try:
        run(task, _report, stop=_STOP)
    except (StorageError, CorpusError) as fault:
        tune.report({"lost": str(fault)})
    except KeyboardInterrupt:
        raise Saved from None
    finally:
        _IDLE.set()


def _report(progress: Progress) -> None:
    """Report to Tune. When Tune ends the trial, which it does by a SystemExit here, training is asked to stop."""
    try:
        tune.report(asdict(progress))
    except SystemExit:
        _STOP.ask()


class TrialWorker(wrap_function(run_trial)):
    """The class of Ray's worker processes. Its methods run in the main thread, the trial in another one."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        """What Tune reserves for a trial."""
        task = Task.from_json(config["trial"]["task"])
        return tune.PlacementGroupFactory([{"CPU": task.threads, "GPU": task.gpus}])

    def setup(self, config: dict[str, Any]) -> None:
        """Receive signals from now on: only a main thread can."""
        _STOP.listen()
        super().setup(config)

    def cleanup(self) -> None:
        """Tune ends this worker. A trial under way learns of it when it reports its progress, and is waited for."""
        super().cleanup()
        _IDLE.wait(STOP_SECONDS)
