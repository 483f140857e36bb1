"""Executors run trials: what they are given, what they report, on which nodes trials fit; and the options of a run.

An executor is a module with two functions. `execute` runs trials, whose records are saved where they run. `time_rows`
times finished ones, where they can be alone on a machine. Ray is not imported here.
"""

import contextlib
import importlib
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import torch

from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError, StorageError
from harness.execution import EXECUTORS
from harness.machine import file_systems
from harness.machine.environment import resolve_device
from harness.plan.reader import results_option
from harness.plan.specs import TrialSpec
from harness.plan.suite_file import Resources
from harness.printable import sentence
from harness.records import store
from harness.records.record import TrialRecord
from harness.records.sidecars import Timing
from harness.registry import BACKBONES, HEADS, home
from harness.training.loop import Progress
from harness.training.step import refuse_unfit
from harness.trial import routes, sessions
from harness.trial.run import tidy
from harness.trial.setup import fetch_sources
from harness.trial.task import Task

GIB = 2**30
DISK_WANTED = 2 * GIB
LOCAL = "local"  # the address that stands for this machine alone, without a cluster
NOT_TIMED = (  # under SLURM
    "other jobs may run on the same nodes; `srun --exclusive harness run SUITE --executor inline` times them alone"
)
Node = dict[str, float]  # resource ('CPU', 'GPU') -> how much of it a node has


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `harness run`.

    Args:
        overrides: changes of the suite as of --set, for example ('train.epochs=2',).
        only: conditions as of --only, for example ('head=mos,seed=1',); () runs all trials.
        executor: 'ray' runs several trials at the same time, 'inline' one after the other in this process, 'slurm'
            each as a job.
        address: 'local', or the address of a Ray cluster.
        slurm: options of sbatch, for example ('--account=me', '--time=4:00:00').
        device: 'auto' uses a GPU if there is one.
        cpus_per_trial: CPU cores and torch threads of a trial; None: as the suite says.
        gpus_per_trial: GPUs of a trial, or a share of one; None: as the suite says.
        retry_failed: run failed trials again, and those that could not be certified.
        force: run finished trials again.
        keep: use finished trials although their code has changed since.
        shared: other programs use this machine, so the times are marked as shared.
        fail_fast: stop at the first trial that fails.
        tracking: write to MLflow.
        timing: True: time the rows again; False: do not time them; None: as the suite says, once.
    """

    overrides: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    executor: str = "ray"
    address: str = LOCAL
    slurm: tuple[str, ...] = ()
    device: Literal["auto", "cpu", "cuda"] = "auto"
    cpus_per_trial: int | None = None
    gpus_per_trial: float | None = None
    retry_failed: bool = False
    force: bool = False
    keep: bool = False
    shared: bool = False
    fail_fast: bool = False
    tracking: bool = True
    timing: bool | None = None

    def __post_init__(self) -> None:
        if self.executor not in EXECUTORS:
            raise ExecutionError(f"there is no executor '{self.executor}'; there are: {', '.join(EXECUTORS)}")
        if self.slurm and self.executor != "slurm":
            raise ExecutionError("--account, --partition and --slurm are for the jobs of --executor slurm: add it")
        if self.timing and self.executor == "slurm":
            raise ExecutionError(f"--timing cannot be used with --executor slurm: {NOT_TIMED}")
        if self.force and self.keep:
            raise ExecutionError("--force trains finished trials again and --keep keeps them: use only one of the two")


def repeated(options: RunOptions, results: Path, data: Path) -> list[str]:
    """The options of a command that runs other trials in the same way: in these folders, on the same resources.

    Options that select trials or say what becomes of finished ones are not among them.
    """
    usual = RunOptions()
    given = []
    for name in ("executor", "address", "device", "cpus_per_trial", "gpus_per_trial"):
        if (value := getattr(options, name)) != getattr(usual, name):
            given += [f"--{name.replace('_', '-')}", str(value)]
    given += ["--slurm", shlex.join(options.slurm)] if options.slurm else []
    given += [] if options.tracking else ["--no-tracking"]
    given += ["--shared"] if options.shared else []
    return [*given, *results_option(results), *([] if data == DEFAULT_DATA else ["--data", str(data)])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of one trial. A 'finished' one has the trial's record, or in `message` why there is none."""

    kind: Literal["started", "progress", "finished"]
    spec: TrialSpec
    progress: Progress | None = None
    record: TrialRecord | None = None
    message: str = ""

    @property
    def ok(self) -> bool:
        return self.record is not None and self.record.status == "ok"


