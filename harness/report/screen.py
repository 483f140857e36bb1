"""How a terminal shows things: one form of table, and texts that are read as nothing but text."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from harness.printable import printable
from harness.report import content

GAP = 2  # characters between columns
NOTHING = "-"  # a cell without a value; where all cells of a column are so, nothing is said of it
LONG = 24  # characters: cells that are longer may go on in a further line
WHOLE = ("test_ppl", "vs_best", "train_ms_per_batch", "rank", "difference")  # keys of columns whose cells do not

Shown = Iterator[Text | Table]


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    keep: Collection[str] = (),
    right: Collection[str] = (),
    width: int | None = None,
    title: str | None = None,
) -> Shown:
    """A title, in one line what is the same in all rows, and a table of the other columns; where a width is given, only
    of those that have room, and the names of the others.

    Args:
        keep: columns that stay although they have one value, or no room.
        width: characters of the terminal; None: all columns.
    """
    rows = list(rows)
    cells = {}
    for index, name in enumerate(columns):
        cells[name] = [row[index] for row in rows]
    same = {name: of[0] for name, of in cells.items() if name not in keep and len(set(of)) == 1}
    left = {name: of for name, of in cells.items() if name not in same}
    if title is not None:
        yield Text(printable(title), style="bold")
    if said := [f"{name}: {value}" for name, value in same.items() if value != NOTHING]:
        yield text("; ".join(said))
    room = {name: _room((name, *of)) for name, of in left.items()}
    hidden = []
    for name in reversed([name for name in left if name not in keep]):
        if width is not None and sum(room.values()) + GAP * (len(room) - 1) > width:
            del left[name], room[name]
            hidden.insert(0, name)
    yield grid(left, zip(*left.values(), strict=True), right=right, whole=[name for name in room if room[name] <= LONG])
    if hidden:
        yield Text(f"no room for: {', '.join(hidden)} (a wider window and --json show them)")


def grid(
    columns: Iterable[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    right: Collection[str] = (),
    whole: Collection[str] = (),
    title: str | Text | None = None,
    caption: Text | None = None,
) -> Table:
    """A table as it is; cells are texts, and those of the `whole` columns are not broken into lines."""
    look = {"box": box.SIMPLE_HEAD, "show_edge": False, "pad_edge": False, "padding": (0, GAP - 1, 0, 0)}
    above = text(title) if isinstance(title, str) else title
    shown = Table(title=above, title_justify="left", caption=caption, caption_justify="left", **look)
    for name in columns:
        justify = "right" if name in right else "left"
        shown.add_column(text(name), justify=justify, overflow="fold", no_wrap=name in whole)
    for row in rows:
        shown.add_row(*(cell if isinstance(cell, Text) else text(cell) for cell in row))
    return shown


def _room(column: Iterable[str]) -> int:
    return max(cell_len(printable(each)) for each in column)


def short(of: content.Table, width: int) -> Table:
    """The summary of a table (harness.report.layouts) with at most so many characters a line. Where there is no room,
    changes have no interval; then names, verdicts and states go on in further lines.
    """
    names = [column.name for column in of.columns]
    rows = []
    for line in of.lines:
        rows.append([cell.text for cell in line.cells])
    room = [_room(column) for column in zip(names, *rows, strict=True)]
    if sum(room) + GAP * (len(room) - 1) > width:
        for place, column in enumerate(of.columns):
            if column.key == "change":
                for row, line in zip(rows, of.lines, strict=True):
                    row[place] = line.cells[place].short or row[place]
    drawn = grid(
        names,
        (),
        right=[column.name for column in of.columns if column.numeric],
        whole=[column.name for column in of.columns if column.key in WHOLE],
        title=Text("\n").join([text(of.title), *([text(of.lead, "bold")] if of.lead else [])]),
        caption=Text("\n").join(map(text, ("", *of.notes))) if of.notes else None,
    )
    section = ""
    for row, line in zip(rows, of.lines, strict=True):
        if line.section != section:
            section = line.section
            drawn.add_section()
            drawn.add_row(text(section, "bold"))
        drawn.add_row(
            *(text(each, "bold" if cell.rank == "best" else "") for each, cell in zip(row, line.cells, strict=True))
        )
    return drawn


def text(of: str, style: str = "") -> Text:
    """A text as it is: not read as markup, and with its control characters replaced."""
    return Text(printable(of), style=style)


def lines(of: str) -> Text:
    """The same of a text of several lines."""
    return Text("\n").join(map(text, of.split("\n")))


def span(minutes: float) -> str:
    """'2 h 05 min', '5.2 min'."""
    return f"{minutes:.1f} min" if minutes < 60 else f"{int(minutes // 60)} h {int(minutes % 60):02} min"
