"""Verdicts as marks of the comparisons and notes below the table, for a table without a column for them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.report.table.content import Cell, Line, Note, Table
from harness.report.table.short_form import AGAINST

NO_VERDICT_MARK = "?"  # too few seeds, or undecided
EQUIVALENT_MARK = "="
EQUIVALENT = (
    f"{EQUIVALENT_MARK} equivalent: the difference is smaller than the smallest one of interest, also where stars say "
    "that there is one."
)


def with_marks(table: Table, labels: Sequence[str]) -> Table:
    """The table with a mark behind each comparison that has no verdict or is equivalent, and notes with the reasons.
    What is better or worse has its stars.

    Args:
        labels: the names of the columns that say what a row is.
    """
    pairs = dict(_pairs(table))  # index of a comparison -> index of its verdict
    reasons: dict[str, list[str]] = {}  # a verdict -> the rows that have it
    lines = []
    for line in table.lines:
        cells = list(line.cells)
        for at, verdict_at in pairs.items():
            verdict = cells[verdict_at].text
            if mark := _mark(verdict):
                cells[at] = _marked(cells[at], mark)
                names = [
                    _plain(cell) for cell, column in zip(cells, table.columns, strict=True) if column.name in labels
                ]
                reasons.setdefault(verdict, []).append(", ".join([*names, table.columns[at].group]).removesuffix(", "))
        lines.append(Line(cells=tuple(cells), trials=line.trials))
    notes = [Note(_note(verdict, rows), (AGAINST,)) for verdict, rows in reasons.items()]
    return replace(table, lines=tuple(lines), notes=(*notes, *table.notes))


def _pairs(table: Table) -> Iterator[tuple[int, int]]:
    """The comparison and the verdict of each corpus that has columns of its own."""
    verdicts = {column.group: index for index, column in enumerate(table.columns) if column.name == "verdict"}
    for index, column in enumerate(table.columns):
        if column.name.startswith(AGAINST) and column.group in verdicts:
            yield index, verdicts[column.group]


def _mark(verdict: str) -> str:
    if verdict == "equivalent":
        return EQUIVALENT_MARK
    return NO_VERDICT_MARK if verdict.startswith(("too few", "undecided")) else ""


def _marked(cell: Cell, mark: str) -> Cell:
    return replace(cell, text=f"{cell.text} {mark}", mark=f"{cell.mark} {mark}".strip())


def _plain(cell: Cell) -> str:
    return cell.text.removesuffix(cell.mark).strip()


def _note(verdict: str, rows: list[str]) -> str:
    """'? too few seeds: mos(num_mixtures=2); mfs.'"""
    if _mark(verdict) == EQUIVALENT_MARK:
        return EQUIVALENT
    return f"{NO_VERDICT_MARK} {verdict}: {'; '.join(rows)}."
