"""Choose the columns and notes of a table: the few of the default form, all, or those that a reader names."""

import re
from collections.abc import Container, Sequence
from dataclasses import replace

from harness.errors import RecordError
from harness.printable import counted
from harness.registry import nearest
from harness.report.table.content import MARKS, NOTHING, Cell, Column, Line, Note, Table

MOST = 8  # kinds of columns of the default form
ORDER = ("label", "test_ppl", "change", "verdict", "n", "printed", "reproduced", "tuned", "time", "params", "quantity")
MOST_NOTES = 5  # of the default form
LINK = "What columns, marks and tests mean: harness docs tables, harness docs statistics."
STARS = "p below 0.05 (*), 0.01 (**), 0.001 (***), corrected"


def select(table: Table, columns: Sequence[str] = (), *, wide: bool = False, compact: bool = False) -> Table:
    """The table with some of its columns, and the notes on these.

    Args:
        columns: names as in the header: 'test ppl', or 'ptb test ppl' where the table has several corpora; 'vs' is the
            comparison with the baseline; (): those of the default form, the MOST first ones of ORDER.
        wide: all columns and notes.
        compact: for one column of a paper: changes without interval, parameters in millions, times without spread.
    Raises: RecordError where the table has no such column.
    """
    if columns := _joined(table, columns):
        labels = [index for index, column in enumerate(table.columns) if column.key == "label"]
        found = _of(
            table, list(dict.fromkeys([*labels, *(index for name in columns for index in _named(table, name))]))
        )
    else:
        found = table if wide else _default(table)
    return _short(found) if compact else found


def _default(table: Table) -> Table:
    keys = {column.key: None for column in table.columns if column.key in ORDER}
    labels = len({column.name for column in table.columns if column.key == "label"})
    kept = sorted(keys, key=ORDER.index)[: MOST + 1 - max(labels, 1)]
    chosen = [index for index, column in enumerate(table.columns) if not keys or column.key in kept]
    lines = tuple(line for line in table.lines if line.is_main)
    found = _of(replace(table, lines=lines), chosen)
    conditions = [table.conditions] if table.conditions else []
    marks = legend(found)
    room = MOST_NOTES - len(conditions) - len(marks) - 1
    known = [note for note in found.notes if isinstance(note, Note)]
    said = [note for level in ("warning", "reading") for note in known if note.level == level][:room]
    hidden, more = len(table.columns) - len(chosen), len(table.notes) - len(said)
    rest = [counted(hidden, "more column")] * bool(hidden) + [counted(more, "more note")] * bool(more)
    where = f"{' and '.join(rest)}: harness table {table.suite} --wide. " if rest else ""
    return replace(found, notes=(*conditions, *said, *marks, f"{where}{LINK}"))


def legend(table: Table) -> list[str]:
    """What the marks in the cells of a table mean, in one line; [] without marks."""
    used = {part for line in table.lines for cell in line.cells for part in cell.text.split()}
    found = [f"{mark} {meaning}" for mark, meaning in MARKS.items() if mark in used]
    found += [STARS] if any(set(part) == {"*"} for part in used) else []
    return [f"{'; '.join(found)}."] if found else []


def _of(table: Table, chosen: Sequence[int]) -> Table:
    """The table with the columns of some indices, and the notes on these."""
    lines = [replace(line, cells=tuple(line.cells[index] for index in chosen)) for line in table.lines]
    names = [table.columns[index].name for index in chosen]
    notes = tuple(note for note in table.notes if not isinstance(note, Note) or note.is_about(names))
    return replace(table, columns=tuple(table.columns[index] for index in chosen), lines=tuple(lines), notes=notes)


def _joined(table: Table, parts: Sequence[str]) -> list[str]:
    """The names that a list separated by commas is of: a name may have a comma itself, 'test ppl, last epoch'."""
    known = {name for column in table.columns for name in _names(column)}
    parts, names = [part.strip() for part in parts if part.strip()], []
    while parts:
        most = next((n for n in range(len(parts), 1, -1) if ", ".join(parts[:n]) in known), 1)
        names.append(", ".join(parts[:most]))
        parts = parts[most:]
    return names


def _named(table: Table, name: str) -> list[int]:
    """The columns of a name; of several corpora, all of them."""
    found = [i for i, column in enumerate(table.columns) if name in _names(column)]
    if not found:
        known = list(dict.fromkeys(column.name for column in table.columns if column.key != "label"))
        raise RecordError(f"the table has no column '{name}'{nearest(name, known)} (there are: {', '.join(known)})")
    return found


def _names(column: Column) -> Container[str]:
    return column.name, column.header, "vs" if column.key == "change" else column.name


def _short(table: Table) -> Table:
    """The table with short cells, without columns that are empty in all lines."""
    filled = [i for i in range(len(table.columns)) if any(line.cells[i].text != NOTHING for line in table.lines)]
    table = _of(table, filled)
    lines: list[Line] = []
    for line in table.lines:
        cells = [_shortened(cell, column.key) for cell, column in zip(line.cells, table.columns, strict=True)]
        lines.append(replace(line, cells=tuple(cells)))
    return replace(table, lines=tuple(lines))


def _shortened(cell: Cell, key: str) -> Cell:
    """'-1.3 % ***' for a comparison, '4.98M' for parameters, '63 (4.6x)' for a time, '1/6' for the state of a row."""
    if key == "n":
        return replace(cell, text=f"{cell.text.partition(':')[0].removesuffix(cell.mark).strip()} {cell.mark}".strip())
    if cell.value is None:
        return cell
    if key == "change":
        return replace(cell, text=f"{cell.value:+.1f} % {cell.mark}".strip(), interval=None)
    if key == "params":
        return replace(cell, text=f"{cell.value / 1e6:.2f}M")
    if key == "time":
        return replace(cell, text=f"{cell.value:.0f}{re.sub('^[^ (]+( ± [^ (]+)?', '', cell.text)}")
    return cell
