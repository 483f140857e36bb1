"""What an executor's reports mean, and what is done when it breaks down or a trial runs out of memory.

Trials run in one round, several at a time. When the round itself breaks down (Ray's memory monitor, killing one worker,
takes the whole fit with it) those that were running are tried once more, each alone: the one that breaks down again was
the cause, and has its record. The others go on in the next round. A trial that ran out of memory beside others is tried
once more, alone.
"""

from collections.abc import Callable
from dataclasses import replace

from harness.errors import ExecutionError
from harness.execution.events import Event, Guarded, OnEvent
from harness.plan.specs import TrialSpec
from harness.records import store
from harness.records.record import Status, TrialRecord
from harness.training.progress import Progress
from harness.trial.lost import give_up
from harness.trial.setting import Setting

MAX_ROUNDS = 3  # that break down with nobody to blame

Fit = Callable[[list[TrialSpec], Setting, int | None], None]  # trials, how they run, how many at once at most


class Watcher:
    """Hears of trials by their ids, tells `on_event`, and keeps who runs and who has ended.

    Args:
        fail_fast: `stopped` becomes true with the first trial that fails.
    """

    def __init__(self, specs: list[TrialSpec], setting: Setting, on_event: OnEvent, *, fail_fast: bool = False):
        self.setting, self.fail_fast, self.stopped = setting, fail_fast, False
        self.replaced = dict(setting.replaces)
        self.running: set[str] = set()
        self.ends: dict[str, Event] = {}
        self._specs = {spec.id: spec for spec in specs}
        self._tell, self._reasons = Guarded(on_event), {}

    def started(self, trial: str) -> None:
        """A worker has the trial, for the first time or again. One that has ended already is not run again by it."""
        if trial in self.ends:
            return
        self.running.add(trial)
        self._tell(Event(kind="started", spec=self._specs[trial]))

    def progress(self, trial: str, progress: Progress) -> None:
        """It got on."""
        self._tell(Event(kind="progress", spec=self._specs[trial], progress=progress))

    def lost(self, trial: str, reason: str) -> None:
        """It is about to end without a record."""
        self._reasons[trial] = reason

    def ended(self, trial: str) -> None:
        """Its worker is through: with a record, or lost, or ended by --fail-fast. What comes later changes nothing."""
        if trial in self.ends:
            return
        otherwise = "ended by --fail-fast" if self.stopped else "the worker ended without a record"
        self._finish(trial, self._record(trial), self._reasons.get(trial, otherwise))

    def died(self, trial: str, message: str, status: Status = "error") -> None:
        """No worker is left that could make its record."""
        if trial in self.ends:
            return
        try:
            record = give_up(self._specs[trial], self.setting, status, message, self.replaced.get(trial))
        except Exception as fault:  # whatever stands against the record, the fit goes on
            self._finish(trial, None, f"{message}; {fault}")
        else:
            self._finish(trial, record)

    def again(self, trial: str) -> None:
        """Its record, if it has one, is to be replaced by a further attempt."""
        end = self.ends.pop(trial, None)
        if end is not None and end.record is not None:
            self.replaced[trial] = store.digest(end.record)

    def _record(self, trial: str) -> TrialRecord | None:
        known, _ = store.load_all(self.setting.runs, [trial])
        if trial in known and store.digest(known[trial]) != self.replaced.get(trial):
            return known[trial]
        return None  # there is none, or it is of an earlier run: this one died before it began

    def _finish(self, trial: str, record: TrialRecord | None, message: str = "") -> None:
        self.running.discard(trial)
        end = Event(kind="finished", spec=self._specs[trial], record=record, message="" if record else message)
        self.ends[trial] = end
        self.stopped = self.stopped or (self.fail_fast and not end.ok)
        self._tell(end)


def in_rounds(specs: list[TrialSpec], setting: Setting, watcher: Watcher, fit: Fit) -> None:
    """Run all trials, whatever breaks down.

    Raises: ExecutionError when rounds break down time and again while no trial runs, or one runs no trial at all.
    """
    left, broken, alone = specs, 0, set()
    while left and not watcher.stopped:
        ended = len(watcher.ends)
        try:
            fit(left, setting, None)
        except Exception as crash:  # of the executor, never of a trial: those leave records
            suspects = [spec for spec in left if spec.id in watcher.running]
            broken += not suspects
            if broken == MAX_ROUNDS:
                raise ExecutionError(f"the executor breaks down ({_line(crash)}); the same command goes on") from crash
            alone |= {spec.id for spec in suspects}
            for spec in suspects:
                _alone(spec, setting, watcher, fit)
        else:  # trials may be left: of a worker that died between two of them
            if len(watcher.ends) == ended:
                raise ExecutionError(f"the executor ran none of {len(left)} trials; the same command goes on")
        left = [spec for spec in left if spec.id not in watcher.ends]
    for spec in specs:
        end = watcher.ends.get(spec.id)
        retried = not setting.shared or spec.id in alone or watcher.stopped
        if not retried and end and end.record and end.record.status == "oom":
            watcher.again(spec.id)
            _alone(spec, setting, watcher, fit)


def _alone(spec: TrialSpec, setting: Setting, watcher: Watcher, fit: Fit) -> None:
    """One more attempt, with the machine to itself."""
    watcher.running.discard(spec.id)
    try:
        fit([spec], replace(setting, retries=setting.retries + 1, memory_share=1.0), 1)
    except Exception as crash:
        reason = _line(crash)
        if spec.id not in watcher.running or "memory" not in reason.lower():  # that says nothing of the trial
            raise ExecutionError(f"the executor breaks down ({reason}); the same command goes on") from crash
        watcher.died(spec.id, f"it broke the executor down twice, the second time alone ({reason})", "oom")


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
