"""Data-parallel trials: each is trained by a group of Ray Train's workers, which a TorchTrainer starts and watches.

Ray Train reserves what the workers of a group need, all or none, initializes torch's process group, and ends all
workers when one fails. The first worker makes the trial's record. It writes its progress to a file, since all workers
of a group would have to make a report to Ray Train; and it looks for a file that asks it to stop.
"""

import threading
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any

from ray import train
from ray.train.torch import TorchConfig, TorchTrainer

from harness.errors import CorpusError, StorageError
from harness.execution.ray import MAX_FAILURES, STOP_SECONDS
from harness.execution.ray.deaths import give_up
from harness.execution.ray.session import packed, unpacked
from harness.execution.watcher import ProgressFile, Watcher
from harness.gpu.data_parallel import PATIENCE_SECONDS, WorkersOfTorch
from harness.machine.stop_request import StopRequest
from harness.training.loop import PROGRESS_SECONDS, Progress
from harness.trial.run import Ended, follow, run, settle
from harness.trial.task import Task
from harness.trial.workers import LostWorker


def train_together(tasks: list[Task], at_once: int, watcher: Watcher, scratch: Path, stop: StopRequest) -> None:
    """Run data-parallel trials, so many at the same time. A group that has lost a worker is followed by another
    one. When the watcher has stopped or with a request to stop, the groups save their trials and end.

    Raises: what Ray Train raises when no worker is to blame. The other groups were ended then.
    """
    waiting, groups, lost = list(tasks), [], Counter()
    try:
        while (waiting or groups) and not (watcher.stopped or stop.asked):
            while waiting and len(groups) < at_once:
                groups.append(_Group(waiting.pop(0), watcher, scratch))
            wait([group.fitting for group in groups], timeout=PROGRESS_SECONDS, return_when=FIRST_COMPLETED)
            for group in groups:
                group.report()
            ended = [group for group in groups if group.fitting.done()]
            groups = [group for group in groups if group not in ended]
            for group in ended:
                try:
                    group.settle()
                except LostWorker as fault:
                    lost[group.task.id] += 1
                    if lost[group.task.id] > MAX_FAILURES:
                        give_up(watcher, group.task.id, str(fault))
                    else:
                        waiting.insert(0, group.task)
    finally:
        for group in groups:
            group.stop_file.touch()
        wait([group.fitting for group in groups], timeout=STOP_SECONDS)
    for group in groups:
        watcher.ended(group.task.id)


class _Group:
    """The workers of one trial: its file of progress is written by the first of them and read here."""

    def __init__(self, task: Task, watcher: Watcher, scratch: Path):
        self.task, self._watcher = task, watcher
        self.stop_file = scratch / f"{task.id}.stop"
        place = scratch / f"{task.id}.jsonl"
        place.write_bytes(b"")
        self._progress_file = ProgressFile(place)
        watcher.started(task.id)
        self.fitting: Future = Future()
        trainer = _trainer(task, scratch, place, self.stop_file)
        threading.Thread(target=_fit, args=(trainer, self.fitting), daemon=True).start()

    def report(self) -> None:
        """Pass on the new lines of progress."""
        for progress in self._progress_file.new():
            self._watcher.progress(self.task.id, progress)

    def settle(self) -> None:
        """The group has ended: so has its trial, unless it has lost a worker. Raises LostWorker then."""
        try:
            self.fitting.result()
        except train.TrainingFailedError as failed:
            if not (failures := getattr(failed, "worker_failures", {})):
                raise
            try:
                settle(self.task, failures)
            except (StorageError, CorpusError) as fault:
                self._watcher.lost(self.task.id, str(fault))
        self._watcher.ended(self.task.id)


def _fit(trainer: TorchTrainer, fitting: Future) -> None:
    """In a thread that does not keep this process from ending."""
    try:
        fitting.set_result(trainer.fit())
    except BaseException as fault:
        fitting.set_exception(fault)


def _trainer(task: Task, scratch: Path, progress_file: Path, stop_file: Path) -> TorchTrainer:
    return TorchTrainer(
        _worker,
        train_loop_config={**packed(task, scratch), "progress": str(progress_file), "stop": str(stop_file)},
        torch_config=TorchConfig(timeout_s=PATIENCE_SECONDS),
        scaling_config=train.ScalingConfig(
            num_workers=task.spec.train.data_parallel,
            use_gpu=task.gpus > 0,
            resources_per_worker={"CPU": task.threads, **({"GPU": task.gpus} if task.gpus else {})},
        ),
        run_config=train.RunConfig(name=task.id, storage_path=str(scratch)),
    )


def _worker(config: dict[str, Any]) -> None:
    """In one of Ray Train's workers, whose process group is ready."""
    task = unpacked(config)
    workers = WorkersOfTorch(train.get_context().get_world_rank(), train.get_context().get_world_size())
    if workers.rank:
        follow(task, workers)
        return
    progress_file, stop_file, stop = ProgressFile(Path(config["progress"])), Path(config["stop"]), StopRequest()

    def report(progress: Progress) -> None:
        progress_file.write(progress)
        if stop_file.exists():
            stop.ask()

    try:
        run(task, report, workers, stop)
    except KeyboardInterrupt:
        raise Ended("the trial was asked to stop") from None
    if not workers.dismissed:
        raise Ended("the trial has its record, and other workers still wait for the first one")
