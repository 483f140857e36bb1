"""What is shown while trials run: a table that is updated in a terminal, and plain lines anywhere else."""

import time
from collections import Counter
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.execution.executors import Event
from harness.execution.progress.pace import Pace, epochs_done
from harness.plan.specs import TrialSpec
from harness.printable import counted, printable
from harness.training.loop import Progress

MAX_ROWS = 20
LINE_SECONDS = 60.0  # between two lines of one trial within an epoch
BAR = 10  # characters of a bar, and the minimum for a status in the column 'state'
MIN_HEAD, GOOD_HEAD = 8, 16  # characters of the head's name: when only the ETA is beside it; when more columns are
GAP = 2  # characters between columns
COLUMNS = ("trial", "head", "backbone", "corpus", "seed", "state", "epoch", "valid ppl", "ms/batch", "ETA")
DROPPED = (
    "backbone",
    "corpus",
    "trial",
    "ms/batch",
    "seed",
    "epoch",
    "valid ppl",
    "ETA",
)  # in this order when there is little room


@dataclass(frozen=True, slots=True)
class _Row:
    """The texts of a row by column. `share`: how much of a running trial is done, shown as a bar instead of a state."""

    cells: dict[str, str]
    share: float | None = None


class LiveView:
    """Shows the events of a run. Use as a context manager.

    Args:
        specs: the trials of the run.
        console: where to print; the table is shown only in a terminal.
    """

    def __init__(self, specs: list[TrialSpec], console: Console):
        self.console = console
        self.total = len(specs)
        self.pace = Pace(specs)
        self._began = time.monotonic()
        self._specs = {spec.id: spec for spec in specs}
        self._progress: dict[str, Progress | None] = {}
        self._last_line: dict[str, float] = {}
        self._ends: dict[str, Event] = {}
        self._live = Live(get_renderable=self._shown, console=console, refresh_per_second=2, transient=True)

    def __enter__(self) -> "LiveView":
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exc) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        trial, now = event.spec.id, time.monotonic()
        if event.kind == "started":
            self.pace.started(event.spec, now)
            self._progress[trial] = None
            self._last_line[trial] = now
        elif event.kind == "progress":
            self.pace.progressed(event.spec, event.progress, now)
            self._progress[trial] = event.progress
        else:
            self.pace.ended(event.spec, now)
            self._progress.pop(trial, None)
            self._ends[trial] = event
        if not self.console.is_terminal and (line := self._line(event)):
            self.console.print(printable(line), highlight=False, markup=False, soft_wrap=True)

    def totals(self) -> str:
        """A line for the end of a run: trials by status, wall time, and the training time in the records."""
        device = clock(self._device_seconds())
        wall = clock(time.monotonic() - self._began)
        return f"{self._ended()}; wall time {wall}; device time {device} (training, summed over these trials)"

    def _line(self, event: Event) -> str | None:
        """The line of a log for an event: a start, the end of an epoch, once a minute within an epoch, a result."""
        who = f"{event.spec.id}  {event.spec}"
        if event.kind == "started":
            return f"start   {who}"
        if event.kind == "finished":
            return f"end     {who}  {_result(event)}  ({len(self._ends)} of {self.total})"
        progress, now = event.progress, time.monotonic()
        if progress.step < progress.steps and now - self._last_line.get(event.spec.id, 0.0) < LINE_SECONDS:
            return None
        self._last_line[event.spec.id] = now
        valid = f"  valid {progress.valid_ppl:.2f}" if progress.step == progress.steps and progress.valid_ppl else ""
        return f"epoch   {who}  {_position(progress)}  {progress.ms_per_batch:.1f} ms/batch{valid}"

    def _ended(self) -> str:
        counts = Counter(end.record.status if end.record else "lost" for end in self._ends.values())
        by_status = ", ".join(f"{count} {status}" for status, count in counts.items()) or "none finished"
        return f"{len(self._ends)} of {counted(self.total, 'trial')}: {by_status}"

    def _device_seconds(self) -> float:
        """The training time in the new records, summed over all devices of each trial."""
        return sum(
            60 * end.record.metrics.get("train_minutes", 0.0) * end.spec.train.data_parallel
            for end in self._ends.values()
            if end.record is not None
        )

    def _shown(self) -> Group:
        now, width = time.monotonic(), self.console.width
        remaining = self.pace.remaining_of_all(now)
        head = [
            self._ended(),
            f"{self.pace.running} running",
            f"{self.pace.waiting} waiting",
            f"wall {clock(now - self._began)}",
            f"device {clock(self.pace.used(now))}",
            f"ETA {'-' if remaining is None else clock(remaining)}",
        ]
        lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in _lines(head, width)]
        bar = Table.grid()  # without a table, the bar would not end its line
        bar.add_row(ProgressBar(total=max(1, self.total), completed=len(self._ends), width=width))
        room = max(1, min(MAX_ROWS, self.console.height - len(lines) - 3))
        return Group(*lines, bar, _table(self._rows(room, now), width))

    def _rows(self, most: int, now: float) -> list[_Row]:
        """The running trials, and above them the last finished ones, as many as there is room for."""
        running = list(self._progress)[:most]
        finished = list(self._ends)[max(0, len(self._ends) - (most - len(running))) :] if len(running) < most else []
        return [self._row(trial, now) for trial in [*finished, *running]]

    def _row(self, trial: str, now: float) -> _Row:
        spec = self._specs[trial]
        about = {"trial": trial, "head": str(spec.head), "backbone": spec.backbone.name, "corpus": spec.corpus.name}
        about["seed"] = str(spec.seed)
        if trial in self._ends:
            return _Row({**about, **_finished_cells(self._ends[trial])})
        progress, remaining = self._progress[trial], self.pace.remaining(trial, now)
        if progress is None:
            return _Row({**about, "state": "starting"})
        measured = {
            "epoch": _position(progress),
            "valid ppl": f"{progress.valid_ppl:.2f}" if progress.valid_ppl else "",
            "ms/batch": f"{progress.ms_per_batch:.1f}",
            "ETA": clock(remaining),
        }
        return _Row({**about, **measured}, share=epochs_done(progress) / progress.epochs)