OnEvent = Callable[[Event], None]


class GuardedListener:
    """Calls a listener. What it raises has no effect on the trials; the first is printed."""

    def __init__(self, on_event: OnEvent):
        self._on_event, self._printed = on_event, False

    def __call__(self, event: Event) -> None:
        try:
            self._on_event(event)
        except Exception as error:
            if not self._printed:
                self._printed = True
                with contextlib.suppress(OSError):  # standard error may be closed
                    text = f"the progress of {event.spec} cannot be shown: {type(error).__name__}: {error}"
                    print(sentence(text), file=sys.stderr)


def check_workers(tasks: list[Task], resources: Resources) -> None:
    """Raises ExecutionError when the number of a trial's workers and its number of GPUs contradict each other."""
    for workers in sorted({task.spec.train.data_parallel for task in tasks}):
        one_gpu_or_less = workers == 1 and (resources.gpus or 0) <= 1
        if not one_gpu_or_less and resources.gpus not in (None, 0, workers):
            raise ExecutionError(
                f"a trial needs {resources.gpus:g} GPUs and train.data_parallel is {workers}: each worker uses one "
                "GPU, and a trial with one worker at most one; change resources.gpus in the suite or --gpus-per-trial"
            )


def allocate(
    tasks: list[Task], resources: Resources, nodes: list[Node], *, local: bool, most: int | None = None
) -> tuple[list[Task], int | None]:
    """Choose the device, and compute what one worker needs and how many trials fit on the nodes.

    Args:
        tasks: of one run: all for the same device.
        local: True when the only node is this machine. A cluster may grow, so Ray Tune decides there how many trials
            run at the same time; but Tune does not count the workers of data-parallel trials, so they are limited here.
        most: how many trials the executor runs at the same time, if it has a limit.
    Returns: the trials, with their device, threads, GPUs and shares of the machine; and how many may run at the same
        time, None when Ray Tune decides.
    Raises: ExecutionError when the nodes cannot hold one trial.
    """
    workers = max(task.spec.train.data_parallel for task in tasks)
    device = _device(tasks[0].device, resources, nodes, local=local)
    gpus = 0.0 if device == "cpu" else (resources.gpus or workers) / workers
    of_worker = Resources(cpus=resources.cpus, gpus=gpus)
    capacities = [_capacity(node, of_worker) for node in nodes]
    at_once = sum(capacities) // workers
    if not at_once:
        raise ExecutionError(_too_large(of_worker, workers, nodes))
    together = min(at_once, len(tasks), most or len(tasks))
    share = 1 / min((most or len(tasks)) * workers, max(capacities))
    places = {"device": device, "threads": resources.cpus, "gpus": gpus, "memory_share": share}
    there = [replace(task, **places, shared=task.shared or together > 1) for task in tasks]
    return there, at_once if local or workers > 1 else None


def _device(asked: str, resources: Resources, nodes: list[Node], *, local: bool) -> str:
    if resources.gpus == 0 and asked == "auto":
        return "cpu"
    if local:
        return resolve_device(asked).type
    if asked != "auto":
        return asked
    return "cuda" if any(node.get("GPU", 0) for node in nodes) else "cpu"


