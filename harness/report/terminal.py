"""The few columns of a table by which a reader knows the result, for a terminal of 80 characters.

A summary is made of the table's own cells, so its numbers and marks are those of the files.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from harness.report.content import MARKS, NOTHING, Cell, Column, Line, Table
from harness.report.statistics import RANK_SEEDS

AGAINST = "vs "  # how the header of a comparison begins, before the name of the baseline
FEW = "too few seeds"
UNTESTED = ("lower", "higher")  # what a change is called that was not tested
ORDER = "the order is that of validation perplexity"
SHARED_SEEDS = "vs baseline: over the seeds that both rows have, so not the ratio of the means shown"
ROUNDED = 0.05  # percent, of a change as it is shown
NAMES = {"train ms/batch": "ms/batch", "n": "seeds", "test ppl": "test ppl"}  # header in a table -> here
KEPT = ("head", "test ppl", "reproduced", "train ms/batch", "n")
OF_GROUP = ("rank", "head", "backbone", "K", "test ppl", "vs best", "train ms/batch", "seeds")
OF_TRUTHS = ("target", "printed", "ours", "difference", "reproduced")
GROUPING = ("corpus", "backbone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The short form of a table.

    Args:
        lead: the outcome in words; '' for none.
        sections: a heading, and the lines below it; '' if it is the only section.
        legend: a sentence for each mark in it.
    """

    title: str
    lead: str = ""
    columns: tuple[Column, ...]
    sections: tuple[tuple[str, tuple[Line, ...]], ...]
    legend: tuple[str, ...]


def of_suite(table: Table) -> Summary:
    """The summary of a suite's table in the shape 'mixtures': its comparison with the baseline in words."""
    names = [column.name for column in table.columns]
    against = next((name for name in names if name.startswith(AGAINST)), None)
    kept = [name for name in KEPT if name in names]
    if against is not None:
        kept.insert(kept.index("test ppl") + 1, against)
    grouping = [name for name in GROUPING if name in names]
    sections = []
    for heading, lines in groupby(
        table.lines, lambda line: ", ".join(_of(line, names)[name].text for name in grouping)
    ):
        sections.append((heading, tuple(_line(line, names, kept, against) for line in lines)))
    made = _summary(table, kept, sections)
    differs = against is not None and any(_differs(line, table.lines, names, against) for line in table.lines)
    return replace(made, legend=(*made.legend, SHARED_SEEDS)) if differs else made


def of_group(table: Table) -> Summary:
    """The summary of a table of the leaderboard, which compares with the row of rank 1."""
    names = [column.name for column in table.columns]
    kept = [name for name in OF_GROUP if name in names]
    made = _summary(table, kept, [("", tuple(_line(line, names, kept, None) for line in table.lines))])
    return replace(made, legend=(*made.legend, ORDER))


def of_truths(table: Table) -> Summary:
    """The summary of the table of ground truths."""
    names = [column.name for column in table.columns]
    lines = [_line(line, names, OF_TRUTHS, None) for line in table.lines]
    return _summary(table, OF_TRUTHS, [("", tuple(lines))])


def _differs(line: Line, lines: Sequence[Line], names: Sequence[str], against: str) -> bool:
    """Whether the change that a line shows is not that of the means shown, as far as its digits say."""
    cells = _of(line, names)
    others = (_of(each, names) for each in lines)
    group = [name for name in GROUPING if name in names]
    base = next(
        (
            each["test ppl"].value
            for each in others
            if _is_baseline(each, against) and all(each[name].text == cells[name].text for name in group)
        ),
        None,
    )
    change, ours = cells[against].value, cells["test ppl"].value
    if ours is None or base is None or "%" not in _in_words(cells, against).text:
        return False
    return abs(100 * (ours / base - 1) - change) > ROUNDED


def _is_baseline(cells: dict[str, Cell], against: str) -> bool:
    head = cells["head"].text.removesuffix(cells["head"].mark).strip()
    return head == against.removeprefix(AGAINST)


def _summary(table: Table, kept: Sequence[str], sections: list[tuple[str, tuple[Line, ...]]]) -> Summary:
    numeric = {column.name: column.numeric and not column.name.startswith(AGAINST) for column in table.columns}
    columns = tuple(Column(name=_header(name), numeric=numeric[name]) for name in kept)
    texts = [cell.text for _, lines in sections for line in lines for cell in line.cells]
    legend = [f"{mark} {meaning}" for mark, meaning in MARKS.items() if any(mark in text.split() for text in texts)]
    if any(text.endswith(UNTESTED) for text in texts):
        legend.append(f"{' and '.join(UNTESTED)}: without a verdict, which needs {RANK_SEEDS} seeds or more")
    return Summary(title=table.title, lead=table.lead, columns=columns, sections=tuple(sections), legend=tuple(legend))


def _header(name: str) -> str:
    """The header of a column here. Which row is the baseline is said in its cell."""
    return "vs baseline" if name.startswith(AGAINST) and name not in OF_GROUP else NAMES.get(name, name)


def _of(line: Line, names: Sequence[str]) -> dict[str, Cell]:
    return dict(zip(names, line.cells, strict=True))


def _line(line: Line, names: Sequence[str], kept: Sequence[str], against: str | None) -> Line:
    cells = _of(line, names)
    if against is not None:
        cells[against] = _in_words(cells, against)
    if (time := cells.get("train ms/batch")) is not None and time.value is not None:
        times = "" if time.ratio is None else f" ({time.ratio:.1f}x)"
        cells["train ms/batch"] = Cell(text=f"{time.value:,.1f}{times} {time.mark}".strip())
    return Line(cells=tuple(cells[name] for name in kept), trials=line.trials)


def _in_words(cells: dict[str, Cell], against: str) -> Cell:
    """'3.2 % better', '3.2 % lower' (untested), 'equivalent -0.1 %', 'undecided: seeds failed', 'baseline'.

    That a row is collapsed or not converged is said by the mark of its perplexity.
    """
    change, verdict = cells[against].value, cells["verdict"].text if "verdict" in cells else NOTHING
    if change is None:
        return Cell(text="baseline" if _is_baseline(cells, against) else NOTHING)
    word = verdict.partition(",")[0]
    if word in ("better", "worse"):
        return Cell(text=f"{abs(change):.1f} % {word}")
    if verdict == FEW:
        return Cell(text=f"{abs(change):.1f} % {UNTESTED[change > 0]}")
    return Cell(text=f"{word} {change:+.1f} %")
