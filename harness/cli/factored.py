"""Tables that say what is the same in all rows once, above the table, and not in a column."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from harness.printable import printable

Shown = Iterator[Text | Table]
COMPONENTS = ("corpus", "backbone")  # their parameters are said above the table where their names are enough in it
GAP = 2  # characters between columns
NOTHING = "-"  # a cell without a value; where all cells of a column are so, nothing is said of it


def by_name(names: Iterable[str], rows: Iterable[list[str]]) -> dict[str, list[str]]:
    """Rows of cells as columns: name -> its cells."""
    rows = list(rows)
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}


def factored(
    columns: dict[str, list[str]], title: str | None, *, kept: Collection[str], right: Collection[str]
) -> Shown:
    """A title, what is the same in all rows, and a table of the other columns.

    Args:
        kept: columns that stay although they have one value.
        right: columns of numbers.
    """
    if title is not None:
        yield Text(printable(title), style="bold")
    said, left = _split(columns, kept)
    yield from said
    yield _table(left, right)


def fitting(
    columns: dict[str, list[str]], *, kept: Collection[str], right: Collection[str], width: int | None
) -> Shown:
    """What is the same in all rows, and a table of the other columns; on a terminal only those that have room, and
    then the names of those that are left out. The kept columns are never left out.

    Args:
        kept: columns that stay although they have one value, or no room.
        right: columns of numbers.
        width: characters of the terminal; None: all columns.
    """
    said, left = _split(columns, kept)
    yield from said
    room = _room(left)
    hidden = []
    for name in reversed([name for name in left if name not in kept]):
        if width is not None and sum(room.values()) + GAP * (len(room) - 1) > width:
            del left[name], room[name]
            hidden.insert(0, name)
    yield _table(left, right, whole=[name for name in left if name not in ("head", *COMPONENTS)])
    if hidden:
        yield Text(f"no room for: {', '.join(hidden)} (a wider window and --json show them)")


def _split(columns: dict[str, list[str]], kept: Collection[str]) -> tuple[list[Text], dict[str, list[str]]]:
    """What is said above a table, and the columns that are left for it."""
    said, left = [], {}
    for name, cells in columns.items():
        distinct = dict.fromkeys(cells)
        short = {cell.partition("(")[0] for cell in distinct}
        if name not in kept and len(distinct) == 1:
            said += [_said(name, cells[0])] if cells[0] != NOTHING else []
        elif name in COMPONENTS and len(short) == len(distinct):
            said += (_said(name, cell) for cell in distinct if "(" in cell)
            left[name] = [cell.partition("(")[0] for cell in cells]
        else:
            left[name] = cells
    return said, left


def _said(name: str, value: str) -> Text:
    return Text(printable(f"{name}: {value}"))


def _room(columns: dict[str, list[str]]) -> dict[str, int]:
    return {name: max(cell_len(printable(text)) for text in (name, *cells)) for name, cells in columns.items()}


def _table(columns: dict[str, list[str]], right: Collection[str], whole: Sequence[str] = ()) -> Table:
    """A table of these columns; the cells of the `whole` ones are not broken into lines."""
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for name in columns:
        justify = "right" if name in right else "left"
        shown.add_column(name, justify=justify, overflow="fold", no_wrap=name in whole)
    for cells in zip(*columns.values(), strict=True):
        shown.add_row(*(Text(printable(cell)) for cell in cells))
    return shown
