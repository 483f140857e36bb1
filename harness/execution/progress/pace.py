"""How fast trials get on, and from that when each and the whole run will be through."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from harness.plan.specs import TrialSpec
from harness.training.progress import Progress


@dataclass(slots=True)
class _Going:
    """A trial under way: when it began, its first report, when that came, and its latest. The first may be far from the
    trial's beginning, which may have gone on from a checkpoint.
    """

    spec: TrialSpec
    began: float
    first: Progress | None = None
    first_at: float = 0.0
    latest: Progress | None = None

    def seconds_an_epoch(self, now: float) -> float | None:
        """As measured since the first report; before there is a difference, by its latest step. None: no report yet."""
        if self.latest is None:
            return None
        if (epochs := done(self.latest) - done(self.first)) > 0:
            return (now - self.first_at) / epochs
        return self.latest.ms_per_batch / 1e3 * self.latest.steps / length(self.latest)


class Pace:
    """Measures seconds an epoch, trial by trial. `now` is everywhere the time of one monotonic clock.

    Args:
        specs: the trials of the run, in the order in which they start.
    """

    def __init__(self, specs: Iterable[TrialSpec]):
        self._waiting = {spec.id: spec for spec in specs}
        self._going: dict[str, _Going] = {}
        self._finished: dict[tuple[str, ...], tuple[float, float]] = {}  # likeness -> seconds, epochs
        self._at_once = 1  # most trials that were under way together

    @property
    def running(self) -> int:
        """How many trials are under way."""
        return len(self._going)

    @property
    def waiting(self) -> int:
        """How many trials have not begun."""
        return len(self._waiting)

    def started(self, spec: TrialSpec, now: float) -> None:
        """A trial began, or began again."""
        self._waiting.pop(spec.id, None)
        self._going[spec.id] = _Going(spec, now)
        self._at_once = max(self._at_once, len(self._going))

    def got_on(self, spec: TrialSpec, progress: Progress, now: float) -> None:
        """A trial reported."""
        going = self._going.setdefault(spec.id, _Going(spec, now))
        if going.first is None:
            going.first, going.first_at = progress, now
        going.latest = progress

    def ended(self, spec: TrialSpec, now: float) -> None:
        """A trial is through. What it took, start and last evaluations included, others are expected to take."""
        self._waiting.pop(spec.id, None)
        going = self._going.pop(spec.id, None)
        if going is None or going.latest is None:
            return
        before = done(going.first) if going.first.epoch > 1 else 0.0  # went on from a checkpoint; or it just began
        here = done(going.latest) - before
        for likeness in _likenesses(spec) if here > 0 else ():
            seconds, epochs = self._finished.get(likeness, (0.0, 0.0))
            self._finished[likeness] = seconds + now - going.began, epochs + here

    def elapsed(self, now: float) -> float:
        """Seconds since their starts, of all that are under way together."""
        return sum(now - going.began for going in self._going.values())

    def left(self, trial: str, now: float) -> float | None:
        """Seconds that a trial under way will still take; None while nothing is known of it."""
        going = self._going[trial]
        an_epoch = going.seconds_an_epoch(now)
        return None if an_epoch is None else an_epoch * (going.latest.epochs - done(going.latest))

    def all_left(self, now: float) -> float | None:
        """Seconds until the last trial is through, when each that waits takes the place of the first to end, and is as
        fast as the most alike of those that were measured. None while none was.
        """
        rates = {likeness: seconds / epochs for likeness, (seconds, epochs) in self._finished.items()}
        for going in self._going.values():
            if (an_epoch := going.seconds_an_epoch(now)) is not None:
                for likeness in _likenesses(going.spec):
                    rates.setdefault(likeness, an_epoch)
        if not rates:
            return None
        places = []
        for trial, going in self._going.items():
            left = self.left(trial, now)
            places.append(_expected(going.spec, rates) if left is None else left)
        places += [0.0] * (self._at_once - len(places))
        heapq.heapify(places)
        for spec in self._waiting.values():
            heapq.heappush(places, heapq.heappop(places) + _expected(spec, rates))
        return max(places)


def done(progress: Progress) -> float:
    """Epochs."""
    return progress.epoch - 1 + length(progress) * progress.step / progress.steps


def length(progress: Progress) -> float:
    """Of the epoch under way, which may be a part of one."""
    return min(1.0, progress.epochs - (progress.epoch - 1))


def _expected(spec: TrialSpec, rates: dict[tuple[str, ...], float]) -> float:
    likeness = next(likeness for likeness in _likenesses(spec) if likeness in rates)
    return rates[likeness] * spec.train.epochs


def _likenesses(spec: TrialSpec) -> list[tuple[str, ...]]:
    """What trials share that take about as long, the most alike first."""
    all_of_it = (str(spec.corpus), str(spec.backbone), str(spec.head))
    return [all_of_it[:shared] for shared in (3, 2, 1, 0)]
