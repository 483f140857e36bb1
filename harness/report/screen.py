"""How a terminal shows things: one form of table, and texts that are read as nothing but text."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from harness.printable import printable
from harness.report import content

GAP = 2  # characters between columns
NOTHING = "-"  # a cell without a value; where all cells of a column are so, nothing is said of it
LONG = 24  # characters: cells that are longer may go on in a further line
PERPLEXITY = ("test_ppl",)  # keys of columns
WHOLE = (*PERPLEXITY, "vs_best", "train_ms_per_batch", "rank", "difference")  # keys of those that do not

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
    cells = {name: [row[index] for row in rows] for index, name in enumerate(columns)}
    same = {name: of[0] for name, of in cells.items() if name not in keep and len(set(of)) == 1}
    left = {name: of for name, of in cells.items() if name not in same}
    if title is not None:
        yield Text(printable(title), style="bold")
    if said := [f"{name}: {value}" for name, value in same.items() if value != NOTHING]:
        yield text("; ".join(said))
    room = {name: max(cell_len(printable(each)) for each in (name, *of)) for name, of in left.items()}
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


def short(of: content.Table, width: int) -> Table:
    """The summary of a table (harness.report.layouts) with at most so many characters a line. Where there is no room,
    perplexities have no spread, then numbers of seeds that all rows have are left out, or else changes have no
    interval (on the leaderboard they keep it); then names, verdicts and states go on in further lines.
    """
    last = PERPLEXITY if "vs_best" in (column.key for column in of.columns) else ("change",)
    ways = [(of, ()), (of, PERPLEXITY), (_without_shared_seeds(of), PERPLEXITY)]
    of, left_out = next((way for way in ways if _width(*way) <= width), (of, last))
    names = [column.name for column in of.columns]
    sections = [(heading, list(lines)) for heading, lines in groupby(of.lines, lambda line: line.section)]
    drawn = grid(
        names,
        (),
        right=[column.name for column in of.columns if column.numeric],
        whole=[column.name for column in of.columns if column.key in WHOLE],
        title=Text("\n").join([text(of.title), *([text(of.lead, "bold")] if of.lead else [])]),
        caption=Text("\n").join(map(text, ("", *of.notes))) if of.notes else None,
    )
    for heading, lines in sections:
        if heading:
            drawn.add_section()
            drawn.add_row(text(heading, "bold"))
        for line in lines:
            texts = _texts(line, of, left_out)
            bold = ["bold" if cell.rank == "best" else "" for cell in line.cells]
            drawn.add_row(*map(text, texts, bold))
    return drawn


def _without_shared_seeds(of: content.Table) -> content.Table:
    """The table without the column of seeds, if all rows have the same: the conditions below the table name them."""
    texts = [{line.cells[place].text for line in of.lines} for place in range(len(of.columns))]
    kept = [place for place, column in enumerate(of.columns) if column.key != "n" or len(texts[place]) > 1]
    lines = [replace(line, cells=tuple(line.cells[place] for place in kept)) for line in of.lines]
    return replace(of, columns=tuple(of.columns[place] for place in kept), lines=tuple(lines))


def _texts(line: content.Line, of: content.Table, left_out: Collection[str]) -> list[str]:
    """The texts of a line; in the columns of these keys without the interval or the spread."""
    found = []
    for cell, column in zip(line.cells, of.columns, strict=True):
        short = (cell.short or cell.text) if column.key == "change" else cell.without_spread(2).text
        found.append(short if column.key in left_out else cell.text)
    return found


def _width(of: content.Table, left_out: Collection[str]) -> int:
    """The characters of a line that has room for all cells."""
    lines = [[column.name for column in of.columns], *(_texts(line, of, left_out) for line in of.lines)]
    widths = [max(cell_len(printable(each)) for each in column) for column in zip(*lines, strict=True)]
    return sum(widths) + GAP * (len(widths) - 1)


def text(of: str, style: str = "") -> Text:
    """A text as it is: not read as markup, and with its control characters replaced."""
    return Text(printable(of), style=style)


def lines(of: str) -> Text:
    """The same of a text of several lines."""
    return Text("\n").join(map(text, of.split("\n")))


def span(minutes: float) -> str:
    """'2 h 05 min', '5.2 min'."""
    return f"{minutes:.1f} min" if minutes < 60 else f"{int(minutes // 60)} h {int(minutes % 60):02} min"
