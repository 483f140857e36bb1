"""Trials under Ray Tune: a flat list, first in, first out, several at the same time.

Ray only schedules. A trial is finished when its record verifies, not when Tune says TERMINATED. There is no early
stopping of any kind: a benchmark that stops slow starters measures nothing.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import ray
from ray import tune

from harness import bundled
from harness.errors import ExecutionError
from harness.execution.events import OnEvent
from harness.execution.ray.callbacks import MAX_FAILURES, Listener, Stop, trial_id
from harness.execution.ray.payload import Payload
from harness.execution.ray.ray_session import ray_session
from harness.execution.ray.worker import TrialWorker
from harness.execution.resources import LOCAL, Allocation, Resources, allocate, check_workers
from harness.execution.rounds import Watcher, in_rounds
from harness.machine.scratch import abandoned_scratch, scratch_prefix
from harness.machine.stop_request import StopRequest
from harness.plan.specs import TrialSpec
from harness.records import store
from harness.records.record import TrialRecord
from harness.records.timings import Timing
from harness.registry import BACKBONES, HEADS, home, use_home
from harness.training.step import refuse_unfit
from harness.trial.exclusive_times import timed
from harness.trial.setting import Setting
from harness.trial.sources import fetch_sources


def execute(
    specs: list[TrialSpec],
    setting: Setting,
    resources: Resources,
    on_event: OnEvent,
    address: str = LOCAL,
    *,
    fail_fast: bool = False,
) -> None:
    """Run every trial. Workers save the records.

    Args:
        on_event: called in this process with each event of each trial.
        address: 'local' starts Ray on this machine; anything else is the address of a cluster, whose nodes must be able
            to write to `setting.runs`.
        fail_fast: when a trial fails, the others are interrupted; the next run continues them.
    Raises: ExecutionError when no node has what a trial needs, or a trial does not fit its device; KeyboardInterrupt.
    """
    with ray_session(address) as failures:
        allocation = _prepare(specs, setting, resources, address)
        setting = allocation.setting
        watcher = Watcher(specs, setting, on_event, fail_fast=fail_fast)
        with _scratch_folder(setting, address) as scratch:

            def run_round(some: list[TrialSpec], using: Setting, at_once: int | None) -> None:
                at_once = at_once or allocation.max_concurrent
                of_round = replace(allocation, setting=using, max_concurrent=at_once)
                stop = StopRequest()
                with stop.deferring():  # Tune ends the trials; their workers save them first
                    _tuner(some, of_round, watcher, scratch, stop).fit()

            in_rounds(specs, setting, watcher, run_round)
        failures += [end for end in watcher.ends.values() if not end.ok]


def time_rows(
    records: list[TrialRecord], setting: Setting, resources: Resources, address: str = LOCAL
) -> tuple[list[Timing], list[str]]:
    """Time finished trials, one at a time (see harness.trial.exclusive_times.timed), in one worker that uses what one
    trial uses, and a whole GPU when trials share one. Raises as `execute` does, and when the worker fails.
    """
    with ray_session(address), _scratch_folder(setting, address) as scratch:
        allocation = _prepare([record.spec for record in records], setting, resources, address)
        alone = replace(allocation.setting, shared=setting.shared, replaces={})
        num_gpus = 1 if allocation.resources.gpus else 0
        task = ray.remote(_time_in_worker).options(num_cpus=allocation.resources.cpus, num_gpus=num_gpus, max_retries=0)
        found, faults = ray.get(task.remote([record.id for record in records], alone.to_json(), str(scratch)))
    return [Timing.model_validate_json(each) for each in found], faults


def _time_in_worker(trials: list[str], packed: str, scratch: str) -> tuple[list[str], list[str]]:
    use_home(Path(scratch))
    setting = Setting.from_json(packed)
    records, faults = store.load_all(setting.runs, trials)
    found, more = timed(list(records.values()), setting)
    return [timing.model_dump_json() for timing in found], faults + more


def _prepare(specs: list[TrialSpec], setting: Setting, resources: Resources, address: str) -> Allocation:
    """Place the trials on the nodes, check that they fit, and get the files that they read."""
    check_workers(specs, resources)
    _refuse_classes_of_session(specs)
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    allocation = allocate(specs, setting, resources, nodes, local=address == LOCAL)
    for spec in specs:
        refuse_unfit(spec.train, allocation.setting.device)
    fetch_sources(specs, setting.data)
    return allocation


def _refuse_classes_of_session(specs: list[TrialSpec]) -> None:
    for kind, registry in (("head", HEADS), ("backbone", BACKBONES)):
        for name in sorted({getattr(spec, kind).name for spec in specs}):
            if not registry.is_importable(name):
                raise ExecutionError(
                    f"the {kind} '{name}' is a class of this notebook or script, which Ray's workers cannot import; "
                    f"use executor='inline', or save the class as {kind}s/{name}.py in {home()}"
                )


def _tuner(
    specs: list[TrialSpec], allocation: Allocation, watcher: Watcher, scratch: Path, stop: StopRequest
) -> tune.Tuner:
    about = {"setting": allocation.setting, "resources": allocation.resources, "scratch": scratch}
    payloads = [Payload(spec=spec, replaces=watcher.replaced.get(spec.id), **about) for spec in specs]
    waiting = {spec.id for spec in specs}
    return tune.Tuner(
        TrialWorker,
        param_space={"trial": tune.grid_search([payload.pack() for payload in payloads])},
        tune_config=tune.TuneConfig(
            trial_name_creator=trial_id,
            trial_dirname_creator=trial_id,
            reuse_actors=True,
            max_concurrent_trials=allocation.max_concurrent,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(scratch),
            verbose=0,
            stop=Stop(watcher, waiting, stop),
            callbacks=[Listener(watcher, waiting)],
            failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
        ),
    )


@contextmanager
def _scratch_folder(setting: Setting, address: str) -> Iterator[Path]:
    """A folder for Tune's own files: a local one, or beside the records, where all nodes of a cluster can write. The
    user's heads and backbones are copied there, for workers on all nodes. Folders of killed runs on this machine are
    removed.
    """
    parent = Path(tempfile.gettempdir()) if address == LOCAL else setting.runs
    for left in abandoned_scratch(parent):
        shutil.rmtree(left, ignore_errors=True)
    parent.mkdir(parents=True, exist_ok=True)
    name = f"{scratch_prefix()}{os.getpid()}-"
    scratch = Path(tempfile.mkdtemp(prefix=name, dir=parent))  # mkdtemp: no other user may write there; Tune unpickles
    try:
        for name in ("heads", "backbones"):
            if (own := home() / name).is_dir() and not own.samefile(bundled(name)):
                shutil.copytree(own, scratch / name, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
