"""A table as data, from which markdown, CSV, LaTeX and the page are made."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

from harness.report.evidence.verdicts import Rank

NOTHING = "-"  # the text of an empty cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column.

    Args:
        name: its header.
        numeric: its cells are numbers: aligned right and sorted as numbers.
        group: a header above several columns ('ptb'), or ''.
        spread: the name of its cells' spreads in CSV.
    """

    name: str
    numeric: bool = False
    group: str = ""
    spread: str = "sd"

    @property
    def header(self) -> str:
        """Group and name in one line: 'ptb test ppl'."""
        return f"{self.group} {self.name}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell.

    Args:
        text: the shown text: '86.89 ± 0.31 ‡'. Not escaped: each form does that.
        value: its number, unrounded; None if it has none.
        spread: its standard deviation or other spread, as the column names it; None if it has none.
        interval: low and high of the value's interval; None if it has none.
        mark: the marks at the end of the text, which docs/tables.md explains: '***', '‡'.
        rank: see harness.report.evidence.ranks; '' for a cell without one. Only the 'best' is bold.
        link: a page that the cell leads to, relative to its own page; '' for none.
    """

    text: str
    value: float | None = None
    spread: float | None = None
    interval: tuple[float, float] | None = None
    mark: str = ""
    rank: Rank | Literal[""] = ""
    link: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line: a cell for each column, and the ids of the trials that it was made of."""

    cells: tuple[Cell, ...]
    trials: tuple[str, ...] = ()


class Note(str):
    """A note below a table. It is a string that knows which columns it is about.

    Args:
        text: one or two sentences.
        columns: parts of the names of these columns; without any of them the note is left out. (): it always stays.
    """

    columns: tuple[str, ...]

    def __new__(cls, text: str, columns: tuple[str, ...] = ()) -> Self:
        made = super().__new__(cls, text)
        made.columns = columns
        return made

    def is_about(self, names: Iterable[str]) -> bool:
        """Whether the note belongs to a table with columns of these names."""
        return not self.columns or any(part in name for name in names for part in self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: a title, columns, lines, and the notes below it. No text is escaped.

    Args:
        notes: plain strings, or Notes where they are about some columns.
        lead: a sentence between title and table, in markdown and on the page; '' for none.
    """

    title: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    lead: str = ""
