"""A table as data: what every form of it, markdown, CSV, LaTeX and the page, is made of."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column.

    Args:
        name: its header.
        numeric: its cells are numbers: set flush right, sorted as numbers.
        group: a header above several columns ('ptb'), or ''.
    """

    name: str
    numeric: bool = False
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell.

    Args:
        text: what is shown: '86.89 ± 0.31'. Plain text: each form does its own escaping.
        value: the number behind it, unrounded; None where it is no number or there is none.
        spread: its standard deviation, None where there is none.
        rank: 'best' of its column, or a 'tie': not told apart from the best; '' for neither.
    """

    text: str
    value: float | None = None
    spread: float | None = None
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
