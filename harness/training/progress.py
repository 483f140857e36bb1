"""How far a trial is, told now and then."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from harness.training.clocks import Clock
from harness.training.evaluation import Score

PROGRESS_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a trial is: within an epoch (valid_ppl of the epoch before), or at its end, validated (its own).
    `ms_per_batch`: of the last step that is through; `epochs`: as the suite says, 0.4 too; `steps`: of this epoch.
    """

    epoch: int
    epochs: float
    step: int
    steps: int
    valid_ppl: float | None
    ms_per_batch: float


class Throttled:
    """Reports at most every PROGRESS_SECONDS within an epoch, with the perplexity of the epoch before, and its end."""

    def __init__(self, report: Callable[[Progress], None], epochs: float, clock: Clock):
        self._report, self._epochs, self._clock = report, epochs, clock
        self._due = 0.0

    def __call__(self, epoch: int, step: int, steps: int, score: Score | None, *, ended: bool = False) -> None:
        """`step` of an epoch's `steps` are done; `score` is the last one there is, at its end its own."""
        if not ended and (time.monotonic() < self._due or step == steps):
            return
        if (latest := self._clock.latest()) is None:  # a GPU is still at its first step
            return
        self._due = time.monotonic() + PROGRESS_SECONDS
        self._report(
            Progress(
                epoch=epoch,
                epochs=self._epochs,
                step=step,
                steps=steps,
                valid_ppl=None if score is None else score.ppl,
                ms_per_batch=latest,
            )
        )
