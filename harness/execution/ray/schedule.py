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
from harness.execution.ray.ray_session import ray_session
from harness.execution.ray.worker import TrialWorker, packed
from harness.execution.resources import LOCAL, Allocation, Resources, allocate, check_workers
from harness.execution.rounds import Watcher, in_rounds
from harness.machine.processes import abandoned_scratch, scratch_prefix
from harness.machine.stop_request import StopRequest
from harness.plan.specs import TrialSpec
from harness.records import store
from harness.records.sidecars import Timing
from harness.registry import BACKBONES, HEADS, home, use_home
from harness.training.step import refuse_unfit
from harness.trial.exclusive_times import timed
from harness.trial.sources import fetch_sources
from harness.trial.task import Task


def execute(
    tasks: list[Task],
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
            to write to the folder of the records.
        fail_fast: when a trial fails, the others are interrupted; the next run continues them.
    Raises: ExecutionError when no node has what a trial needs, or a trial does not fit its device; KeyboardInterrupt.
    """
    with ray_session(address) as failures:
        allocation = _prepare(tasks, resources, address)
        watcher = Watcher(allocation.tasks, on_event, fail_fast=fail_fast)
        with _scratch_folder(tasks[0].runs, address) as scratch:

            def run_round(some: list[Task], at_once: int | None) -> None:
                stop = StopRequest()
                with stop.deferring():  # Tune ends the trials; their workers save them first
                    _tuner(some, at_once or allocation.max_concurrent, watcher, scratch, stop).fit()

            in_rounds(watcher, run_round)
        failures += [end for end in watcher.ends.values() if not end.ok]


def time_rows(tasks: list[Task], resources: Resources, address: str = LOCAL) -> tuple[list[Timing], list[str]]:
    """Time finished trials, one at a time (see harness.trial.exclusive_times.timed), in one worker that uses what one
    trial uses, and a whole GPU when trials share one. Raises as `execute` does, and when the worker fails.
    """
    shared = tasks[0].shared
    with ray_session(address), _scratch_folder(tasks[0].runs, address) as scratch:
        alone = [replace(task, shared=shared) for task in _prepare(tasks, resources, address).tasks]
        needed = {"num_cpus": alone[0].threads, "num_gpus": 1 if alone[0].gpus else 0}
        timing = ray.remote(_time_in_worker).options(**needed, max_retries=0)
        found, faults = ray.get(timing.remote([task.to_json() for task in alone], str(scratch)))
    return [Timing.model_validate_json(each) for each in found], faults


def _time_in_worker(sent: list[str], scratch: str) -> tuple[list[str], list[str]]:
    use_home(Path(scratch))
    tasks = [Task.from_json(each) for each in sent]
    records, faults = store.load_all(tasks[0].runs, [task.id for task in tasks])
    found, more = timed([task for task in tasks if task.id in records], records)
    return [timing.model_dump_json() for timing in found], faults + more


def _prepare(tasks: list[Task], resources: Resources, address: str) -> Allocation:
    """Place the trials on the nodes, check that they fit, and get the files that they read."""
    specs = [task.spec for task in tasks]
    check_workers(tasks, resources)
    _refuse_classes_of_session(specs)
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    allocation = allocate(tasks, resources, nodes, local=address == LOCAL)
    for spec in specs:
        refuse_unfit(spec.train, allocation.tasks[0].device)
    fetch_sources(specs, tasks[0].data)
    return allocation


def _refuse_classes_of_session(specs: list[TrialSpec]) -> None:
    for kind, registry in (("head", HEADS), ("backbone", BACKBONES)):
        for name in sorted({getattr(spec, kind).name for spec in specs}):
            if not registry.is_importable(name):
                raise ExecutionError(
                    f"the {kind} '{name}' is a class of this notebook or script, which Ray's workers cannot import; "
                    f"use executor='inline', or save the class as {kind}s/{name}.py in {home()}"
                )


def _tuner(tasks: list[Task], at_once: int | None, watcher: Watcher, scratch: Path, stop: StopRequest) -> tune.Tuner:
    waiting = {task.id for task in tasks}
    return tune.Tuner(
        TrialWorker,
        param_space={"trial": tune.grid_search([packed(task, scratch) for task in tasks])},
        tune_config=tune.TuneConfig(
            trial_name_creator=trial_id,
            trial_dirname_creator=trial_id,
            reuse_actors=True,
            max_concurrent_trials=at_once,
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
def _scratch_folder(runs: Path, address: str) -> Iterator[Path]:
    """A folder for Tune's own files: a local one, or beside the records, where all nodes of a cluster can write. The
    user's heads and backbones are copied there, for workers on all nodes. Folders of killed runs on this machine are
    removed.
    """
    parent = Path(tempfile.gettempdir()) if address == LOCAL else runs
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
