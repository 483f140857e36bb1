"""Data-parallel trials: every worker trains on its rows of each batch, and torch's DistributedDataParallel makes the
mean of their gradients, so that the update is that of one worker with the whole batch.

The first worker has the trial's lock, log, checkpoints and record, and ends the trial with a status
(harness/trial/run.py). The others make every step and every validation with it and write nothing
(harness/trial/run.py). When one ends early, the executor that started the workers ends all of them.

Two workers give the same bits in every run. With more workers gloo or NCCL chooses the order in which gradients are
added, which may change when a trial is resumed.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from harness.corpora.batching import Segment
from harness.random_streams import stream_seed
from harness.training.checkpoint import weights_sha256
from harness.training.step import EagerStep, SegmentLoss
from harness.trial.workers import Workers

PATIENCE_SECONDS = 1800  # that a worker waits for the others before it fails


class WorkersOfTorch(Workers):
    """Several workers of a trial. Torch's default process group is initialized."""

    def __init__(self, rank: int, number: int):
        self.rank, self.number, self.dismissed = rank, number, False

    def from_first(self, *numbers: float) -> list[float]:
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        sent = torch.tensor(numbers, dtype=torch.float64, device=device)
        dist.broadcast(sent, src=0)
        return sent.tolist()

    def refuse_unlike(self, model: nn.Module) -> None:
        """Raises RuntimeError in a worker whose weights are not those of the first worker."""
        own = list(bytes.fromhex(weights_sha256(model.state_dict())))
        if own != self.from_first(*own):
            raise RuntimeError(f"worker {self.rank} of {self.number} starts from other weights than the first")

    def explains(self, error: BaseException) -> bool:
        return isinstance(error, dist.DistError) or "gloo" in str(error)


def parallel(
    step: EagerStep, segment: Segment, *, workers: WorkersOfTorch, log: Callable[[str], None]
) -> "ParallelStep":
    """The step of one of several workers. It is never a CUDA graph, which `log` reports.

    Raises: RuntimeError when this worker starts from other weights than the first.
    """
    workers.refuse_unlike(step.model)
    log(f"training steps are eager: {workers.number} workers, {len(segment.inputs) // workers.number} rows each")
    return ParallelStep(step, workers)


class ParallelStep:
    """One worker's part of a training step, a harness.training.step.Step. It is called with the whole batch, and its
    `loss_sum` is of the whole batch. The first worker draws its dropout masks from the step's random stream, each other
    worker from a stream of its own.
    """

    graphed = False

    def __init__(self, step: EagerStep, workers: WorkersOfTorch):
        # a parameter of a plug-in may not take part in the loss; to find such costs one more pass over the graph
        loss = SegmentLoss(step.model, step.train)
        averaged = DistributedDataParallel(loss, find_unused_parameters=True)
        self._own = EagerStep(step.model, step.optimizer, step.train, averaged)
        self._workers, self.loss_sum = workers, torch.zeros_like(self._own.loss_sum)

    def begin_epoch(self) -> None:
        self._own.begin_epoch()
        self.loss_sum.zero_()

    def __call__(self, segment: Segment) -> None:
        if self._workers.rank:
            torch.manual_seed(stream_seed(torch.initial_seed(), "worker", self._workers.rank))
        self._own.loss_sum.zero_()
        self._own(segment.rows(self._workers.number)[self._workers.rank])
        dist.all_reduce(self._own.loss_sum)
        self.loss_sum += self._own.loss_sum

    @property
    def resumable(self) -> bool:
        return self._own.state_dict()["carried"] is None  # each worker carries the state of its rows

    def state_dict(self) -> dict[str, Any]:
        return {"loss_sum": self.loss_sum, "carried": None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._own.load_state_dict(state)
        self.loss_sum.copy_(state["loss_sum"])
