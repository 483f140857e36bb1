"""Trials under Ray Tune: a flat list, first in first out, several at a time. Ray is imported here, in
harness/execution/ray/worker.py and in harness/execution/ray/worker_group.py only.

Ray schedules and nothing else: a trial is finished when its record verifies, never because Tune says TERMINATED. No
early stopping of any kind: a benchmark that stops slow starters measures nothing.
"""

import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.execution.ray import cluster, folders

cluster.set_environment()
cluster.show_token()

import ray  # noqa: E402
from ray import tune  # noqa: E402

from harness.errors import ExecutionError  # noqa: E402
from harness.execution.events import Claim, OnEvent  # noqa: E402
from harness.execution.ray.payload import Parcel  # noqa: E402
from harness.execution.ray.worker import run_trial  # noqa: E402
from harness.execution.resources import fitted, refuse_contradiction  # noqa: E402
from harness.execution.rounds import Watcher, in_rounds  # noqa: E402
from harness.machine.environment import cpus_available  # noqa: E402
from harness.machine.scratch import abandoned_scratch, scratch_prefix  # noqa: E402
from harness.plan.specs import TrialSpec  # noqa: E402
from harness.records import store  # noqa: E402
from harness.records.record import TrialRecord  # noqa: E402
from harness.records.timings import Timing  # noqa: E402
from harness.training.progress import Progress  # noqa: E402
from harness.training.step import refuse_unfit  # noqa: E402
from harness.trial.exclusive_times import timed  # noqa: E402
from harness.trial.setting import Setting  # noqa: E402
from harness.trial.sources import fetch_sources  # noqa: E402

LOCAL = "local"
QUIET = {"log_to_driver": False, "logging_level": logging.CRITICAL}
FAULTS = (ConnectionError, ValueError, OSError, RuntimeError, ray.exceptions.RayError)
MAX_FAILURES = 10  # of one trial's workers, in one run; the worker itself gives up at the second in one place


def execute(
    specs: list[TrialSpec],
    setting: Setting,
    claim: Claim,
    on_event: OnEvent,
    address: str = LOCAL,
    *,
    fail_fast: bool = False,
) -> None:
    """Run every trial; workers save the records, `on_event` hears of them in this process. With `fail_fast`, the first
    that fails ends the others, which go on another time.

    Args:
        address: 'local' starts a Ray of our own; anything else joins that cluster, which must see `setting.runs`.
    Raises: ExecutionError when no node can ever hold one trial, or a trial does not fit its device; KeyboardInterrupt
        passes through.
    """
    with _ray(address) as failures:
        setting, claim, most = _ready(specs, setting, claim, address)
        watcher = Watcher(specs, setting, on_event, fail_fast=fail_fast)
        with _scratch(setting, address) as scratch:

            def fit(some: list[TrialSpec], using: Setting, at_once: int | None) -> None:
                _tuner(some, using, claim, watcher, scratch, at_once or most).fit()

            in_rounds(specs, setting, watcher, fit)
        failures += [end for end in watcher.ends.values() if not end.ok]


def time_rows(
    found: list[TrialRecord], setting: Setting, claim: Claim, address: str = LOCAL
) -> tuple[list[Timing], list[str]]:
    """An exclusive pass over finished trials, as harness.trial.exclusive_times.timed, by one worker that takes what one
    trial takes; of a GPU all, where trials have a share. Raises as `execute`, and what becomes of the worker.
    """
    with _ray(address):
        ready, claim, _ = _ready([record.spec for record in found], setting, claim, address)
        alone = replace(ready, shared=setting.shared, replaces={})
        task = ray.remote(_timed).options(num_cpus=claim.cpus, num_gpus=1 if claim.gpus else 0, max_retries=0)
        taken, sentences = ray.get(task.remote([record.id for record in found], alone.to_json()))
    return [Timing.model_validate_json(each) for each in taken], sentences


def _timed(trials: list[str], setting: str) -> tuple[list[str], list[str]]:
    """In the worker: the pass."""
    told = Setting.from_json(setting)
    found, sentences = store.load_all(told.runs, trials)
    taken, more = timed(list(found.values()), told)
    return [timing.model_dump_json() for timing in taken], sentences + more


def _ready(specs: list[TrialSpec], setting: Setting, claim: Claim, address: str) -> tuple[Setting, Claim, int | None]:
    """What harness.execution.resources.fitted gives for the nodes there are; what the trials read is there then."""
    refuse_contradiction(specs, claim)
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    setting, claim, most = fitted(setting, claim, specs, nodes, local=address == LOCAL)
    for spec in specs:
        refuse_unfit(spec.train, setting.device)
    fetch_sources(specs, setting.data)
    return setting, claim, most


def _tuner(
    specs: list[TrialSpec], setting: Setting, claim: Claim, watcher: Watcher, scratch: Path, at_once: int | None
) -> tune.Tuner:
    parcels = [
        Parcel(spec=spec, setting=setting, claim=claim, replaces=watcher.replaced.get(spec.id), scratch=scratch)
        for spec in specs
    ]
    waiting = {spec.id for spec in specs}
    return tune.Tuner(
        tune.with_resources(run_trial, _resources),
        param_space={"trial": tune.grid_search([parcel.pack() for parcel in parcels])},
        tune_config=tune.TuneConfig(
            trial_name_creator=_trial_id,
            trial_dirname_creator=_trial_id,
            reuse_actors=True,
            max_concurrent_trials=at_once,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(scratch),
            verbose=0,
            stop=_Stop(watcher, waiting),
            callbacks=[_Listener(watcher, waiting)],
            failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
        ),
    )


