"""What `harness run` shows: sentences, trials while they run with the time that is left, and the summary of a table.

Remaining times are our own: the estimate of rich.progress extrapolates linearly and does not know that heads differ in
cost. CONTRIBUTING.md compares the two.
"""

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.corpora.progress import reported_to
from harness.execution.executors import Event
from harness.plan.specs import TrialSpec
from harness.printable import counted, printable
from harness.report import content, layouts, screen, suite_table
from harness.report.study import Study
from harness.training.loop import Progress

MAX_ROWS = 20
LINE_SECONDS = 60.0  # between two lines of one trial within an epoch
READING_SECONDS = 3.0  # after which the reading of a text is shown
BAR = 10  # characters of a running trial's bar
COLUMNS = ("trial", "head", "backbone", "corpus", "seed", "epoch", "valid ppl", "ms/batch", "ETA", "state")
KINDS = ("head", "backbone", "corpus")
VARYING = ("backbone", "corpus")  # columns that are there only if the run has several of them
NAME = 40  # characters of a name at most
GIVES_WAY = {"ms/batch": 20, "trial": 20, "valid ppl": 20, "epoch": 8, "seed": 6}  # to names of so many characters
WIDTHS = {"trial": 12, "valid ppl": 9, "ms/batch": 8, "ETA": 9, "state": BAR}
GAP = 2  # characters between columns

Key = tuple[str, ...]  # what some trials have in common: corpus, backbone and head; the first two of them; ...


class Reporter:
    """Prints sentences to standard output, and warnings and problems to standard error.

    A problem is what makes `harness run` leave with exit code 1; a warning does not.

    Args:
        output: where sentences and progress go; None: standard output, without colours in a notebook.
        errors: where warnings and problems go; None: standard error.
    """

    def __init__(self, output: Console | None = None, errors: Console | None = None):
        self.output = output or Console(force_jupyter=False)
        self.errors = errors or Console(stderr=True, force_jupyter=False)
        self.problems: list[str] = []
        self._warned: set[str] = set()

    def say(self, text: str) -> None:
        _print(self.output, text)

    def warn(self, sentence: str) -> None:
        """Print a warning, unless it was printed before."""
        if sentence not in self._warned:
            self._warned.add(sentence)
            _print(self.errors, f"warning: {sentence}")

    def problem(self, sentence: str) -> None:
        """Print what is wrong with the outcome, and keep it in `problems`."""
        self.problems.append(sentence)
        _print(self.errors, sentence)

    def table(self, found: Study) -> None:
        """Show the table of a suite: its summary in a terminal, all of it as markdown anywhere else."""
        if self.output.is_terminal:
            self.output.print(screen.short(found.summary(), self.output.width))
        else:
            self.say(found.table())

    def ground_truths(self, made: content.Table) -> None:
        """As `table`."""
        if self.output.is_terminal:
            self.output.print(screen.short(layouts.of_truths(made), self.output.width))
        else:
            self.say(suite_table.text(made))

    def table_files(self, files: list[Path]) -> None:
        self.say(f"table: {', '.join([str(files[0]), *(place.suffix for place in files[1:])])}")


def _print(console: Console, text: str) -> None:
    end = "" if text.endswith("\n") else "\n"
    console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True, end=end)


