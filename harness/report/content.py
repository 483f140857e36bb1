"""A table as data, from which markdown, CSV, LaTeX and the page are made."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

Rank = Literal["best", "tie", "behind"]
Topic = Literal["time", "memory", "comparison", "printed", "difference", "reproduced"]
TIE_MARK = "≈"
NOT_CONVERGED_MARK = "↓"
FAILED_MARK = "✗"
OUTDATED_MARK = "¶"
UNCERTIFIED_MARK = "°"
TIME_MARK = "‡"
COARSE = "coarse tuning"  # what limits a verdict to the settings that were chosen
NOTHING = "-"  # the text of an empty cell
MARKS = {  # a mark in a cell -> what it means, in a few words; docs/tables.md says more
    TIE_MARK: "the lowest, or not distinguishable from it",
    NOT_CONVERGED_MARK: "not converged: longer training may change it; or collapsed",
    FAILED_MARK: "some seeds failed",
    OUTDATED_MARK: "the code has changed since, or is of several versions",
    UNCERTIFIED_MARK: "not certified, or by earlier, weaker rules",
    TIME_MARK: "timed while other work ran, or on another device than the baseline",
}
STARS = "p below 0.05 (*), 0.01 (**), 0.001 (***), corrected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column.

    Args:
        group: a header above several columns ('ptb'), or ''.
        spread: the name of its cells' spreads in CSV.
        key: what it shows, by which forms choose columns (ORDER in harness/report/layouts.py): the metric's name,
            'change', 'verdict'. '' for one that nothing chooses.
        topics: what it is about, by which notes belong to it.
    """

    name: str
    numeric: bool = False
    group: str = ""
    spread: str = "sd"
    key: str = ""
    topics: tuple[Topic, ...] = ()

    @property
    def header(self) -> str:
        """Group and name in one line: 'ptb test ppl'."""
        return f"{self.group} {self.name}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell.

    Args:
        text: the shown text: '86.89 ± 0.31 ‡'. Not escaped: each form does that.
        spread: its standard deviation or other spread, as the column names it; None if it has none.
        short: the text in a compact table, without marks; '' where it is made of the value.
        mark: the marks at the end of the text, which docs/tables.md explains: '***', '‡'.
        rank: see harness.report.ranks; '' for a cell without one. Only the 'best' is bold.
        ratio: of its number to that of the baseline, None if they cannot be compared.
        full: the full name of what it names, which a page shows and searches; '' for none.
        summary: the cell that stands in its place in a summary; None: it does itself.
    """

    text: str
    value: float | None = None
    spread: float | None = None
    interval: tuple[float, float] | None = None
    short: str = ""
    mark: str = ""
    rank: Rank | Literal[""] = ""
    ratio: float | None = None
    link: str = ""
    full: str = ""
    summary: "Cell | None" = None

    @classmethod
    def of(cls, value: float, spread: float | None, digits: int) -> Self:
        """'86.89 ± 0.31', or the value alone."""
        text = f"{value:,.{digits}f}" + ("" if spread is None else f" ± {spread:,.{digits}f}")
        return cls(text=text, value=value, spread=spread)

    @classmethod
    def mean(cls, values: Sequence[float], digits: int) -> Self:
        """Mean ± standard deviation; '-' for no value."""
        if not values:
            return cls(text=NOTHING)
        return cls.of(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, digits)

    def marked(self, mark: str) -> "Cell":
        """The cell with a mark at its end; '' for none."""
        return replace(self, text=f"{self.text} {mark}", mark=mark) if mark else self

    def without_spread(self, digits: int) -> "Cell":
        """The number with its ratio and marks only: '63.2 (4.6x) ‡', '72.11 ≈ ↓'; the cell itself without a number."""
        if self.value is None:
            return self
        times = "" if self.ratio is None else f"({self.ratio:.1f}x)"
        tie = TIE_MARK if self.rank == "tie" else ""
        return replace(self, text=" ".join(filter(None, [f"{self.value:,.{digits}f}", times, tie, self.mark])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line.

    Args:
        cells: one for each column.
        section: a heading that it shares with its neighbours in a summary: its corpus and backbone; '' for none.
    """

    cells: tuple[Cell, ...]
    trials: tuple[str, ...] = ()
    is_main: bool = True
    section: str = ""


Level = Literal["warning", "reading", "detail"]


class Note(str):
    """A note below a table. It is a string that knows which columns it is about.

    Args:
        topics: those of its columns; in a table without any of them the note is left out. (): it always stays.
        level: a 'warning', without which a reader would be misled; 'reading': it changes how the numbers are read;
            'detail': the wide form only has it, as plain strings. The default form has the first ones.
    """

    topics: tuple[Topic, ...]
    level: Level

    def __new__(cls, text: str, *topics: Topic, level: Level = "detail") -> Self:
        made = super().__new__(cls, text)
        made.topics, made.level = topics, level
        return made

    def is_about(self, columns: Iterable[Column]) -> bool:
        """Whether the note belongs to a table with these columns."""
        return not self.topics or any(topic in column.topics for column in columns for topic in self.topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: a title, columns, lines, and the notes below it. No text is escaped.

    Args:
        notes: plain strings, or Notes where they are about some columns.
        caption: in a paper; '' for the title.
        labels: a note on what the labels of a suite's file stand for, of the wide form only; '' for none.
        conditions: seeds, budget, devices and versions in one line, a note of the default form and of a summary.
    """

    title: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    lead: str = ""
    caption: str = ""
    suite: str = ""
    labels: str = ""
    conditions: str = ""


def legend(table: Table) -> list[str]:
    """What the marks in the cells of a table mean, in one line; [] without marks."""
    found = meanings(cell for line in table.lines for cell in line.cells)
    return [f"{'; '.join(found)}."] if found else []


def meanings(cells: Iterable[Cell]) -> list[str]:
    """What the marks in some cells mean: '↓ not converged: longer training may change it'."""
    texts = [cell.text for cell in cells]
    used = {part for text in texts for part in text.split()}
    found = [f"{mark} {meaning}" for mark, meaning in MARKS.items() if mark in used]
    if any(COARSE in text for text in texts):
        found.append(f"{COARSE}: shown at the chosen settings, others may change it")
    return found + ([STARS] if any(set(part) == {"*"} for part in used) else [])
