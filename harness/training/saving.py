"""When checkpoints are written during training."""

import time
from collections.abc import Callable, Mapping

from torch import Tensor

from harness.plan.run_options import CheckpointSpec
from harness.training.checkpoint import Checkpoint, Checkpoints, NoCheckpoints, Position, SessionInfo
from harness.training.parts import Stateful


class Saving:
    """Writes the checkpoints of a trial as often as its suite says.

    Args:
        checkpoints: where they are written.
        pace: how often.
        trial: id of the trial.
        session: what a checkpoint is to say of the sessions so far; called for each.
    """

    def __init__(
        self,
        checkpoints: Checkpoints | NoCheckpoints,
        pace: CheckpointSpec,
        *,
        trial: str,
        session: Callable[[], SessionInfo],
    ):
        self.checkpoints, self.pace, self.trial, self.session = checkpoints, pace, trial, session
        self._saved_at = time.monotonic()

    def due_within_epoch(self) -> bool:
        """Whether so many minutes have passed since the last checkpoint that another is to be written."""
        return time.monotonic() - self._saved_at >= 60 * self.pace.minutes

    def due_after(self, epoch: int) -> bool:
        """Whether a checkpoint is to be written after an epoch."""
        return epoch % self.pace.epochs == 0 or self.due_within_epoch()

    def save(self, position: Position, best_epoch: int | None, parts: Mapping[str, Stateful]) -> None:
        """Write a checkpoint. Raises StorageError."""
        checkpoint = Checkpoint(
            trial=self.trial,
            position=position,
            best_epoch=best_epoch,
            session=self.session(),
            parts={name: part.state_dict() for name, part in parts.items()},
        )
        self.checkpoints.save(checkpoint)
        self._saved_at = time.monotonic()

    def save_best(self, weights: dict[str, Tensor], epoch: int) -> None:
        """Write the weights of the best epoch so far. Raises StorageError."""
        self.checkpoints.save_best(weights, epoch)
