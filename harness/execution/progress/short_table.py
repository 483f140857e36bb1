"""The summary of a table as a terminal shows it."""

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from harness.printable import printable
from harness.report.table.content import Cell
from harness.report.table.short_form import Summary

GAP = 2  # characters between columns
WHOLE = ("K", "test ppl", "ms/batch", "rank")  # columns whose cells are not broken into lines
SHRUNK = (  # in this order, to these widths
    *(("vs", 17), ("head", 20), ("target", 28), ("printed", 10), ("seeds", 10), ("backbone", 10), ("vs", 10)),
    *(("head", 8), ("target", 12)),
)


def short_table(summary: Summary, width: int) -> Table:
    """A table of at most so many characters: long names, verdicts and states go on in further lines."""
    drawn = Table(
        title=_shown(summary.title),
        title_justify="left",
        caption=Text("\n").join(map(_shown, ("", *summary.legend))) if summary.legend else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, GAP - 1, 0, 0),
        pad_edge=False,
    )
    for column, room in zip(summary.columns, _widths(summary, width), strict=True):
        justify = "right" if column.numeric else "left"
        drawn.add_column(_shown(column.name), justify=justify, width=room, overflow="fold")
    for heading, lines in summary.sections:
        if heading:
            drawn.add_section()
            drawn.add_row(Text(printable(heading), style="bold"))
        for line in lines:
            drawn.add_row(*map(_cell, line.cells))
    return drawn


def _widths(summary: Summary, width: int) -> list[int]:
    """The width of each column: that of its widest text, or less where all of them have no room."""
    names = [column.name for column in summary.columns]
    texts = [[name] for name in names]
    for heading, lines in summary.sections:
        if heading:
            texts[names.index("head")].append(heading)
        for line in lines:
            for column, cell in zip(texts, line.cells, strict=True):
                column.append(cell.text)
    widths = [max(cell_len(printable(text)) for text in column) for column in texts]
    for name, least in SHRUNK:
        excess = sum(widths) + GAP * (len(widths) - 1) - width
        for index in [at for at, each in enumerate(names) if each.split()[0] == name and excess > 0]:
            widths[index] -= max(0, min(excess, widths[index] - least))
    return widths


def _cell(cell: Cell) -> Text:
    return Text(printable(cell.text), style="bold" if cell.rank == "best" else "")


def _shown(text: str) -> Text:
    """A text as it is: not read as markup, and with its control characters replaced."""
    return Text(printable(text))
