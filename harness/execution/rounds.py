"""What happens when an executor fails or a trial runs out of memory: trials are run in rounds.

A round runs several trials at the same time. The executor itself can fail: when Ray's memory monitor kills one worker,
Ray Tune ends all of them. The trials that were running then are tried once more, each of them alone. A trial with
which the executor fails again is the cause, and gets a record that says so. The other trials run in the next round. A
trial that ran out of memory while others ran is also tried once more, alone.
"""

from collections.abc import Callable, Set
from dataclasses import replace

from harness.errors import ExecutionError
from harness.execution.events import Event, GuardedListener, OnEvent
from harness.printable import counted
from harness.records import store
from harness.records.record import Status, TrialRecord
from harness.training.loop import Progress
from harness.trial.lost import give_up
from harness.trial.task import Task

MAX_ROUNDS = 3  # rounds that may fail while no trial is running

RunRound = Callable[[list[Task], int | None], None]  # how many at the same time


class Watcher:
    """Keeps which trials are running and how the others ended, and passes events on. Trials are named by their ids.

    Args:
        on_event: called with each event.
        fail_fast: set `stopped` when the first trial fails.
    """

    def __init__(self, tasks: list[Task], on_event: OnEvent, *, fail_fast: bool = False):
        self.fail_fast, self.stopped = fail_fast, False
        self.tasks = {task.id: task for task in tasks}
        self.running: set[str] = set()
        self.ends: dict[str, Event] = {}
        self._report, self._reasons = GuardedListener(on_event), {}

    def started(self, trial: str) -> None:
        """A worker starts a trial, for the first time or again. A trial that has ended is not run again by it."""
        if trial in self.ends:
            return
        self.running.add(trial)
        self._report(Event(kind="started", spec=self.tasks[trial].spec))

    def progress(self, trial: str, progress: Progress) -> None:
        """A trial reported its progress."""
        self._report(Event(kind="progress", spec=self.tasks[trial].spec, progress=progress))

    def lost(self, trial: str, reason: str) -> None:
        """A trial will end without a record, for this reason."""
        self._reasons[trial] = reason

    def ended(self, trial: str) -> None:
        """The worker has finished a trial, with a record or without one. Later reports about the trial are ignored."""
        if trial in self.ends:
            return
        otherwise = "ended by --fail-fast" if self.stopped else "the worker ended without a record"
        self._finish(trial, self._new_record(trial), self._reasons.get(trial, otherwise))

    def died(self, trial: str, message: str, status: Status = "error") -> None:
        """No worker is left that could write the trial's record, so it is written here."""
        if trial in self.ends:
            return
        try:
            record = give_up(self.tasks[trial], status, message)
        except Exception as fault:  # the other trials run even if this record cannot be written
            self._finish(trial, None, f"{message}; {fault}")
        else:
            self._finish(trial, record)

    def again(self, trial: str) -> None:
        """A trial is tried again; its record will be replaced."""
        record = self.ends.pop(trial).record
        self.tasks[trial] = replace(self.tasks[trial], replaces=store.digest(record))

    def _new_record(self, trial: str) -> TrialRecord | None:
        """The trial's record; None when there is none, or when it is of an earlier run."""
        task = self.tasks[trial]
        found, _ = store.load_all(task.runs, [trial])
        if trial in found and store.digest(found[trial]) != task.replaces:
            return found[trial]
        return None

    def _finish(self, trial: str, record: TrialRecord | None, message: str = "") -> None:
        self.running.discard(trial)
        end = Event(kind="finished", spec=self.tasks[trial].spec, record=record, message="" if record else message)
        self.ends[trial] = end
        self.stopped = self.stopped or (self.fail_fast and not end.ok)
        self._report(end)


def in_rounds(watcher: Watcher, run_round: RunRound) -> None:
    """Run all trials of a watcher, also when the executor fails.

    Args:
        run_round: runs some trials with an executor; an exception of it is the executor's, since trials that fail have
            records.
    Raises: ExecutionError when the executor fails repeatedly while no trial is running, or runs no trial at all.
    """
    left, tried_alone, failures = list(watcher.tasks.values()), set(), 0
    while left and not watcher.stopped:
        ended = len(watcher.ends)
        try:
            run_round(left, None)
        except Exception as crash:
            suspects = [task for task in left if task.id in watcher.running]
            failures += not suspects
            if failures == MAX_ROUNDS:
                raise _executor_failed(crash) from crash
            tried_alone |= {task.id for task in suspects}
            for task in suspects:
                _run_alone(task, watcher, run_round)
        else:  # a trial can be left over when its worker died between two trials
            if len(watcher.ends) == ended:
                raise ExecutionError(
                    f"the executor ran none of {counted(len(left), 'trial')}; start the same command again"
                )
        left = [task for task in left if task.id not in watcher.ends]
    _retry_out_of_memory(watcher.tasks.keys() - tried_alone, watcher, run_round)


def _retry_out_of_memory(trials: Set[str], watcher: Watcher, run_round: RunRound) -> None:
    """Trials that ran out of memory while others ran are tried once more, alone."""
    for trial, task in list(watcher.tasks.items()):
        end = watcher.ends.get(trial) if trial in trials and task.shared else None
        if not watcher.stopped and end and end.record and end.record.status == "oom":
            watcher.again(trial)
            _run_alone(watcher.tasks[trial], watcher, run_round)


def _run_alone(task: Task, watcher: Watcher, run_round: RunRound) -> None:
    """Try a trial once more while no other trial runs."""
    watcher.running.discard(task.id)
    try:
        run_round([replace(task, retries=task.retries + 1, memory_share=1.0)], 1)
    except Exception as crash:
        reason = _first_line(crash)
        if task.id not in watcher.running or "memory" not in reason.lower():  # the trial is not the cause
            raise _executor_failed(crash) from crash
        watcher.died(task.id, f"the executor failed twice with this trial, the second time alone ({reason})", "oom")


def _executor_failed(crash: BaseException) -> ExecutionError:
    return ExecutionError(f"the executor failed ({_first_line(crash)}); start the same command again to continue")


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