class LiveView:
    """Shows the events of a run: a table that is updated in a terminal, plain lines anywhere else. Use as a context
    manager.

    Args:
        name_of: what a trial's head, backbone or corpus is called, given its kind and the trial.
    """

    def __init__(self, specs: list[TrialSpec], console: Console, name_of: Callable[[str, TrialSpec], str]):
        self.console, self._name_of = console, name_of
        self._needed = WIDTHS | _needed([self._about(spec) for spec in specs])
        self._needed["epoch"] = 2 * max((len(f"{spec.train.most_epochs:g}") for spec in specs), default=1) + 9
        self.total = len(specs)
        self.pace = Pace(specs)
        self._began = time.monotonic()
        self._last_line: dict[str, float] = {}
        self._ends: dict[str, Event] = {}
        self._reading: _Reading | None = None
        self._reports = reported_to(self.read)
        self._live = Live(get_renderable=self._shown, console=console, refresh_per_second=2, transient=True)

    def __enter__(self) -> "LiveView":
        self._reports.__enter__()
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exc) -> None:
        self._live.stop()
        self._reports.__exit__(*exc)

    def read(self, text: str, done: int, total: int) -> None:
        """Show how much of a text is read and tokenised before trials start, if that takes more than a few seconds."""
        now, before = time.monotonic(), self._reading
        if before is None or before.text != text or done < before.done:
            before = _Reading(text, began=now, last_line=now - LINE_SECONDS + READING_SECONDS)
        line_due = not self.console.is_terminal and now - before.last_line >= LINE_SECONDS
        last_line = now if line_due else before.last_line
        self._reading = replace(before, done=done, total=total, last_line=last_line)
        if line_due:
            self.console.print(printable(str(self._reading)), highlight=False, markup=False, soft_wrap=True)
        if done >= total:
            self._reading = None

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if event.kind == "started":
            self.pace.started(event.spec, now)
            self._ends.pop(event.spec.id, None)  # a trial may be tried once more, alone
            self._last_line[event.spec.id] = now
        elif event.kind == "progress":
            self.pace.progressed(event.spec, event.progress, now)
        else:
            self.pace.ended(event.spec, now)
            self._ends[event.spec.id] = event
        if not self.console.is_terminal and (line := self._line(event, now)):
            self.console.print(printable(line), highlight=False, markup=False, soft_wrap=True)

    def totals(self) -> str:
        """A line for the end of a run: trials by status, wall time, and the training time in the records."""
        wall = clock(time.monotonic() - self._began)
        minutes = sum(
            end.record.metrics.get("train_minutes", 0.0) * end.spec.train.data_parallel
            for end in self._ends.values()
            if end.record is not None
        )
        return (
            f"{self._ended()}; wall time {wall}; device time {clock(60 * minutes)} (training, summed over these trials)"
        )

    def _line(self, event: Event, now: float) -> str | None:
        """The line of a log for an event: a start, the end of an epoch, once a minute within an epoch, a result."""
        names = " ".join(self._name_of(kind, event.spec) for kind in KINDS)
        who = f"{event.spec.id}  {names} seed={event.spec.seed}"
        if event.kind == "started":
            return f"start   {who}"
        if event.kind == "finished":
            return f"end     {who}  {_result(event)}  ({len(self._ends)} of {self.total})"
        progress = event.progress
        if progress.step < progress.steps and now - self._last_line.get(event.spec.id, 0.0) < LINE_SECONDS:
            return None
        self._last_line[event.spec.id] = now
        valid = f"  valid {progress.valid_ppl:.2f}" if progress.step == progress.steps and progress.valid_ppl else ""
        return f"epoch   {who}  {_position(progress)}  {progress.ms_per_batch:.1f} ms/batch{valid}"

    def _ended(self) -> str:
        counts = Counter(end.record.status if end.record else "lost" for end in self._ends.values())
        by_status = ", ".join(f"{count} {status}" for status, count in counts.items()) or "none finished"
        return f"{len(self._ends)} of {counted(self.total, 'trial')}: {by_status}"

    def _shown(self) -> Group:
        now, width = time.monotonic(), self.console.width
        remaining = self.pace.remaining_of_all(now)
        about = Text(
            f"{self._ended()}; {len(self.pace.running)} running; {len(self.pace.waiting)} waiting; "
            f"wall {clock(now - self._began)}; device {clock(self.pace.used(now))}; "
            f"ETA {'-' if remaining is None else clock(remaining)}"
        ).wrap(self.console, width)
        if self._reading is not None and now - self._reading.began >= READING_SECONDS:
            about.extend(Text(printable(str(self._reading))).wrap(self.console, width))
        room = max(1, min(MAX_ROWS, self.console.height - len(about) - 3))
        running = list(self.pace.running)[:room]
        finished = list(self._ends)[max(0, len(self._ends) - (room - len(running))) :] if len(running) < room else []
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
        columns = _widths(self._needed, width)
        for name, characters in columns.items():
            table.add_column(Text(name, style="bold"), width=characters, no_wrap=True, overflow="ellipsis")
        for cells in [*map(self._finished_row, finished), *(self._running_row(trial, now) for trial in running)]:
            texts = {name: printable(cells.get(name, "")) for name in columns}
            texts |= {name: elided(text, columns[name]) for name, text in texts.items() if name in KINDS}
            table.add_row(*map(Text, texts.values()))
        return Group(*about, Text("━" * (width * len(self._ends) // max(1, self.total)), style="green"), table)

    def _about(self, spec: TrialSpec) -> dict[str, str]:
        return {"trial": spec.id, **{kind: self._name_of(kind, spec) for kind in KINDS}, "seed": str(spec.seed)}

    def _running_row(self, trial: str, now: float) -> dict[str, str]:
        spec, progress = self.pace.running[trial].spec, self.pace.running[trial].latest
        if progress is None:
            return {**self._about(spec), "state": "starting"}
        return {
            **self._about(spec),
            "state": "━" * int(BAR * epochs_done(progress) / progress.epochs),
            "epoch": _position(progress),
            "valid ppl": f"{progress.valid_ppl:.2f}" if progress.valid_ppl else "",
            "ms/batch": f"{progress.ms_per_batch:.1f}",
            "ETA": clock(self.pace.remaining(trial, now)),
        }

    def _finished_row(self, trial: str) -> dict[str, str]:
        end = self._ends[trial]
        record = end.record
        if record is None or record.status != "ok":
            return {**self._about(end.spec), "state": _result(end)}
        return {
            **self._about(end.spec),
            "state": "ok",
            "epoch": f"{record.curve[-1].epoch:g}" if record.curve else "0",
            "valid ppl": f"{record.metrics['valid_ppl']:.2f}",
            "ms/batch": f"{ms:.1f}" if (ms := record.metrics.get("train_ms_per_batch")) else "",
        }


def clock(seconds: float) -> str:
    """'0:01:05'."""
    return f"{int(seconds // 3600)}:{int(seconds // 60 % 60):02}:{int(seconds % 60):02}"


def _needed(rows: list[dict[str, str]]) -> dict[str, int]:
    """Names and seeds of all trials: how many characters each of their columns needs."""
    texts = {name: {printable(row[name]) for row in rows} for name in (*KINDS, "seed")}
    longest = {name: max(map(len, (name, *of))) for name, of in texts.items() if len(of) > 1 or name not in VARYING}
    return {name: min(characters, NAME) for name, characters in longest.items()}


def _widths(needed: dict[str, int], width: int) -> dict[str, int]:
    """The columns that a terminal has room for, with their characters: the same all through a run. Numbers give way to
    names, names lose their middle, and ETA and state are always whole. The state has what is left for its message.
    """
    columns = {name: needed[name] for name in COLUMNS if name in needed}
    names = [name for name in KINDS if name in columns]

    def room() -> int:
        return width - sum(columns.values()) - GAP * (len(columns) - 1)

    for column, characters in GIVES_WAY.items():
        if room() + sum(max(0, columns[name] - characters) for name in names) < 0:
            del columns[column]
    while room() < 0 and max(columns[name] for name in names) > 1:
        columns[max(names, key=columns.get)] -= 1
    columns["state"] += max(0, room())
    return columns


def elided(text: str, most: int) -> str:
    """A text without its middle where it is longer than so many characters: the ends of names differ."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[len(text) - most + most // 2 + 1 :]}"


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


@dataclass(frozen=True, slots=True)
class _Reading:
    """How much of a text is read: since when, and when the last line of a log was printed."""

    text: str
    began: float
    last_line: float
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        share = self.done / max(self.total, 1)
        return f"reading {self.text}  {'━' * int(BAR * share):{BAR}}  {int(100 * share)} %"


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

    def device_seconds(self, now: float) -> float:
        return (now - self.began) * self.spec.train.data_parallel


class Pace:
    """Estimates the remaining time of each trial and of the whole run. `now` is the time of one monotonic clock, and
    the trials are given in the order in which they start.
    """

    def __init__(self, specs: Iterable[TrialSpec]):
        self.waiting = {spec.id: spec for spec in specs}
        self.running: dict[str, _Running] = {}
        self._finished: dict[Key, tuple[float, float]] = {}  # seconds and epochs of the finished trials with this key
        self._used = 0.0  # seconds of the trials that have ended
        self._at_once = 1  # the largest number of trials that ran at the same time

    def started(self, spec: TrialSpec, now: float) -> None:
        self.waiting.pop(spec.id, None)
        if (before := self.running.get(spec.id)) is not None:
            self._used += before.device_seconds(now)
        self.running[spec.id] = _Running(spec, now)
        self._at_once = max(self._at_once, len(self.running))

    def progressed(self, spec: TrialSpec, progress: Progress, now: float) -> None:
        trial = self.running.setdefault(spec.id, _Running(spec, now))
        if trial.first is None:
            trial.first, trial.first_at = progress, now
        trial.latest, trial.latest_at = progress, now

    def ended(self, spec: TrialSpec, now: float) -> None:
        """A trial ended. The time that it took, with its start and last evaluations, is expected of similar trials."""
        self.waiting.pop(spec.id, None)
        trial = self.running.pop(spec.id, None)
        if trial is None:
            return
        self._used += trial.device_seconds(now)
        if trial.latest is None:
            return
        resumed_at = epochs_done(trial.first) if trial.first.epoch > 1 else 0.0
        epochs_here = epochs_done(trial.latest) - resumed_at
        for key in _keys(spec) if epochs_here > 0 else ():
            seconds, epochs = self._finished.get(key, (0.0, 0.0))
            self._finished[key] = seconds + now - trial.began, epochs + epochs_here

    def used(self, now: float) -> float:
        """Seconds that trials of this run have used devices, up to now, summed over all devices. It never falls."""
        return self._used + sum(trial.device_seconds(now) for trial in self.running.values())

    def remaining(self, trial_id: str, now: float) -> float | None:
        """Seconds until a running trial ends; None before its first report. It falls with the clock from one report to
        the next, down to 0.
        """
        trial = self.running[trial_id]
        per_epoch = trial.seconds_per_epoch()
        if per_epoch is None:
            return None
        return max(0.0, per_epoch * (trial.latest.epochs - epochs_done(trial.latest)) - (now - trial.latest_at))

    def remaining_of_all(self, now: float) -> float | None:
        """Seconds until the last trial ends; None while nothing was measured. A waiting trial starts when another one
        ends, and takes as long per epoch as the most similar trials that were measured: finished ones, or else those
        that run.
        """
        rates = {key: seconds / epochs for key, (seconds, epochs) in self._finished.items()}
        for trial in self.running.values():
            if (per_epoch := trial.seconds_per_epoch()) is not None:
                for key in _keys(trial.spec):
                    rates.setdefault(key, per_epoch)
        if not rates:
            return None

        def expected(spec: TrialSpec) -> float:
            return spec.train.most_epochs * next(rates[key] for key in _keys(spec) if key in rates)

        ends = []  # of the trials that run at the same time, in seconds from now
        for trial_id, trial in self.running.items():
            remaining = self.remaining(trial_id, now)
            ends.append(expected(trial.spec) if remaining is None else remaining)
        ends += [0.0] * (self._at_once - len(ends))
        heapq.heapify(ends)
        for spec in self.waiting.values():
            heapq.heappush(ends, heapq.heappop(ends) + expected(spec))
        return max(ends)


def epochs_done(progress: Progress) -> float:
    """How many epochs are finished, with the finished part of the current one."""
    return progress.epoch - 1 + epoch_length(progress) * progress.step / progress.steps


def epoch_length(progress: Progress) -> float:
    """The length of the current epoch: 1, or less when `epochs` is not a whole number and this is the last one."""
    return min(1.0, progress.epochs - (progress.epoch - 1))


def _keys(spec: TrialSpec) -> list[Key]:
    """Trials that share one of these take about the same time per epoch; the most specific key is first."""
    components = (str(spec.corpus), str(spec.backbone), str(spec.head))
    return [components[:shared] for shared in (3, 2, 1, 0)]
