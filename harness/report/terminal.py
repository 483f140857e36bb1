"""The few columns of a table by which a reader knows the result, and how a terminal of 80 characters shows them.

A summary is made of the table's own cells, so its numbers and marks are those of the files.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from rich import box
from rich.cells import cell_len
from rich.table import Table as Grid
from rich.text import Text

from harness.printable import printable
from harness.report.content import MARKS, NOTHING, Cell, Column, Line, Table
from harness.report.statistics import RANK_SEEDS

FEW = "too few seeds"
UNTESTED = ("lower", "higher")  # what a change is called that was not tested
ORDER = "order, rank and vs best are of validation perplexity"
SHARED_SEEDS = "vs baseline: over the seeds that both rows have, so not the ratio of the means shown"
ROUNDED = 0.05  # percent, of a change as it is shown
NAMES = {"time": "ms/batch", "n": "seeds"}  # the key of a column -> its header here
OF_SUITE = ("test_ppl", "change", "reproduced", "time", "n")  # keys of columns, after that of the head
OF_GROUP = ("rank", "label", "test_ppl", "vs_best", "time", "n")
OF_TRUTHS = ("label", "printed", "test_ppl", "difference", "reproduced")

GAP = 2  # characters between columns
WIDTHS = (  # of columns of a summary: those that become narrower, in this order, to these widths
    *(("vs baseline", 17), ("head", 20), ("vs", 17), ("target", 28), ("printed", 10), ("seeds", 10)),
    *(("backbone", 10), ("vs", 10), ("head", 8), ("target", 12)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The short form of a table.

    Args:
        lead: the outcome in words; '' for none.
        sections: a heading, and the lines below it; '' if it is the only section.
        legend: under which conditions the rows were made, and a sentence for each mark.
    """

    title: str
    lead: str = ""
    columns: tuple[Column, ...]
    sections: tuple[tuple[str, tuple[Line, ...]], ...]
    legend: tuple[str, ...] = ()


def of_suite(table: Table) -> Summary:
    """The summary of a suite's table in the shape 'mixtures': a section for each corpus and backbone, and in words
    how a row compares with the baseline.
    """
    *grouping, head = (at for at, column in enumerate(table.columns) if column.key == "label")
    kept = [head, *_places(table, OF_SUITE)]
    groups = groupby(table.lines, lambda line: ", ".join(line.cells[at].text for at in grouping))
    known = [(heading, list(lines)) for heading, lines in groups]
    said = [(heading, tuple(_said(line, table, kept) for line in lines)) for heading, lines in known]
    columns = tuple(
        replace(column, name="vs baseline", numeric=False) if column.key == "change" else column
        for column in _columns(table, kept)
    )
    legend = (*filter(None, [table.conditions]), *_legend(said))
    if any(_differs(line, lines, table) for _, lines in known for line in lines):
        legend += (SHARED_SEEDS,)
    return Summary(title=table.title, lead=table.lead, columns=columns, sections=tuple(said), legend=legend)


def of_group(table: Table) -> Summary:
    """The summary of a table of the leaderboard, which compares with the row of rank 1. A backbone that all rows have
    stands in the title.
    """
    kept = _places(table, OF_GROUP)
    texts = {
        at: list(dict.fromkeys(line.cells[at].text for line in table.lines)) for at in _places(table, ["label"])[1:]
    }
    shared = {at: found[0] for at, found in texts.items() if len(found) == 1}
    made = _plain(table, [at for at in kept if at not in shared])
    return replace(made, title=", ".join([table.title, *shared.values()]), legend=(*made.legend, ORDER))


def of_truths(table: Table) -> Summary:
    """The summary of the table of ground truths."""
    return _plain(table, _places(table, OF_TRUTHS))


def _places(table: Table, keys: Sequence[str]) -> list[int]:
    """The places of the columns of some keys, in the order of the keys."""
    return [at for key in keys for at, column in enumerate(table.columns) if column.key == key]


def _plain(table: Table, kept: Sequence[int]) -> Summary:
    """Some columns of a table, in one section."""
    lines = tuple(_with(line, table, kept, {}) for line in table.lines)
    sections = (("", lines),)
    return Summary(
        title=table.title,
        lead=table.lead,
        columns=tuple(_columns(table, kept)),
        sections=sections,
        legend=_legend(sections),
    )


