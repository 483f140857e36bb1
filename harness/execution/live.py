"""What a person sees while trials run: a live table in a terminal, plain lines anywhere else."""

import time
from collections import Counter

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.execution.events import Event
from harness.plan.specs import TrialSpec
from harness.printable import printable
from harness.trial.progress import Progress

MAX_ROWS = 20
LINE_SECONDS = 60.0


class LiveView:
    """Follows the events of a run. Use as a context manager.

    Args:
        specs: the trials that are about to run.
        console: where to draw; a live table only where it is a terminal.
    """

    def __init__(self, specs: list[TrialSpec], console: Console):
        self.console = console
        self.total = len(specs)
        self._first_seen: dict[str, tuple[float, float]] = {}  # when, and how many epochs were done then
        self._specs = {spec.id: spec for spec in specs}
        self._progress: dict[str, Progress | None] = {}
        self._last_line: dict[str, float] = {}
        self._ends: dict[str, Event] = {}
        self._live = Live(get_renderable=self._table, console=console, refresh_per_second=2, transient=True)

    def __enter__(self) -> "LiveView":
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exc) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        """Take in one event."""
        trial = event.spec.id
        if event.kind == "started":
            self._first_seen.pop(trial, None)
            self._progress[trial] = None
            self._last_line[trial] = time.monotonic()
        elif event.kind == "progress":
            self._progress[trial] = event.progress
            self._first_seen.setdefault(trial, (time.monotonic(), _done(event.progress)))
        else:
            self._progress.pop(trial, None)
            self._ends[trial] = event
        if not self.console.is_terminal and (line := self._line(event)):
            self.console.print(printable(line), highlight=False, markup=False, soft_wrap=True)

    def _line(self, event: Event) -> str | None:
        """A line for a log: starts, epochs (their ends, and once a minute within), results."""
        who = f"{event.spec.id}  {event.spec}"
        if event.kind == "started":
            return f"start   {who}"
        if event.kind == "finished":
            return f"end     {who}  {_result(event)}  ({len(self._ends)} of {self.total})"
        progress, now = event.progress, time.monotonic()
        if progress.step < progress.steps and now - self._last_line.get(event.spec.id, 0.0) < LINE_SECONDS:
            return None
        self._last_line[event.spec.id] = now
        done = _position(progress)
        valid = f"  valid {progress.valid_ppl:.2f}" if progress.step == progress.steps and progress.valid_ppl else ""
        return f"epoch   {who}  {done}  {progress.ms_per_batch:.1f} ms/batch{valid}"

    def _table(self) -> Table:
        counts = Counter(end.record.status if end.record else "lost" for end in self._ends.values())
        done = ", ".join(f"{count} {status}" for status, count in counts.items()) or "none finished"
        table = Table(title=f"{len(self._ends)} of {self.total} trials: {done}", title_justify="left")
        for column in (
            "trial",
            "head",
            "backbone",
            "corpus",
            "seed",
            "status",
            "epoch",
            "valid ppl",
            "ms/batch",
            "ETA",
        ):
            table.add_column(column, overflow="ellipsis", no_wrap=True)
        room = max(0, MAX_ROWS - len(self._progress))
        finished = list(self._ends)[max(0, len(self._ends) - room) :]
        for trial in [*finished, *self._progress]:
            spec = self._specs[trial]
            cells = self._finished_cells(trial) if trial in self._ends else self._running_cells(trial)
            about = [trial, str(spec.head), spec.backbone.name, spec.corpus.name, str(spec.seed)]
            table.add_row(*(Text(printable(cell)) for cell in (*about, *cells)))  # Text: none of it is rich's markup
        return table

    def _finished_cells(self, trial: str) -> list[str]:
        record = self._ends[trial].record
        if record is None or record.status != "ok":
            return [_result(self._ends[trial]), "", "", "", ""]
        metrics = record.metrics
        ms = metrics.get("train_ms_per_batch")
        epochs = f"{record.curve[-1].epoch:g}" if record.curve else "0"
        return ["ok", epochs, f"{metrics['valid_ppl']:.2f}", f"{ms:.1f}" if ms else "", ""]

    def _running_cells(self, trial: str) -> list[str]:
        progress = self._progress[trial]
        if progress is None:
            return ["starting", "", "", "", ""]
        began, before = self._first_seen[trial]  # a trial may have gone on from its checkpoint
        done, left = _done(progress) - before, progress.epochs - _done(progress)
        steps_left = left * progress.steps / _length(progress)
        eta = (time.monotonic() - began) / done * left if done else progress.ms_per_batch / 1e3 * steps_left
        return [
            "running",
            _position(progress),
            f"{progress.valid_ppl:.2f}" if progress.valid_ppl else "",
            f"{progress.ms_per_batch:.1f}",
            f"{int(eta // 3600)}:{int(eta // 60 % 60):02}:{int(eta % 60):02}",
        ]


def _position(progress: Progress) -> str:
    return f"{progress.epoch}/{progress.epochs:g} ({100 * progress.step // progress.steps} %)"


def _length(progress: Progress) -> float:
    """Of the epoch under way, which may be a part of one."""
    return min(1.0, progress.epochs - (progress.epoch - 1))


def _done(progress: Progress) -> float:
    """Epochs."""
    return progress.epoch - 1 + _length(progress) * progress.step / progress.steps


def _result(event: Event) -> str:
    record = event.record
    if record is None:
        return f"lost: {event.message}"
    if record.status != "ok":
        return f"{record.status}: {record.message}"
    return f"ok  valid {record.metrics['valid_ppl']:.2f}  test {record.metrics['test_ppl']:.2f}"
