"""Watch trials that run in other processes: which of them are under way, how the others ended, and what is run again
when the program that runs them fails.

Trials that were under way when it failed are tried once more, one at a time; one with which it fails again is the
cause, and its record says so. So is a trial that ran out of memory beside others.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from harness.containment import first_line
from harness.errors import ExecutionError
from harness.execution.executors import Event, GuardedListener, OnEvent
from harness.records import store
from harness.records.record import Status, TrialRecord
from harness.training.loop import Progress
from harness.trial.run import give_up
from harness.trial.task import Task

MAX_FITS = 3  # that may fail without a trial that is to blame

TO_BLAME = 0.5  # of the memory that is used: a worker that holds more holds more than all other programs

Fit = Callable[[list[Task], int | None], None]  # runs trials, so many at the same time


class EndedForMemory(Exception):
    """A worker was ended because the machine's memory was used up.

    Args:
        share: of the memory that was used, the part that this worker held.
    """

    def __init__(self, message: str, *, share: float):
        super().__init__(message)
        self.share = share


class Watcher:
    """Keeps which trials are running and how the others ended, and passes events on. Trials are named by their ids.

    Args:
        fail_fast: set `stopped` when the first trial fails.
    """

    def __init__(self, tasks: list[Task], on_event: OnEvent, *, fail_fast: bool = False):
        self.fail_fast, self.stopped = fail_fast, False
        self.tasks = {task.id: task for task in tasks}
        self.running: set[str] = set()
        self.crowded_out: set[str] = set()  # ended for memory that others used
        self.ends: dict[str, Event] = {}
        self._report, self._reasons = GuardedListener(on_event), {}

    def started(self, trial: str) -> None:
        """For the first time or again."""
        self.running.add(trial)
        self._report(Event(kind="started", spec=self.tasks[trial].spec))

    def progress(self, trial: str, progress: Progress) -> None:
        self._report(Event(kind="progress", spec=self.tasks[trial].spec, progress=progress))

    def lost(self, trial: str, reason: str) -> None:
        """A trial will end without a record, for this reason."""
        self._reasons[trial] = reason

    def ended(self, trial: str) -> None:
        """The worker has finished a trial, with a record or without one. Later reports of its end are ignored."""
        if trial in self.ends:
            return
        otherwise = "ended by --fail-fast" if self.stopped else "the worker ended without a record"
        self._finish(trial, self.new_record(trial), self._reasons.get(trial, otherwise))

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

    def ended_for_memory(self, trial: str, fault: EndedForMemory) -> None:
        """No further worker is started for a trial. It has no record where other programs used most of the memory."""
        if fault.share > TO_BLAME:
            self.died(trial, str(fault), "oom")
        else:
            self.crowded_out.add(trial)
            self.lost(trial, str(fault))
            self.ended(trial)

    def again(self, trial: str) -> None:
        self._reasons.pop(trial, None)
        if (record := self.ends.pop(trial).record) is not None:
            self.tasks[trial] = replace(self.tasks[trial], replaces=store.digest(record))

    def new_record(self, trial: str) -> TrialRecord | None:
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


class ProgressFile:
    """The progress of one trial: a line for each report, which the trial's process writes and the command reads."""

    def __init__(self, place: Path):
        self._place, self._read = place, 0

    def write(self, progress: Progress) -> None:
        with suppress(OSError), self._place.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(progress)) + "\n")

    def new(self) -> Iterator[Progress]:
        """The reports since it was read last. A line that is not yet complete is read the next time."""
        if not self._place.exists():
            return
        with self._place.open("rb") as lines:
            lines.seek(self._read)
            while (line := lines.readline()).endswith(b"\n"):
                self._read = lines.tell()
                yield Progress(**json.loads(line))


def run_all(watcher: Watcher, fit: Fit, *, runner: str) -> None:
    """Run all trials of a watcher, also when the runner fails, and those once more, alone, that ran out of memory
    beside others.

    Args:
        fit: an exception of it is the runner's, since trials that fail have records; EndedForMemory: it failed
            because the memory was used up.
    Raises: ExecutionError when the runner fails repeatedly and no trial is to blame.
    """
    suspects: set[str] = set()
    _until_ended(watcher, fit, suspects, runner)
    hungry = {trial for trial, end in watcher.ends.items() if end.record is not None and end.record.status == "oom"}
    if hungry:  # a trial of ours used the memory, and not other programs
        hungry |= watcher.crowded_out
    again = [trial for trial in watcher.tasks if trial in hungry - suspects and watcher.tasks[trial].shared]
    if not watcher.stopped:
        for trial in again:
            watcher.again(trial)
        _until_ended(watcher, fit, set(again), runner)


def _until_ended(watcher: Watcher, fit: Fit, suspects: set[str], runner: str) -> None:
    """Fit until all trials have ended. Suspects run one at a time, before the others; those that are found are added.
    A suspect whose worker is ended for memory once more is given up.
    """
    failed = 0
    while not watcher.stopped and (left := [task for task in watcher.tasks.values() if task.id not in watcher.ends]):
        alone = [replace(task, retries=task.retries + 1, memory_share=1.0) for task in left if task.id in suspects]
        ended, fault = len(watcher.ends), None
        try:
            fit(alone or left, 1 if alone else None)
        except Exception as crash:
            fault = crash
        running = set(watcher.running)
        watcher.running.clear()
        reason = first_line(fault) if fault else "it ran no trial"
        if alone and isinstance(fault, EndedForMemory):
            for trial in running:
                watcher.ended_for_memory(trial, fault)
        failed += len(watcher.ends) == ended and running <= suspects
        if failed == MAX_FITS:
            raise ExecutionError(f"{runner} failed ({reason}); start the same command again to continue") from fault
        suspects |= running
