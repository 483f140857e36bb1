"""Data-parallel trials: every worker trains on its rows of each batch, and torch's DistributedDataParallel makes the
mean of their gradients, so that the update is that of one worker with the whole batch.

The first worker is the trial's own: it has the lock, the log, the checkpoints and the record, and ends the trial with a
status (harness/trial/run.py). The others take every step and every validation with it and write nothing
(harness/trial/follow.py). Whoever started them ends them all once one has ended before its time.

Two workers are bit for bit the same from run to run. Of more the order in which their gradients are added up is gloo's
or NCCL's own, and may change where a trial is taken up.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from harness.corpora.batching import Segment
from harness.random_streams import stream_seed
from harness.training.checkpoint import weights_sha256
from harness.training.evaluation import Score
from harness.training.step import EagerStep, SegmentLoss

PATIENCE_SECONDS = 1800  # that a worker waits for the others before it gives them up


class LostWorker(Exception):
    """Another worker of the trial is gone. That says nothing of the trial: it goes on from its checkpoint."""


class Workers:
    """The workers of a trial as one of them, `rank`, sees them. Where there are several, torch's default process group
    is up. `dismissed`: the others wait for this one no more.
    """

    def __init__(self, rank: int = 0, number: int = 1):
        self.rank, self.number, self.dismissed = rank, number, False

    def rows(self, tensor_BT: Tensor) -> Tensor:
        """This one's rows of a batch."""
        if len(tensor_BT) % self.number:
            raise ValueError(f"a batch of {len(tensor_BT)} rows does not divide among {self.number} workers")
        return tensor_BT.chunk(self.number)[self.rank]

    def first_says(self, *numbers: float) -> list[float]:
        """The first worker's numbers, for all of them."""
        if self.number == 1:
            return list(numbers)
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        told = torch.tensor(numbers, dtype=torch.float64, device=device)
        dist.broadcast(told, src=0)
        return told.tolist()

    def agreed(self, score: Score) -> Score:
        """The first worker's score: on a GPU those of the others may differ in the last digits."""
        return replace(score, nll_sum=self.first_says(score.nll_sum)[0])

    def refuse_unlike(self, model: nn.Module) -> None:
        """Raises RuntimeError in a worker whose weights are not the first one's: all build them from one seed, or read
        them from one checkpoint.
        """
        own = list(bytes.fromhex(weights_sha256(model.state_dict())))
        if own != self.first_says(*own):
            raise RuntimeError(f"worker {self.rank} of {self.number} starts from other weights than the first")

    def explains(self, error: BaseException) -> bool:
        """Whether what was raised only tells that another worker is gone."""
        return self.number > 1 and (isinstance(error, dist.DistError) or "gloo" in str(error))


def parallel(step: EagerStep, segment: Segment, *, workers: Workers, tell: Callable[[str], None]) -> "ParallelStep":
    """The step of one of several workers, from the same weights as the others'. Always eager, which `tell` hears."""
    workers.refuse_unlike(step.model)
    tell(f"training steps are eager: {workers.number} workers, {len(segment.inputs) // workers.number} rows each")
    return ParallelStep(step, workers)


class ParallelStep:
    """One worker's part of a training step, a harness.training.step.Step. It is given the whole batch, and knows the
    loss of all of it. Dropout masks: the first worker's are those of the step's stream, the others have one each.
    """

    def __init__(self, step: EagerStep, workers: Workers):
        # a plug-in's parameter may have no part in the loss; the price is one more pass over the graph
        averaged = DistributedDataParallel(SegmentLoss(step.model), find_unused_parameters=True)
        self._own = EagerStep(step.model, step.optimizer, step.train, averaged)
        self._workers, self.loss_sum = workers, torch.zeros_like(self._own.loss_sum)

    def begin_epoch(self) -> None:
        """See Step."""
        self._own.begin_epoch()
        self.loss_sum.zero_()

    def __call__(self, inputs_BT: Tensor, targets_BT: Tensor) -> None:
        """See Step."""
        if self._workers.rank:
            torch.manual_seed(stream_seed(torch.initial_seed(), "worker", self._workers.rank))
        self._own.loss_sum.zero_()
        self._own(self._workers.rows(inputs_BT), self._workers.rows(targets_BT))
        dist.all_reduce(self._own.loss_sum)
        self.loss_sum += self._own.loss_sum

    def state(self) -> dict[str, Any] | None:
        """See Step: the state carried by the others is not here."""
        return {"loss_sum": self.loss_sum, "carried": None} if self._own.state()["carried"] is None else None

    def resume(self, state: dict[str, Any]) -> None:
        """See Step."""
        self._own.resume(state)
        self.loss_sum.copy_(state["loss_sum"])


class Unwritten:
    """The checkpoints of a worker that keeps none: what training uses of harness.training.checkpoint.Checkpoints."""

    def save(self, state: dict[str, Any], epoch: int, step: int) -> None:
        """The first worker keeps it."""

    def save_best(self, weights: dict[str, Tensor], epoch: int) -> None:
        """The first worker keeps them."""