def clock(seconds: float) -> str:
    """'0:01:05'."""
    return f"{int(seconds // 3600)}:{int(seconds // 60 % 60):02}:{int(seconds % 60):02}"


def _table(rows: list[_Row], width: int) -> Table:
    """The table, with the columns that there is room for and one line for each row."""
    wanted = {name: max([len(name), *(len(printable(row.cells.get(name, ""))) for row in rows)]) for name in COLUMNS}
    kept, widths = list(COLUMNS), {**wanted, "state": BAR}
    for name in DROPPED:
        least = min(wanted["head"], MIN_HEAD if name == "ETA" else GOOD_HEAD)
        if _total(kept, {**widths, "head": least}) > width:
            kept.remove(name)
    spare = width - _total(kept, {**widths, "head": 0})
    widths["head"] = min(wanted["head"], spare)
    widths["state"] = max(BAR, min(wanted["state"], BAR + spare - widths["head"]))
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
    for name in kept:
        table.add_column(Text(name, style="bold"), width=widths[name], overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(row, name) for name in kept))
    return table


def _total(names: list[str], widths: dict[str, int]) -> int:
    return sum(widths[name] for name in names) + GAP * (len(names) - 1)


def _cell(row: _Row, name: str) -> RenderableType:
    if name == "state" and row.share is not None:
        return ProgressBar(total=1.0, completed=row.share, width=BAR)
    return Text(printable(row.cells.get(name, "")), no_wrap=True, overflow="ellipsis")  # not read as markup


def _lines(parts: list[str], width: int) -> list[str]:
    """The parts joined by '; ', on as few lines as possible."""
    lines = [parts[0]]
    for part in parts[1:]:
        joined = f"{lines[-1]}; {part}"
        lines[-1:] = [joined] if len(joined) <= width else [lines[-1], part]
    return lines


def _finished_cells(end: Event) -> dict[str, str]:
    record = end.record
    if record is None or record.status != "ok":
        return {"state": _result(end)}
    ms = record.metrics.get("train_ms_per_batch")
    epochs = f"{record.curve[-1].epoch:g}" if record.curve else "0"
    return {"state": "ok", "epoch": epochs, "valid ppl": f"{record.metrics['valid_ppl']:.2f}"} | (
        {"ms/batch": f"{ms:.1f}"} if ms else {}
    )


def _position(progress: Progress) -> str:
    """'2/3 (40 %)': 40 % of the second epoch. Of 1.4 epochs the second one ends at 1.4: '1.4/1.4 (40 %)'."""
    return f"{min(progress.epoch, progress.epochs):g}/{progress.epochs:g} ({100 * progress.step // progress.steps} %)"


def _result(event: Event) -> str:
    record = event.record
    if record is None:
        return f"lost: {event.message}"
    if record.status != "ok":
        return f"{record.status}: {record.message}"
    return f"ok  valid {record.metrics['valid_ppl']:.2f}  test {record.metrics['test_ppl']:.2f}"
