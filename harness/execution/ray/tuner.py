"""The executor under Ray: each trial is a Tune trial in a fresh worker process, first in, first out.

Ray only schedules. A trial is finished when its record verifies, not when Tune says TERMINATED. There is no early
stopping of any kind: a benchmark that stops slow starters measures nothing.

Tune itself can fail: when Ray's memory monitor ends one worker, all trials may end (harness/execution/watcher.py).
"""

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.trainable.function_trainable import wrap_function

from harness.errors import CorpusError, StorageError
from harness.execution.executors import LOCAL, Execution, OnEvent, placed, refuse_classes_of_session
from harness.execution.ray import MAX_FAILURES, STOP_SECONDS
from harness.execution.ray.deaths import for_memory, give_up, last
from harness.execution.ray.session import packed, ray_session, scratch_folder, unpacked
from harness.execution.watcher import Watcher, run_all
from harness.extensions import needed, provided
from harness.machine.stop_request import StopRequest
from harness.records.record import TrialRecord
from harness.records.sidecars import Timing
from harness.training.loop import Progress
from harness.trial import sessions
from harness.trial.run import run
from harness.trial.task import Task
from harness.trial.timing import exclusive_pass

_STOP = StopRequest()  # of a worker's process, by a signal or by Tune
_IDLE = threading.Event()  # no trial is under way in this worker
_IDLE.set()


def execute(execution: Execution, on_event: OnEvent) -> None:
    """See Executor. All nodes of a cluster must be able to write to the records' folder."""
    with ray_session(execution.address) as failures:
        tasks, most = _placed(execution)
        with suppress(OSError):  # each worker tries again, and says why it cannot
            start = provided("harness.integrity.certifier:start", lambda: None)
            tasks = [replace(task, certifier=start()) for task in tasks]
        watcher = Watcher(tasks, on_event, fail_fast=execution.fail_fast)
        with scratch_folder(execution.tasks[0].runs, execution.address) as scratch:

            def fit(some: list[Task], at_once: int | None) -> None:
                stop = StopRequest()
                with stop.deferring():  # the trials end, and their workers save them first
                    _fit(some, at_once or most, watcher, scratch, stop)

            run_all(watcher, fit, runner="Ray")
        failures += [end for end in watcher.ends.values() if not end.ok]


def time_rows(execution: Execution, records: Mapping[str, TrialRecord]) -> tuple[list[Timing], list[str]]:
    """See Executor. One worker times all of them; it uses what one trial uses, and a whole GPU when trials share one.
    Raises also when the worker fails.
    """
    shared, runs = execution.tasks[0].shared, execution.tasks[0].runs
    with ray_session(execution.address), scratch_folder(runs, execution.address) as scratch:
        alone = [replace(task, shared=shared) for task in _placed(execution)[0]]
        needed = {"num_cpus": alone[0].threads, "num_gpus": 1 if alone[0].gpus else 0}
        timing = ray.remote(_time_in_worker).options(**needed, max_retries=0)
        return ray.get(timing.remote([packed(task, scratch) for task in alone], records))


def _time_in_worker(given: list[dict[str, str]], records: Mapping[str, TrialRecord]) -> tuple[list[Timing], list[str]]:
    return exclusive_pass(list(map(unpacked, given)), records)


def _placed(execution: Execution) -> tuple[list[Task], int | None]:
    refuse_classes_of_session(execution.tasks)
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return placed(execution, nodes, local=execution.address == LOCAL)


def _fit(tasks: list[Task], at_once: int | None, watcher: Watcher, scratch: Path, stop: StopRequest) -> None:
    """Run trials of one worker under Ray Tune, then those of several workers under Ray Train."""
    alone = [task for task in tasks if task.spec.train.data_parallel == 1]
    together = [task for task in tasks if task.spec.train.data_parallel > 1]
    if alone:
        try:
            _tuner(alone, at_once, watcher, scratch, stop).fit()
        except Exception as crash:
            raise for_memory(str(crash)) or crash from crash.__cause__
    if together and not (watcher.stopped or stop.asked):
        place = "harness.execution.ray.worker_group:train_together"  # takes half a second to import
        needed(place, "train.data_parallel")(together, at_once, watcher, scratch, stop)


def _tuner(tasks: list[Task], at_once: int | None, watcher: Watcher, scratch: Path, stop: StopRequest) -> tune.Tuner:
    listener = Listener(watcher, stop)
    return tune.Tuner(
        TrialWorker,
        param_space={"trial": tune.grid_search([packed(task, scratch) for task in tasks])},
        tune_config=tune.TuneConfig(
            trial_name_creator=trial_id, trial_dirname_creator=trial_id, max_concurrent_trials=at_once
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(scratch),
            verbose=0,
            stop=listener,
            callbacks=[listener],
            failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
        ),
    )


def trial_id(trial) -> str:
    return trial.config["trial"]["id"]


class Listener(tune.Callback, tune.Stopper):
    """Passes Tune's callbacks to the watcher, and ends all trials once that has stopped, or the driver was asked to."""

    def __init__(self, watcher: Watcher, stop: StopRequest):
        self._watcher, self._stop = watcher, stop

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._watcher.stopped or self._stop.asked

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles this object into its state file; nothing of it is needed there."""
        return {}

    def on_trial_start(self, iteration: int, trials: list, trial, **info) -> None:
        self._watcher.started(trial_id(trial))

    def on_trial_result(self, iteration: int, trials: list, trial, result: dict, **info) -> None:
        """A trial reported its progress, or why it has no record. The result that Tune reports at the end of a function
        is neither.
        """
        if "lost" in result:
            self._watcher.lost(trial_id(trial), result["lost"])
        elif "step" in result:
            progress = Progress(**{name: result[name] for name in Progress.__dataclass_fields__})
            self._watcher.progress(trial_id(trial), progress)

    def on_trial_complete(self, iteration: int, trials: list, trial, **info) -> None:
        """The function returned, or was ended by `stop_all`."""
        self._watcher.ended(trial_id(trial))

    def on_trial_recover(self, iteration: int, trials: list, trial, **info) -> None:
        """A worker died, and Tune starts another one for its trial."""
        if for_memory(last(trial.get_error() or "")):
            sessions.forgive(self._watcher.tasks[trial_id(trial)].folder)

    def on_trial_error(self, iteration: int, trials: list, trial, **info) -> None:
        """Tune starts no further worker for the trial: its workers died too often."""
        give_up(self._watcher, trial_id(trial), last(trial.get_error() or ""))


class Saved(Exception):
    """This worker was asked to end and has saved its trial. Unless the run ends, Tune starts another worker for it."""


def run_trial(config: dict[str, Any]) -> None:
    """Run one trial in a worker; it saves its record. When the worker cannot write or cannot read the corpus, which is
    not the trial's fault, there is no record, and Tune gets the reason.
    """
    task = unpacked(config["trial"])
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
