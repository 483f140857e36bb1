"""What a run of a suite reports while it goes on: sentences, warnings, problems, and the progress of its trials."""

from pathlib import Path

from rich.console import Console

from harness.execution.progress.live import LiveView
from harness.execution.progress.short_table import short_table
from harness.plan.specs import TrialSpec
from harness.report.study import Study
from harness.report.table import suite_table
from harness.report.table.content import Table
from harness.report.table.short_form import of_truths


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
        """Print a sentence, or a text of several lines."""
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

    def progress(self, trials: list[TrialSpec]) -> LiveView:
        """A context manager that shows the events of these trials."""
        return LiveView(trials, self.output)

    def table(self, found: Study) -> None:
        """Show the table of a suite: its summary in a terminal, all of it as markdown anywhere else."""
        if self.output.is_terminal:
            self.output.print(short_table(found.summary(), self.output.width))
        else:
            self.say(found.table())

    def ground_truths(self, made: Table) -> None:
        """Show the table of ground truths, as `table` shows that of a suite."""
        if self.output.is_terminal:
            self.output.print(short_table(of_truths(made), self.output.width))
        else:
            self.say(suite_table.text(made))

    def table_files(self, files: list[Path]) -> None:
        """Say where the table is."""
        self.say(f"table: {', '.join([str(files[0]), *(place.suffix for place in files[1:])])}")

    def found(self, found: Study) -> None:
        """Say in one sentence what the suite found."""
        self.say(f"found: {found.found()}")

    def totals(self, view: LiveView) -> None:
        """Print what the trials of a view took, if there were any."""
        if view.total:
            self.say(view.totals())


def _print(console: Console, text: str) -> None:
    end = "" if text.endswith("\n") else "\n"
    console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True, end=end)