def _resources(config: dict[str, Any]) -> tune.PlacementGroupFactory:
    """What Tune sets aside for a trial. Of a data-parallel one Ray Train claims for the workers, all or none at once;
    for what waits for them there is a byte of memory, since Tune knows no claim of nothing.
    """
    parcel = Parcel.unpack(config["trial"])
    alone = parcel.spec.train.data_parallel == 1
    taken = {"CPU": parcel.claim.cpus, "GPU": parcel.claim.gpus} if alone else {"memory": 1}
    return tune.PlacementGroupFactory([taken])


@contextmanager
def _scratch(setting: Setting, address: str) -> Iterator[Path]:
    """A folder for what Tune writes for itself: local, or beside the records, where the nodes of a cluster meet. Those
    of runs on this host that were killed are removed.
    """
    parent = Path(tempfile.gettempdir()) if address == LOCAL else setting.runs
    for left in abandoned_scratch(parent):
        shutil.rmtree(left, ignore_errors=True)
    parent.mkdir(parents=True, exist_ok=True)
    name = f"{scratch_prefix()}{os.getpid()}-"
    scratch = Path(tempfile.mkdtemp(prefix=name, dir=parent))  # nobody else's: Tune reads pickles there
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _start() -> Path:
    """The folder that Ray has made for itself; those of dead drivers of ours are removed."""
    try:
        started = ray.init(LOCAL, num_cpus=cpus_available(), include_dashboard=False, **QUIET)
    except FAULTS as cause:
        raise ExecutionError(f"Ray does not start: {_line(cause)}") from cause
    session = Path(started.address_info["session_dir"])
    folders.mark(session)
    folders.remove_abandoned(session.parent)
    return session


def _join(address: str) -> None:
    cluster.refuse_silent(address)
    try:
        with cluster.no_mutter():
            ray.init(address, **QUIET)
    except FAULTS as cause:
        raise ExecutionError(
            f"the Ray cluster at '{address}' cannot be joined: {_line(cause)}; this machine must be one of its nodes, "
            "with the same versions of Ray and Python and the same token of Ray's (docs/cluster.md)"
        ) from cause


def _line(cause: Exception) -> str:
    return " ".join(str(cause).split())[:300]


@contextmanager
def _ray(address: str) -> Iterator[list[Any]]:
    """Ray for the length of a block, with the command line's own handling of SIGTERM. It gives a list for failures; a
    local Ray's folder is removed where there were none, and left to the next run where there were: its logs are there.
    """
    cluster.refuse_open_ray()
    cluster.refuse_homeless_ray()
    before = signal.getsignal(signal.SIGTERM)
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    session = _start() if address == LOCAL else _join(address)
    signal.signal(signal.SIGTERM, before)
    failures: list[Any] = []
    try:
        yield failures
    except Exception as fault:
        failures.append(fault)
        raise
    finally:
        ray.shutdown()
        if session is not None and not failures:
            folders.remove(session)


def _trial_id(trial) -> str:
    return trial.config["trial"]["id"]


class _Stop(tune.Stopper):
    """Ends the whole fit once the watcher says so. Of trials it ends those that have their record and whose worker is
    retired, where no other trial waits for a new worker.
    """

    def __init__(self, watcher: Watcher, waiting: set[str]):
        self._watcher, self._waiting = watcher, waiting

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return "retired" in result and not self._waiting

    def stop_all(self) -> bool:
        return self._watcher.stopped

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles it into its own state file; nothing of ours belongs there."""
        return {}


class _Listener(tune.Callback):
    """Tune's callbacks, told to the watcher.

    Args:
        waiting: ids of the trials that need a worker; kept up to date here.
    """

    def __init__(self, watcher: Watcher, waiting: set[str]):
        self._watcher, self._waiting = watcher, waiting

    def __getstate__(self) -> dict[str, Any]:
        """As for _Stop."""
        return {}

    def on_trial_start(self, iteration: int, trials: list, trial, **info) -> None:
        """A worker has the trial."""
        self._waiting.discard(_trial_id(trial))
        self._watcher.started(_trial_id(trial))

    def on_trial_result(self, iteration: int, trials: list, trial, result: dict, **info) -> None:
        """A trial reported progress, or why it was lost, or that its worker retires after it; the bare result at the
        end of a function is none of these.
        """
        if "lost" in result:
            self._watcher.lost(_trial_id(trial), result["lost"])
        elif "retired" in result:
            trial.config["ended"] = True
            self._watcher.ended(_trial_id(trial))
        elif "step" in result:
            progress = Progress(**{name: result[name] for name in Progress.__dataclass_fields__})
            self._watcher.progress(_trial_id(trial), progress)

    def on_trial_complete(self, iteration: int, trials: list, trial, **info) -> None:
        """The function returned, or was ended by _Stop."""
        self._waiting.discard(_trial_id(trial))
        self._watcher.ended(_trial_id(trial))

    def on_trial_recover(self, iteration: int, trials: list, trial, **info) -> None:
        """The worker died or retired, and the trial waits for another."""
        self._waiting.add(_trial_id(trial))

    def on_trial_error(self, iteration: int, trials: list, trial, **info) -> None:
        """No worker is tried any more: they died time and again, or, where Tune gives up earlier, one died between two
        trials. That says nothing of this trial, and the next round has it.
        """
        self._waiting.discard(_trial_id(trial))
        if trial.num_failures <= MAX_FAILURES:
            return
        error = trial.get_error()
        cause = getattr(error, "cause", None) or error
        reason = f"{type(cause).__name__}: {cause}".strip().splitlines()[0] if cause else "no reason given"
        self._watcher.died(_trial_id(trial), f"the worker died {MAX_FAILURES + 1} times ({reason})")
