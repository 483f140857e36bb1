"""Estimates the remaining time of each trial and of the whole run.

The estimate of rich.progress extrapolates linearly and does not know that heads differ in cost. CONTRIBUTING.md
compares the two.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from harness.plan.specs import TrialSpec
from harness.training.loop import Progress

Key = tuple[str, ...]  # what some trials have in common: corpus, backbone and head; the first two of them; ...


@dataclass(slots=True)
class _Running:
    """A running trial: when it began, its first and its latest report and the times of both. A trial that was resumed
    from a checkpoint has its first report in the middle.
    """

    spec: TrialSpec
    began: float
    first: Progress | None = None
    first_at: float = 0.0
    latest: Progress | None = None
    latest_at: float = 0.0

    def seconds_per_epoch(self) -> float | None:
        """Measured between both reports; after one report only, computed from its time per step. None before."""
        if self.latest is None:
            return None
        if (epochs := epochs_done(self.latest) - epochs_done(self.first)) > 0:
            return (self.latest_at - self.first_at) / epochs
        return self.latest.ms_per_batch / 1e3 * self.latest.steps / epoch_length(self.latest)


class Pace:
    """Measures the seconds per epoch of each trial. `now` is always the time of the same monotonic clock.

    Args:
        specs: the trials of the run, in the order in which they start.
    """

    def __init__(self, specs: Iterable[TrialSpec]):
        self._waiting = {spec.id: spec for spec in specs}
        self._running: dict[str, _Running] = {}
        self._finished: dict[Key, tuple[float, float]] = {}  # seconds and epochs of the finished trials with this key
        self._used = 0.0  # seconds of the trials that have ended
        self._at_once = 1  # the largest number of trials that ran at the same time

    @property
    def running(self) -> int:
        """How many trials are running."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many trials have not started."""
        return len(self._waiting)

    def started(self, spec: TrialSpec, now: float) -> None:
        """A trial started, for the first time or again."""
        self._waiting.pop(spec.id, None)
        if (before := self._running.get(spec.id)) is not None:
            self._used += _seconds(before, now)
        self._running[spec.id] = _Running(spec, now)
        self._at_once = max(self._at_once, len(self._running))

    def progressed(self, spec: TrialSpec, progress: Progress, now: float) -> None:
        """A trial reported its progress."""
        trial = self._running.setdefault(spec.id, _Running(spec, now))
        if trial.first is None:
            trial.first, trial.first_at = progress, now
        trial.latest, trial.latest_at = progress, now

    def ended(self, spec: TrialSpec, now: float) -> None:
        """A trial ended. The time that it took, with its start and last evaluations, is expected of similar trials."""
        self._waiting.pop(spec.id, None)
        trial = self._running.pop(spec.id, None)
        self._used += _seconds(trial, now) if trial is not None else 0.0
        if trial is None or trial.latest is None:
            return
        resumed_at = epochs_done(trial.first) if trial.first.epoch > 1 else 0.0
        epochs_here = epochs_done(trial.latest) - resumed_at
        for key in _keys(spec) if epochs_here > 0 else ():
            seconds, epochs = self._finished.get(key, (0.0, 0.0))
            self._finished[key] = seconds + now - trial.began, epochs + epochs_here

    def used(self, now: float) -> float:
        """Seconds that trials of this run have used devices, up to now, summed over all devices. It never falls."""
        return self._used + sum(_seconds(trial, now) for trial in self._running.values())

    def remaining(self, trial_id: str, now: float) -> float | None:
        """Seconds until a running trial ends; None before its first report. It falls with the clock from one report to
        the next, down to 0.
        """
        trial = self._running[trial_id]
        per_epoch = trial.seconds_per_epoch()
        if per_epoch is None:
            return None
        return max(0.0, per_epoch * (trial.latest.epochs - epochs_done(trial.latest)) - (now - trial.latest_at))

    def remaining_of_all(self, now: float) -> float | None:
        """Seconds until the last trial ends; None while nothing was measured.

        A waiting trial starts when another one ends, and takes as long per epoch as the most similar trials that were
        measured.
        """
        rates = self._rates()
        if not rates:
            return None
        ends = []  # of the trials that run at the same time, in seconds from now
        for trial_id, trial in self._running.items():
            remaining = self.remaining(trial_id, now)
            ends.append(_expected(trial.spec, rates) if remaining is None else remaining)
        ends += [0.0] * (self._at_once - len(ends))
        heapq.heapify(ends)
        for spec in self._waiting.values():
            heapq.heappush(ends, heapq.heappop(ends) + _expected(spec, rates))
        return max(ends)

    def _rates(self) -> dict[Key, float]:
        """Seconds per epoch by key: of finished trials, and otherwise of running ones."""
        rates = {key: seconds / epochs for key, (seconds, epochs) in self._finished.items()}
        for trial in self._running.values():
            if (per_epoch := trial.seconds_per_epoch()) is not None:
                for key in _keys(trial.spec):
                    rates.setdefault(key, per_epoch)
        return rates


def epochs_done(progress: Progress) -> float:
    """How many epochs are finished, with the finished part of the current one."""
    return progress.epoch - 1 + epoch_length(progress) * progress.step / progress.steps


def epoch_length(progress: Progress) -> float:
    """The length of the current epoch: 1, or less when `epochs` is not a whole number and this is the last one."""
    return min(1.0, progress.epochs - (progress.epoch - 1))


def _seconds(trial: _Running, now: float) -> float:
    """Since its start, on all of its devices."""
    return (now - trial.began) * trial.spec.train.data_parallel


def _expected(spec: TrialSpec, rates: dict[Key, float]) -> float:
    key = next(key for key in _keys(spec) if key in rates)
    return rates[key] * spec.train.epochs


def _keys(spec: TrialSpec) -> list[Key]:
    """Trials that share one of these take about the same time per epoch; the most specific key is first."""
    components = (str(spec.corpus), str(spec.backbone), str(spec.head))
    return [components[:shared] for shared in (3, 2, 1, 0)]
