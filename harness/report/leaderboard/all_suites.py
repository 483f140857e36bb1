"""The leaderboard of a results folder: the finished trials of all suites, in groups that can be compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ExecutionError, nearest
from harness.plan.specs import LEADERBOARD
from harness.report.leaderboard import board
from harness.report.leaderboard.groups import Group, gather, groups
from harness.report.table.short_form import Summary, of_group


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """Groups of trials, and what was left out.

    Args:
        results: the results folder.
        unknown: how many trials are left out because it is not known what text they were trained on.
        differing: ids of trials of which two suites have different results; they are left out.
    """

    results: Path
    groups: tuple[Group, ...]
    unknown: int
    differing: Sequence[str]

    def of_corpora(self, names: Sequence[str]) -> tuple[Group, ...]:
        """The groups of some corpora; () gives all groups.

        Raises: ExecutionError when no finished trial has one of the corpora.
        """
        known = sorted({group.corpus.name for group in self.groups})
        for name in names:
            if name not in known:
                others = f"{nearest(name, known)} (there are: {', '.join(known)})"
                raise ExecutionError(f"--corpus {name}: no finished trial has that corpus{others}")
        return tuple(group for group in self.groups if not names or group.corpus.name in names)

    def text(self, corpora: Sequence[str] = ()) -> str:
        """The tables in markdown, of all corpora or of some. Raises as `of_corpora` does."""
        return board.render(self.of_corpora(corpora), unknown=self.unknown, differing=self.differing)

    def summaries(self, corpora: Sequence[str] = ()) -> list[Summary]:
        """The few columns of each table that a terminal shows. Raises as `of_corpora` does."""
        return [of_group(board.table(group)) for group in self.of_corpora(corpora)]

    def as_json(self, corpora: Sequence[str] = ()) -> dict[str, Any]:
        """The content of `harness leaderboard --json`. Raises as `of_corpora` does."""
        return {"groups": board.as_json(self.of_corpora(corpora)), "left_out": self.unknown}

    def page(self, links: Mapping[str, str] | None = None) -> str:
        """All groups as a web page.

        Args:
            links: names of other pages and files -> their places, relative to the page.
        """
        from harness.report.page import document  # here: jinja2

        tables = tuple(map(board.table, self.groups))
        section = document.Section(heading="Like with like", tables=tables, notes=board.MEANING)
        about = {"Trials": str(board.trials(self.groups))}
        return document.of_tables("Leaderboard", [section], about, links)

    def write(self, *, overwrite: bool = False) -> list[Path]:
        """Write all groups as markdown below results/tables, and as a page in results/reports; returns the paths.

        Raises: FewerTrialsError, StorageError.
        """
        from harness.report import outputs

        files = {
            self.results / "tables" / board.FILE_NAME: self.text().encode(),
            self.results / "reports" / f"{LEADERBOARD}.html": self.page().encode(),
        }
        outputs.write(files, overwrite=overwrite)
        return list(files)


def load(results: Path, warn: Callable[[str], None]) -> Leaderboard:
    """Read the records of all suites.

    Args:
        warn: called with a sentence for each record that is damaged or contradicts another one.
    Raises: ExecutionError when there are no finished trials.
    """
    finished, unknown, differing = gather(results, warn)
    if not finished:
        raise ExecutionError(f"{results / 'runs'} holds no records to compare: run a suite first, or name the folder")
    return Leaderboard(results=results, groups=groups(finished), unknown=unknown, differing=differing)
