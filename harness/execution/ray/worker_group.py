"""A data-parallel trial by a group of Ray Train's workers, started from the trial's process of Ray Tune."""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from harness.execution.ray import cluster

cluster.set_environment()
cluster.show_token()

import ray  # noqa: E402
from ray import train  # noqa: E402
from ray.train.torch import TorchConfig, TorchTrainer  # noqa: E402
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group  # noqa: E402

from harness.execution.ray.payload import Parcel  # noqa: E402
from harness.training.data_parallel import PATIENCE_SECONDS, Workers  # noqa: E402
from harness.training.progress import PROGRESS_SECONDS, Progress  # noqa: E402
from harness.trial.follow import Ended, follow, settle  # noqa: E402
from harness.trial.run import run  # noqa: E402

MARKERS = 2**24  # bytes of memory that a worker claims, to be known by


def train_together(parcel: Parcel, tell: Callable[[dict[str, Any]], None]) -> None:
    """In Tune's worker: a data-parallel trial by workers of Ray Train. It waits for them and hands their progress on;
    a group that lost a worker is followed by another, as any worker that died, by Tune.

    Raises: LostWorker then; StorageError and CorpusError, as harness.trial.run.run.
    """
    spec, claim = parcel.spec, parcel.claim
    name = f"{spec.id}-{os.getpid()}"
    told = parcel.scratch / f"{name}.jsonl"
    told.touch()
    marker = 1 + int(spec.id, 16) % MARKERS
    _remove_abandoned(marker)
    trainer = TorchTrainer(
        _worker,
        train_loop_config={"trial": parcel.pack(), "told": str(told)},
        torch_config=TorchConfig(timeout_s=PATIENCE_SECONDS),
        scaling_config=train.ScalingConfig(
            num_workers=spec.train.data_parallel,
            use_gpu=claim.gpus > 0,
            resources_per_worker={"CPU": claim.cpus, "memory": marker, **({"GPU": claim.gpus} if claim.gpus else {})},
        ),
        run_config=train.RunConfig(name=name, storage_path=str(parcel.scratch)),
    )
    fitting = ThreadPoolExecutor(1).submit(trainer.fit)
    with told.open(encoding="utf-8") as lines:
        while not fitting.done():
            wait([fitting], timeout=PROGRESS_SECONDS)
            for progress in _whole_lines(lines):
                tell(json.loads(progress))
    try:
        fitting.result()
    except train.TrainingFailedError as failed:
        settle(spec, parcel.setting, getattr(failed, "worker_failures", {}), parcel.replaces)


def _whole_lines(file: TextIO) -> Iterator[str]:
    """Those that are new; one that is not yet whole waits for the next time."""
    place = file.tell()
    while (line := file.readline()).endswith("\n"):
        yield line
        place = file.tell()
    file.seek(place)


def _remove_abandoned(marker: int) -> None:
    """Give back what an earlier attempt at the trial holds. Where its process was killed, Ray ends the workers and
    keeps their claim for ever, for which the next attempt would wait (Ray 2.60). It is known by the memory it claims.
    """
    job = ray.get_runtime_context().get_job_id()
    for group, held in placement_group_table().items():
        ours = group.endswith(job) and any(each.get("memory") == marker for each in held["bundles"].values())
        if ours and held["state"] != "REMOVED":
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group))))


def _worker(config: dict[str, Any]) -> None:
    """In one of Ray Train's workers, whose process group is up. The first tells of its progress in a file: a report to
    Ray Train would have to be made by all of them.
    """
    parcel = Parcel.unpack(config["trial"])
    workers = Workers(train.get_context().get_world_rank(), train.get_context().get_world_size())
    if workers.rank:
        follow(parcel.spec, parcel.setting, workers)
        return

    def report(progress: Progress) -> None:
        with suppress(OSError), Path(config["told"]).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(progress)) + "\n")

    run(parcel.spec, parcel.setting, report, parcel.replaces, workers)
    if not workers.dismissed:
        raise Ended("the trial has its record, and other workers still wait for the first one")
