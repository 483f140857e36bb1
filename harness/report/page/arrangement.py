"""How a page arranges a table: what a row is and its main results first, so that they are in sight on any screen."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.report.table.content import Cell, Column, Line, Table

LABELS = ("head", "quantity", "backbone", "corpus", "training")  # what a row is: the first names it
MAIN = ("test ppl", "vs", "rank", "seeds", "verdict", "n", "printed test ppl", "ours - printed test ppl", "reproduced")
ALSO = ("valid ppl", "params", "K", "#S", "#I", "#P", "train ms/batch")  # in sight on a desktop


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrangedLine:
    """A line of a page's table.

    Args:
        name: the cell that says what the row is.
        of: the other labels of the row, below the name: 'lstm', 'ptb'.
        cells: the others, in the order of the columns.
        line: of the table.
    """

    name: Cell
    of: tuple[str, ...]
    cells: tuple[Cell, ...]
    line: Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Arranged:
    """A table as a page shows it.

    Args:
        first: the column of names.
        columns: the others: the main results of all groups, and then the rest.
        main: how many of `columns` are main results.
    """

    title: str
    first: Column
    columns: tuple[Column, ...]
    main: int
    lines: tuple[ArrangedLine, ...]


def arranged(table: Table) -> Arranged:
    """Arrange a table: its label columns become one, its main results come next. No cell is left out."""
    names = [column.name for column in table.columns]
    labels = [names.index(label) for label in LABELS if label in names] or [0]
    others = [index for index in range(len(names)) if index not in labels]
    if "test ppl" in names:
        others.sort(key=lambda index: _importance(names[index]))  # columns of equal importance stay in their order
    return Arranged(
        title=table.title,
        first=table.columns[labels[0]],
        columns=tuple(table.columns[index] for index in others),
        main=sum(_importance(names[index]) < len(MAIN) for index in others),
        lines=tuple(_line(line, labels, others) for line in table.lines),
    )


def _line(line: Line, labels: Sequence[int], others: Sequence[int]) -> ArrangedLine:
    return ArrangedLine(
        name=line.cells[labels[0]],
        of=tuple(text for index in labels[1:] if (text := line.cells[index].text)),
        cells=tuple(line.cells[index] for index in others),
        line=line,
    )


def _importance(name: str) -> int:
    """The place of a column: by its name, or by its beginning where a name goes on ('vs softmax')."""
    order = (*MAIN, *ALSO)
    if name in order:
        return order.index(name)
    return order.index("vs") if name.startswith("vs ") else len(order)
