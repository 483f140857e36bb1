"""Ray Tune's callbacks: the progress of trials that Tune reports is given to the watcher."""

from typing import Any

from ray import tune

from harness.execution.rounds import Watcher
from harness.machine.stop_request import StopRequest
from harness.training.loop import Progress

MAX_FAILURES = 10  # of the workers of one trial in one run; a trial that fails twice in one place ends earlier


def trial_id(trial) -> str:
    """Our id of Tune's trial."""
    return trial.config["trial"]["id"]


class Stop(tune.Stopper):
    """Ends all trials once the watcher has stopped, or this process was asked to stop. Ends a single trial when it has
    its record, its worker is retired, and no other trial waits for a new worker.

    Args:
        waiting: ids of the trials that wait for a worker.
        stop: whether this process was asked to stop.
    """

    def __init__(self, watcher: Watcher, waiting: set[str], stop: StopRequest):
        self._watcher, self._waiting, self._stop = watcher, waiting, stop

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return "retired" in result and not self._waiting

    def stop_all(self) -> bool:
        return self._watcher.stopped or self._stop.asked

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles this object into its state file; nothing of it is needed there."""
        return {}


class Listener(tune.Callback):
    """Passes Tune's callbacks to the watcher.

    Args:
        waiting: ids of the trials that wait for a worker; kept up to date here.
    """

    def __init__(self, watcher: Watcher, waiting: set[str]):
        self._watcher, self._waiting = watcher, waiting

    def __getstate__(self) -> dict[str, Any]:
        """As for Stop."""
        return {}

    def on_trial_start(self, iteration: int, trials: list, trial, **info) -> None:
        """A worker starts the trial."""
        self._waiting.discard(trial_id(trial))
        self._watcher.started(trial_id(trial))

    def on_trial_result(self, iteration: int, trials: list, trial, result: dict, **info) -> None:
        """A trial reported its progress, or why it has no record, or that its worker retires after it. The result that
        Tune reports at the end of a function is none of these.
        """
        if "lost" in result:
            self._watcher.lost(trial_id(trial), result["lost"])
        elif "retired" in result:
            trial.config["ended"] = True
            self._watcher.ended(trial_id(trial))
        elif "step" in result:
            progress = Progress(**{name: result[name] for name in Progress.__dataclass_fields__})
            self._watcher.progress(trial_id(trial), progress)

    def on_trial_complete(self, iteration: int, trials: list, trial, **info) -> None:
        """The function returned, or was ended by Stop."""
        self._waiting.discard(trial_id(trial))
        self._watcher.ended(trial_id(trial))

    def on_trial_recover(self, iteration: int, trials: list, trial, **info) -> None:
        """The worker died or retired, and the trial waits for another one."""
        self._waiting.add(trial_id(trial))

    def on_trial_error(self, iteration: int, trials: list, trial, **info) -> None:
        """Tune starts no further worker for the trial: its workers died too often. Tune gives up earlier when a worker
        died between two trials; the trial is not the cause of that, and the next round runs it.
        """
        self._waiting.discard(trial_id(trial))
        if trial.num_failures <= MAX_FAILURES:
            return
        error = trial.get_error()
        cause = getattr(error, "cause", None) or error
        reason = f"{type(cause).__name__}: {cause}".strip().splitlines()[0] if cause else "no reason given"
        self._watcher.died(trial_id(trial), f"the worker died {MAX_FAILURES + 1} times ({reason})")
