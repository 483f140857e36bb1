"""What `harness run` shows: sentences, trials while they run, and the summary of a table."""

import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from harness.corpora.progress import reported_to
from harness.execution.executors import Event
from harness.plan.specs import TrialSpec
from harness.printable import counted, printable
from harness.report import content, screen
from harness.training.loop import Progress as Position

LINE_SECONDS = 60.0  # between two lines of a log about one trial within an epoch, or about one text
READING_SECONDS = 3.0  # after which a log has the first line about a text that is read
BAR = 10  # characters
KINDS = ("head", "backbone", "corpus")


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

    def table(self, summary: Callable[[], content.Table], whole: Callable[[], str]) -> None:
        """Show a table: its summary in a terminal, all of it as markdown anywhere else."""
        if self.output.is_terminal:
            self.output.print(screen.short(summary(), self.output.width))
        else:
            self.say(whole())

    def table_files(self, files: list[Path]) -> None:
        self.say(f"table: {', '.join([str(files[0]), *(place.suffix for place in files[1:])])}")


def _print(console: Console, text: str) -> None:
    end = "" if text.endswith("\n") else "\n"
    console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True, end=end)


class LiveView:
    """Shows the events of a run: bars and the results of trials in a terminal, plain lines anywhere else. Use as a
    context manager.

    Args:
        name_of: what a trial's head, backbone or corpus is called, given its kind and the trial.
    """

    def __init__(self, specs: list[TrialSpec], console: Console, name_of: Callable[[str, TrialSpec], str]):
        self.console, self._name_of, self.total = console, name_of, len(specs)
        self._began = time.monotonic()
        self._ends: dict[str, Event] = {}
        self._last_line: dict[str, float] = {}  # when a log had the last one about a trial or a text
        self._named = ["head"]  # a bar leaves out what all trials have in common
        for kind in KINDS[1:]:
            if len({name_of(kind, spec) for spec in specs}) > 1:
                self._named.append(kind)
        name, whole = Column(ratio=1, no_wrap=True, overflow="ellipsis"), Column(no_wrap=True)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False, table_column=name),
            TextColumn("{task.fields[about]}", markup=False, table_column=whole),
            BarColumn(BAR),
            TimeRemainingColumn(table_column=whole),
            console=console,
            refresh_per_second=2,
            speed_estimate_period=float("inf"),
            transient=True,
            expand=True,
            disable=not console.is_terminal,
        )
        self._all = self._bars.add_task(self._finished(), total=self.total, about="")
        self._bar_of: dict[str, TaskID] = {}  # of a trial that runs, or of a text that is read
        self._reports = reported_to(self.read)

    def __enter__(self) -> "LiveView":
        self._reports.__enter__()
        self._bars.start()
        return self

    def __exit__(self, *exc) -> None:
        self._bars.stop()
        self._reports.__exit__(*exc)

    def read(self, text: str, done: int, total: int) -> None:
        """Show how much of a text is read and tokenised before trials start."""
        name, share = f"reading {printable(text)}", done / max(total, 1)
        self._bar(text, name, share, "")
        self._last_line.setdefault(text, time.monotonic() - LINE_SECONDS + READING_SECONDS)
        if self._line_due(text):
            self._log(f"{name}  {100 * share:.0f} %")
        if done >= total:
            self._remove_bar(text)
            del self._last_line[text]

    def __call__(self, event: Event) -> None:
        spec, trial = event.spec, event.spec.id
        name = " ".join(self._name_of(kind, spec) for kind in self._named) + f" seed={spec.seed}"
        who = f"{trial}  {' '.join(self._name_of(kind, spec) for kind in KINDS)} seed={spec.seed}"
        if event.kind == "started":
            self._ends.pop(trial, None)  # a trial may be tried once more, alone
            self._last_line[trial] = time.monotonic()
            self._bar(trial, name, 0.0, "starting")
            self._log(f"start   {who}")
        elif event.kind == "progress":
            progress = event.progress
            length = min(1.0, progress.epochs - (progress.epoch - 1))  # of this epoch: 1.4 epochs end with 0.4
            done = (progress.epoch - 1 + length * progress.step / progress.steps) / progress.epochs
            valid = f"  valid {progress.valid_ppl:.2f}" if progress.valid_ppl else ""
            about = f"{_position(progress)}  {progress.ms_per_batch:.1f} ms/batch{valid}"
            self._bar(trial, name, done, about)
            if progress.step == progress.steps or self._line_due(trial):
                self._last_line[trial] = time.monotonic()
                self._log(f"epoch   {who}  {about}")
        else:
            self._remove_bar(trial)
            self._ends[trial] = event
            _print(self.console, printable(f"end     {who}  {_result(event)}  ({len(self._ends)} of {self.total})"))
        self._bars.update(self._all, description=self._finished(), completed=len(self._ends), about=self._by_status())

    def totals(self) -> str:
        """A line for the end of a run: trials by status, wall time, and the training time in the records."""
        minutes = 0.0
        for end in self._ends.values():
            if end.record is not None:
                minutes += end.record.metrics.get("train_minutes", 0.0) * end.spec.train.data_parallel
        wall = timedelta(seconds=int(time.monotonic() - self._began))
        device = timedelta(seconds=int(60 * minutes))
        ended = f"{self._finished()}: {self._by_status()}"
        return f"{ended}; wall time {wall}; device time {device} (training, summed over these trials)"

    def _bar(self, key: str, name: str, done: float, about: str) -> None:
        if key not in self._bar_of:
            self._bar_of[key] = self._bars.add_task(printable(name), total=1.0, about=about)
        self._bars.update(self._bar_of[key], completed=done, about=about)

    def _remove_bar(self, key: str) -> None:
        if key in self._bar_of:
            self._bars.remove_task(self._bar_of.pop(key))

    def _line_due(self, key: str) -> bool:
        """Whether a log had no line about a trial or a text for a minute; the next one is due a minute later."""
        now = time.monotonic()
        due = now - self._last_line.get(key, 0.0) >= LINE_SECONDS
        if due:
            self._last_line[key] = now
        return due

    def _log(self, line: str) -> None:
        if not self.console.is_terminal:
            _print(self.console, printable(line))

    def _finished(self) -> str:
        return f"{len(self._ends)} of {counted(self.total, 'trial')}"

    def _by_status(self) -> str:
        counts = Counter(end.record.status if end.record else "lost" for end in self._ends.values())
        return ", ".join(f"{count} {status}" for status, count in counts.items()) or "none finished"


def _position(progress: Position) -> str:
    """'2/3 (40 %)': 40 % of the second epoch. Of 1.4 epochs the second one ends at 1.4: '1.4/1.4 (40 %)'."""
    return f"{min(progress.epoch, progress.epochs):g}/{progress.epochs:g} ({100 * progress.step // progress.steps} %)"


def _result(event: Event) -> str:
    record = event.record
    if record is None:
        return f"lost: {event.message}"
    if record.status != "ok":
        return f"{record.status}: {record.message}"
    return f"ok  valid {record.metrics['valid_ppl']:.2f}  test {record.metrics['test_ppl']:.2f}"