def _columns(table: Table, kept: Sequence[int]) -> list[Column]:
    columns = [table.columns[at] for at in kept]
    return [replace(column, name=NAMES.get(column.key, column.name), group="") for column in columns]


def _legend(sections: Sequence[tuple[str, Sequence[Line]]]) -> tuple[str, ...]:
    texts = [cell.text for _, lines in sections for line in lines for cell in line.cells]
    legend = [f"{mark} {meaning}" for mark, meaning in MARKS.items() if any(mark in text.split() for text in texts)]
    if any(text.endswith(UNTESTED) for text in texts):
        legend.append(f"{' and '.join(UNTESTED)}: without a verdict, which needs {RANK_SEEDS} seeds or more")
    return tuple(legend)


def _of(line: Line, table: Table) -> dict[str, Cell]:
    return {column.key: cell for column, cell in zip(table.columns, line.cells, strict=True) if column.key}


def _said(line: Line, table: Table, kept: Sequence[int]) -> Line:
    """A line with its comparison in words, if it has one."""
    cells = _of(line, table)
    return _with(line, table, kept, {"change": _in_words(line, cells)} if "change" in cells else {})


def _with(line: Line, table: Table, kept: Sequence[int], instead: dict[str, Cell]) -> Line:
    """Some cells of a line, its times without their spread."""
    if (time := _of(line, table).get("time")) is not None:
        instead = {"time": time.without_spread(1), **instead}
    return replace(line, cells=tuple(instead.get(table.columns[at].key, line.cells[at]) for at in kept))


def _in_words(line: Line, cells: dict[str, Cell]) -> Cell:
    """'3.2 % better', '3.2 % lower' (untested), 'equivalent -0.1 %', 'undecided: seeds failed', 'baseline'.

    That a row is collapsed or not converged is said by the mark of its perplexity.
    """
    change, verdict = cells["change"].value, cells["verdict"].text if "verdict" in cells else NOTHING
    if change is None:
        return Cell(text="baseline" if line.is_baseline else NOTHING)
    word = verdict.partition(",")[0]
    if word in ("better", "worse"):
        return Cell(text=f"{abs(change):.1f} % {word}")
    if verdict == FEW:
        return Cell(text=f"{abs(change):.1f} % {UNTESTED[change > 0]}")
    return Cell(text=f"{word} {change:+.1f} %")


def _differs(line: Line, group: Sequence[Line], table: Table) -> bool:
    """Whether the change that a line shows is not that of the means shown, as far as its digits say."""
    cells = _of(line, table)
    base = next((_of(each, table)["test_ppl"].value for each in group if each.is_baseline), None)
    if base is None or cells["change"].value is None or cells["test_ppl"].value is None:
        return False
    return abs(100 * (cells["test_ppl"].value / base - 1) - cells["change"].value) > ROUNDED


def short_table(summary: Summary, width: int) -> Grid:
    """The summary of a table with at most so many characters a line: long names, verdicts and states go on in further
    lines.
    """
    drawn = Grid(
        title=Text("\n").join([_text(summary.title), *([_text(summary.lead, "bold")] if summary.lead else [])]),
        title_justify="left",
        caption=Text("\n").join(map(_text, ("", *summary.legend))) if summary.legend else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, GAP - 1, 0, 0),
        pad_edge=False,
    )
    for column, room in zip(summary.columns, _widths(summary, width), strict=True):
        justify = "right" if column.numeric else "left"
        drawn.add_column(_text(column.name), justify=justify, width=room, overflow="fold")
    for heading, lines in summary.sections:
        if heading:
            drawn.add_section()
            drawn.add_row(_text(heading, "bold"))
        for line in lines:
            drawn.add_row(*(_text(cell.text, "bold" if cell.rank == "best" else "") for cell in line.cells))
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
    for name, least in WIDTHS:
        excess = sum(widths) + GAP * (len(widths) - 1) - width
        for index in [at for at, each in enumerate(names) if each.startswith(name) and excess > 0]:
            widths[index] -= max(0, min(excess, widths[index] - least))
    return widths


def _text(text: str, style: str = "") -> Text:
    """A text as it is: not read as markup, and with its control characters replaced."""
    return Text(printable(text), style=style)
