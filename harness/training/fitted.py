"""What training leaves: the curve, and the scores of the best and of the last epoch."""

from dataclasses import asdict, dataclass, field
from typing import Any

from harness.records.record import CurvePoint
from harness.training.evaluation import Score


@dataclass
class Fitted:
    """Filled as epochs end, so that a trial that fails keeps what it had. A part of training
    (harness/training/parts.py).

    Args:
        best_epoch: from 1; 0 is the untrained model, when `epochs` is 0.
        start: the score before the first update, where it is measured.
        best: the score of the best epoch by validation.
        last: the score of the last epoch.
        curve: a point for each epoch.
        train_seconds: of all epochs that have ended.
        epoch_seconds: of the present epoch so far.
        graphed: whether the steps were replays of a CUDA graph.
    """

    best_epoch: int = 0
    start: Score | None = None
    best: Score | None = None
    last: Score | None = None
    curve: list[CurvePoint] = field(default_factory=list)
    train_seconds: float = 0.0
    epoch_seconds: float = 0.0
    graphed: bool = False

    def is_better(self, score: Score) -> bool:
        """Whether a score is better than the best so far."""
        return self.best is None or score.mean_nll < self.best.mean_nll

    def state_dict(self) -> dict[str, Any]:
        """See harness.training.parts.Stateful."""
        return {**asdict(self), "curve": [point.model_dump() for point in self.curve]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See harness.training.parts.Stateful. `graphed` is of this process and stays as it is."""
        self.best_epoch, self.train_seconds = state["best_epoch"], state["train_seconds"]
        self.epoch_seconds = state["epoch_seconds"]
        scores = (state["start"], state["best"], state["last"])
        self.start, self.best, self.last = (None if score is None else Score(**score) for score in scores)
        self.curve[:] = [CurvePoint(**point) for point in state["curve"]]
