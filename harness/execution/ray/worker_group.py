"""A data-parallel trial: a group of Ray Train's workers, started from the trial's Ray Tune process."""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import ray
from ray import train
from ray.train.torch import TorchConfig, TorchTrainer
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

from harness.execution.ray.cluster import STOP_SECONDS
from harness.machine.stop_request import StopRequest
from harness.registry import use_home
from harness.training.data_parallel import PATIENCE_SECONDS, Workers
from harness.training.loop import PROGRESS_SECONDS, Progress
from harness.trial.follow import Ended, follow, settle
from harness.trial.run import run
from harness.trial.task import Task

MARKERS = 2**24  # a group is recognised by the number of bytes of memory that its workers reserve


def train_together(task: Task, scratch: Path, report: Callable[[dict[str, Any]], None], stop: StopRequest) -> None:
    """In Tune's worker: run a data-parallel trial with workers of Ray Train, wait for them, and report their progress.
    When a group has lost a worker, Tune starts another group, as it does for any worker that died.

    Args:
        stop: whether Tune ends the trial. The first worker then finds a file beside that of its progress, saves the
            trial if its step is resumable, and ends; the others end because they have lost it.
    Raises: LostWorker when a worker died; Interrupted after a request to stop; StorageError and CorpusError as
        harness.trial.run.run.
    """
    marker = 1 + int(task.id, 16) % MARKERS
    _remove_abandoned(marker)
    progress_file = scratch / f"{task.id}-{os.getpid()}.jsonl"
    progress_file.touch()
    trainer = _trainer(task, progress_file, marker)
    fitting = ThreadPoolExecutor(1).submit(trainer.fit)
    with progress_file.open(encoding="utf-8") as lines:
        while not (fitting.done() or stop.asked):
            wait([fitting], timeout=PROGRESS_SECONDS)
            for progress in _complete_lines(lines):
                if not stop.asked:
                    report(json.loads(progress))
    if stop.asked:
        _stop_file(progress_file).touch()
        wait([fitting], timeout=STOP_SECONDS)
        stop.check()
    try:
        fitting.result()
    except train.TrainingFailedError as failed:
        settle(task, getattr(failed, "worker_failures", {}))


def _trainer(task: Task, progress_file: Path, marker: int) -> TorchTrainer:
    of_worker = {"CPU": task.threads, "memory": marker, **({"GPU": task.gpus} if task.gpus else {})}
    return TorchTrainer(
        _worker,
        train_loop_config={"task": task.to_json(), "progress": str(progress_file)},
        torch_config=TorchConfig(timeout_s=PATIENCE_SECONDS),
        scaling_config=train.ScalingConfig(
            num_workers=task.spec.train.data_parallel,
            use_gpu=task.gpus > 0,
            resources_per_worker=of_worker,
        ),
        run_config=train.RunConfig(name=progress_file.stem, storage_path=str(progress_file.parent)),
    )


def _stop_file(progress_file: Path) -> Path:
    """It exists once the first worker is to stop."""
    return progress_file.with_suffix(".stop")


def _complete_lines(file: TextIO) -> Iterator[str]:
    """The new lines of a file. A line that is not yet complete is read the next time."""
    place = file.tell()
    while (line := file.readline()).endswith("\n"):
        yield line
        place = file.tell()
    file.seek(place)


def _remove_abandoned(marker: int) -> None:
    """Free what an earlier attempt at the trial has reserved. When its process was killed, Ray ends the workers but
    keeps their reservation for ever, and the next attempt would wait for it (Ray 2.60).
    """
    job = ray.get_runtime_context().get_job_id()
    for group, held in placement_group_table().items():
        own = group.endswith(job) and any(each.get("memory") == marker for each in held["bundles"].values())
        if own and held["state"] != "REMOVED":
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group))))


def _worker(config: dict[str, Any]) -> None:
    """In one of Ray Train's workers, whose process group is ready. The first worker writes its progress to a file: a
    report to Ray Train would have to be made by all of them.
    """
    task, progress_file = Task.from_json(config["task"]), Path(config["progress"])
    use_home(progress_file.parent)
    workers = Workers(train.get_context().get_world_rank(), train.get_context().get_world_size())
    if workers.rank:
        follow(task, workers)
        return
    stop = StopRequest()

    def report(progress: Progress) -> None:
        with suppress(OSError), progress_file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(progress)) + "\n")
        if _stop_file(progress_file).exists():
            stop.ask()

    try:
        run(task, report, workers, stop)
    except KeyboardInterrupt:
        raise Ended("the trial was asked to stop") from None
    if not workers.dismissed:
        raise Ended("the trial has its record, and other workers still wait for the first one")
