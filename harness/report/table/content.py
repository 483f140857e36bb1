"""A table as data: what every form of it, markdown, CSV, LaTeX and the page, is made of."""

from dataclasses import dataclass
from typing import Literal

NOTHING = "-"  # the text of a cell that has nothing to say


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column.

    Args:
        name: its header.
        numeric: its cells are numbers: set flush right, sorted as numbers.
        group: a header above several columns ('ptb'), or ''.
        spread: what its cells' spreads are, as a form of raw numbers says it.
    """

    name: str
    numeric: bool = False
    group: str = ""
    spread: str = "sd"

    @property
    def header(self) -> str:
        """Its name below its group, in one line: 'ptb test ppl'."""
        return f"{self.group} {self.name}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell.

    Args:
        text: all that is shown: '86.89 ± 0.31 ‡'. Plain text: each form does its own escaping.
        value: the number behind it, unrounded; None where it is no number or there is none.
        spread: its standard deviation, or what the column says; None where there is none.
        interval: low and high, of the value's interval where it has one.
        mark: the signs of the text that are no part of a number and that a note explains: '***', '‡'.
        rank: 'best' of its column, or a 'tie': not told apart from the best; '' for neither.
    """

    text: str
    value: float | None = None
    spread: float | None = None
    interval: tuple[float, float] | None = None
    mark: str = ""
    rank: Literal["", "best", "tie"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row: a cell for each column, and the ids of the trials that it was made of."""

    cells: tuple[Cell, ...]
    trials: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: a title, columns, lines, and the notes that stand under it. All plain text."""

    title: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
