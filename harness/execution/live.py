"""What `harness run` shows: sentences, trials while they run, and the summary of a table."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from harness.corpora.progress import reported_to
from harness.execution.executors import Event
from harness.plan.specs import TrialSpec
from harness.printable import counted, printable
from harness.report import content, layouts, screen, suite_table
from harness.report.study import Study
from harness.training import loop

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
    """Shows the events of a run: bars and the results of trials in a terminal, plain lines anywhere else. Use as a
    context manager.

    Args:
        name_of: what a trial's head, backbone or corpus is called, given its kind and the trial.
    """

    def __init__(self, specs: list[TrialSpec], console: Console, name_of: Callable[[str, TrialSpec], str]):
        self.console, self._name_of, self.total = console, name_of, len(specs)
        self._began = time.monotonic()
        self._last_line: dict[str, float] = {}  # when a log had the last one about a trial or a text
        self._ends: dict[str, Event] = {}
        self._done: dict[str, float] = {}  # the part of each running trial that is done, after its first report
        varying = [kind for kind in KINDS[1:] if len({name_of(kind, spec) for spec in specs}) > 1]
        self._named = ["head", *varying]
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
        self._reading = self._bars.add_task("", visible=False, about="")
        self._bar_of: dict[str, TaskID] = {}
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
        name, now, share = f"reading {printable(text)}", time.monotonic(), done / max(total, 1)
        self._bars.update(self._reading, description=name, completed=done, total=total, visible=done < total)
        last = self._last_line.setdefault(text, now - LINE_SECONDS + READING_SECONDS)
        if not self.console.is_terminal and now - last >= LINE_SECONDS:
            self._last_line[text] = now
            _print(self.console, f"{name}  {'━' * int(BAR * share):{BAR}}  {int(100 * share)} %")
        if done >= total:
            del self._last_line[text]

    def __call__(self, event: Event) -> None:
        trial = event.spec.id
        if event.kind == "progress":
            self._move(event.spec, event.progress)
        else:
            self._done.pop(trial, None)
            self._ends.pop(trial, None)  # a trial may be tried once more, alone
            if trial in self._bar_of:
                self._bars.remove_task(self._bar_of.pop(trial))
            if event.kind == "started":
                self._bar_of[trial] = self._bar(event.spec)
            else:
                self._ends[trial] = event
        about = f"{self._by_status()}; {len(self._bar_of)} running"
        completed = len(self._ends) + sum(self._done.values())
        self._bars.update(self._all, description=self._finished(), completed=completed, about=about)
        line = self._line(event, time.monotonic())
        if line and (event.kind == "finished" or not self.console.is_terminal):
            _print(self.console, printable(line))

    def totals(self) -> str:
        """A line for the end of a run: trials by status, wall time, and the training time in the records."""
        wall = _clock(time.monotonic() - self._began)
        minutes = sum(
            end.record.metrics.get("train_minutes", 0.0) * end.spec.train.data_parallel
            for end in self._ends.values()
            if end.record is not None
        )
        device = _clock(60 * minutes)
        ended = f"{self._finished()}: {self._by_status()}"
        return f"{ended}; wall time {wall}; device time {device} (training, summed over these trials)"

    def _bar(self, spec: TrialSpec) -> TaskID:
        names = " ".join([*(self._name_of(kind, spec) for kind in self._named), f"seed={spec.seed}"])
        return self._bars.add_task(printable(names), total=None, about="starting")

    def _move(self, spec: TrialSpec, progress: loop.Progress) -> None:
        trial = spec.id
        if trial not in self._bar_of:
            self._bar_of[trial] = self._bar(spec)
        length = min(1.0, progress.epochs - (progress.epoch - 1))  # of this epoch: the last of 1.4 epochs has 0.4
        done = (progress.epoch - 1 + length * progress.step / progress.steps) / progress.epochs
        valid = f"valid {progress.valid_ppl:.2f}  " if progress.valid_ppl else ""
        about = f"{_position(progress)}  {valid}{progress.ms_per_batch:.1f} ms/batch"
        if trial not in self._done:  # what a resumed trial had before takes no time here
            self._bars.reset(self._bar_of[trial], total=1.0, completed=done, about=about)
        self._bars.update(self._bar_of[trial], completed=done, about=about)
        self._done[trial] = done

    def _line(self, event: Event, now: float) -> str | None:
        """The line of a log for an event: a start, the end of an epoch, once a minute within an epoch, a result."""
        names = " ".join(self._name_of(kind, event.spec) for kind in KINDS)
        who = f"{event.spec.id}  {names} seed={event.spec.seed}"
        if event.kind == "started":
            self._last_line[event.spec.id] = now
            return f"start   {who}"
        if event.kind == "finished":
            return f"end     {who}  {_result(event)}  ({len(self._ends)} of {self.total})"
        progress = event.progress
        if progress.step < progress.steps and now - self._last_line.get(event.spec.id, 0.0) < LINE_SECONDS:
            return None
        self._last_line[event.spec.id] = now
        valid = f"  valid {progress.valid_ppl:.2f}" if progress.step == progress.steps and progress.valid_ppl else ""
        return f"epoch   {who}  {_position(progress)}  {progress.ms_per_batch:.1f} ms/batch{valid}"

    def _finished(self) -> str:
        return f"{len(self._ends)} of {counted(self.total, 'trial')}"

    def _by_status(self) -> str:
        counts = Counter(end.record.status if end.record else "lost" for end in self._ends.values())
        return ", ".join(f"{count} {status}" for status, count in counts.items()) or "none finished"


def _clock(seconds: float) -> str:
    """'0:01:05'."""
    return f"{int(seconds // 3600)}:{int(seconds // 60 % 60):02}:{int(seconds % 60):02}"


def _position(progress: loop.Progress) -> str:
    """'2/3 (40 %)': 40 % of the second epoch. Of 1.4 epochs the second one ends at 1.4: '1.4/1.4 (40 %)'."""
    return f"{min(progress.epoch, progress.epochs):g}/{progress.epochs:g} ({100 * progress.step // progress.steps} %)"


def _result(event: Event) -> str:
    record = event.record
    if record is None:
        return f"lost: {event.message}"
    if record.status != "ok":
        return f"{record.status}: {record.message}"
    return f"ok  valid {record.metrics['valid_ppl']:.2f}  test {record.metrics['test_ppl']:.2f}"
