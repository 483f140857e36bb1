"""Progress of a trial, reported at intervals."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from harness.training.clocks import Clock
from harness.training.evaluation import Score

PROGRESS_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a trial is, within an epoch or at its end.

    Args:
        epoch: the present one, from 1.
        epochs: of the suite; it may be a fraction, such as 0.4.
        step: steps of the present epoch that are done.
        steps: of the present epoch.
        valid_ppl: of the epoch before, and at the end of an epoch of the epoch itself.
        ms_per_batch: the median of the last steps.
    """

    epoch: int
    epochs: float
    step: int
    steps: int
    valid_ppl: float | None
    ms_per_batch: float


class Throttled:
    """Reports at most every PROGRESS_SECONDS within an epoch, and always at its end."""

    def __init__(self, report: Callable[[Progress], None], epochs: float, clock: Clock):
        self._report, self._epochs, self._clock = report, epochs, clock
        self._due = 0.0

    def __call__(self, epoch: int, step: int, steps: int, score: Score | None, *, ended: bool = False) -> None:
        """Report, or skip the report. `score`: the last one, which at the end of an epoch is that of the epoch."""
        if not ended and (time.monotonic() < self._due or step == steps):
            return
        if (recent := self._clock.recent()) is None:  # a GPU has not ended its first step
            return
        self._due = time.monotonic() + PROGRESS_SECONDS
        self._report(
            Progress(
                epoch=epoch,
                epochs=self._epochs,
                step=step,
                steps=steps,
                valid_ppl=None if score is None else score.ppl,
                ms_per_batch=recent,
            )
        )