def _capacity(node: Node, worker: Resources) -> int:
    by_cpu = int(node.get("CPU", 0) // worker.cpus)
    return min(by_cpu, int(node.get("GPU", 0) / worker.gpus + 1e-9)) if worker.gpus else by_cpu


def _too_large(worker: Resources, workers: int, nodes: list[Node]) -> str:
    available = "; ".join(f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs" for node in nodes)
    needed = f"{worker.cpus} CPUs and {worker.gpus:g} GPUs"
    available += "; change resources in the suite, --cpus-per-trial or --gpus-per-trial"
    if workers == 1:
        return f"a trial needs {needed}, and no node has that much; the nodes have: {available}"
    return f"a trial needs {workers} times {needed}, and the nodes together do not have that much: {available}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How the trials of one command are executed."""

    tasks: list[Task]
    resources: Resources
    address: str = LOCAL
    slurm: tuple[str, ...] = ()
    fail_fast: bool = False

    @property
    def on_gpu(self) -> bool:
        """Whether the trials will run on a GPU, as far as this machine can know."""
        device = self.tasks[0].device
        return device == "cuda" or (device == "auto" and self.resources.gpus != 0 and torch.cuda.is_available())

    def with_route(self) -> "Execution":
        """With the route of float32 products on the CPU, chosen once, so that all trials of a run multiply alike."""
        if self.on_gpu:
            return self
        route = routes.chosen_route()
        return replace(self, tasks=[replace(task, route=route) for task in self.tasks])


def placed(
    execution: Execution, nodes: list[Node], *, local: bool, most: int | None = None
) -> tuple[list[Task], int | None]:
    """What an executor does before it starts trials: place them on the nodes, as `allocate`, check that they fit, and
    get the files that they read. One that starts other processes calls `refuse_classes_of_session`, too.

    Raises: as Executor.execute.
    """
    specs = [task.spec for task in execution.tasks]
    check_workers(execution.tasks, execution.resources)
    tasks, at_once = allocate(execution.tasks, execution.resources, nodes, local=local, most=most)
    for spec in specs:
        refuse_unfit(spec.train, tasks[0].device)
    fetch_sources(specs, execution.tasks[0].data)
    return tasks, at_once


def refuse_classes_of_session(tasks: list[Task]) -> None:
    """Raises ExecutionError when other processes cannot import a class of a trial."""
    for kind, registry in (("head", HEADS), ("backbone", BACKBONES)):
        for name in sorted({getattr(task.spec, kind).name for task in tasks}):
            if not registry.is_importable(name):
                raise ExecutionError(
                    f"the {kind} '{name}' is a class of this notebook or script, which other processes cannot import; "
                    f"use executor='inline', or save the class as {kind}s/{name}.py in {home()}"
                )


class Executor(Protocol):
    """The functions of an executor. Both raise ExecutionError when no machine has what a trial needs, or a trial does
    not fit its device, and CorpusError when a corpus cannot be read or downloaded; nothing was started then.
    """

    @staticmethod
    def execute(execution: Execution, on_event: OnEvent) -> None:
        """Run every trial; `on_event` is called in this process with each event of each trial. Raises
        KeyboardInterrupt.
        """

    @staticmethod
    def time_rows(execution: Execution, records: Mapping[str, TrialRecord]) -> tuple[list[Timing], list[str]]:
        """Time finished trials, one at a time (see harness.trial.timing). `records`: that of each trial, by id.
        SLURM's executor has none.
        """


def executor(execution: Execution) -> Executor:
    return importlib.import_module(EXECUTORS[execution.tasks[0].executor])


def run_trials(execution: Execution, show: OnEvent, tracking: Any) -> dict[str, TrialRecord]:
    """Run trials with their executor, and show each record in MLflow when it arrives. Returns the new records, by id.

    Args:
        tracking: the Tracker of harness/tracking/sync.py; None: nothing is written to MLflow.
    Raises: as Executor.execute.
    """
    records: dict[str, TrialRecord] = {}

    def on_event(event: Event) -> None:
        if event.record is not None:
            records[event.spec.id] = event.record
        show(event)
        if event.record is not None and tracking is not None:
            tracking.show(event.record)

    executor(execution).execute(execution.with_route(), on_event)
    return records


def tidy_finished(runs: Path, finished: Iterable[str]) -> None:
    """Remove the temporary files of finished trials whose worker was killed before it could do so. A trial that another
    process is working on is left alone.
    """
    for trial in finished:
        folder = store.folder(runs, trial)
        if not sessions.ended(folder):
            with contextlib.suppress(StorageError), store.writing(runs, trial, wait=0):
                found, _ = store.load_all(runs, [trial])  # read again: another process may have moved it meanwhile
                if trial in found:
                    tidy(folder, found[trial].status)


def check_folder(runs: Path, warn: Callable[[str], None]) -> None:
    """Raises ExecutionError when trials cannot write to a folder, or its file system cannot hold records; `warn`
    receives a sentence when they are less safe there, or the disk is nearly full, where a trial may stop at its last
    checkpoint.
    """
    try:
        runs.mkdir(parents=True, exist_ok=True)
        needed, wanted = file_systems.lacks(runs)
        free = shutil.disk_usage(runs).free
    except OSError as cause:
        raise ExecutionError(
            f"{runs} cannot be written ({cause.strerror}); name another folder with --results"
        ) from cause
    if needed:
        raise ExecutionError(
            f"the file system of {runs} cannot hold records: {needed}; name a folder on a local disk with --results"
        )
    if wanted:
        warn(f"{wanted} on the file system of {runs}: after a power failure the newest trials may have to run again")
    if free < DISK_WANTED:
        warn(f"only {free / GIB:.1f} GiB are free on the disk of {runs}")
