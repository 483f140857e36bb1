"""Choose the columns of a table: those that a reader names, or the few that fit into one column of a paper."""

from collections.abc import Sequence
from dataclasses import replace

from harness.errors import RecordError
from harness.registry import nearest
from harness.report.evidence.multiple import RANK_SEEDS
from harness.report.table.content import NOTHING, Cell, Column, Line, Note, Table
from harness.report.table.verdict_marks import with_marks

LABELS = ("corpus", "backbone", "head", "quantity")  # they say what a row is, and are never left out
COMPACT = {  # a column of a compact table -> its header there
    "params": "params",
    "test ppl": "test ppl",
    "vs": "",  # as it is
    "printed test ppl": "printed",
    "train ms/batch": "ms/batch",
}
STATE = "n"  # a column of a compact table where a row has fewer seeds than planned, or too few for a verdict


def select(table: Table, columns: Sequence[str] = (), *, compact: bool = False) -> Table:
    """The table with some of its columns, without the notes on the others.

    A compact table has the columns of COMPACT, if none are named, comparisons without interval, and no column that is
    empty in all lines. What a reader needs so as not to be deceived stays: verdicts are marks of the comparisons with
    notes (verdict_marks.py), and there is a column with the number of seeds if some row lacks some.
    Args:
        columns: names as in the header: 'test ppl', or 'ptb test ppl' where the table has several corpora; (): all.
            'vs' is the comparison with the baseline.
    Raises: RecordError where the table has no such column.
    """
    if not columns and not compact:
        return table
    table = with_marks(table, LABELS) if compact else table
    labels = [index for index, column in enumerate(table.columns) if column.name in LABELS]
    if columns := _joined(table, columns):
        chosen = list(dict.fromkeys([*labels, *(index for name in columns for index in _named(table, name))]))
    else:
        kept = {*COMPACT, STATE} if _lacks_seeds(table) else set(COMPACT)
        chosen = [i for i, column in enumerate(table.columns) if i in labels or _general(column.name) in kept]
    if compact:
        chosen = [i for i in chosen if i in labels or any(line.cells[i].text != NOTHING for line in table.lines)]
    lines = [Line(cells=tuple(line.cells[i] for i in chosen), trials=line.trials) for line in table.lines]
    names = [table.columns[i].name for i in chosen]
    notes = [note for note in table.notes if not isinstance(note, Note) or note.is_about(names)]
    columns = tuple(table.columns[i] for i in chosen)
    found = replace(table, columns=columns, lines=tuple(lines), notes=tuple(notes))
    return _compact(found) if compact else found


def _lacks_seeds(table: Table) -> bool:
    """Whether a row has not finished all planned seeds, has too few of them, or has a mark in its state."""
    states = [i for i, column in enumerate(table.columns) if column.name == STATE]
    return not all(_complete(line.cells[i].text) for line in table.lines for i in states)


def _complete(state: str) -> bool:
    """Whether a state is that of a row with all planned seeds, '8/8', and with enough of them."""
    ok, _, planned = state.partition("/")
    return ok == planned and int(ok) >= RANK_SEEDS


def _joined(table: Table, parts: Sequence[str]) -> list[str]:
    """The names that a list separated by commas is of: a name may have a comma itself, 'test ppl, last epoch'."""
    known = {name for column in table.columns for name in _names(column)}
    parts, names = [part.strip() for part in parts if part.strip()], []
    while parts:
        most = next((n for n in range(len(parts), 1, -1) if ", ".join(parts[:n]) in known), 1)
        names.append(", ".join(parts[:most]))
        parts = parts[most:]
    return names


def _compact(table: Table) -> Table:
    """The table with short headers and cells."""
    columns = [replace(each, name=COMPACT.get(each.name) or each.name) for each in table.columns]
    lines = []
    for line in table.lines:
        cells = [_short(cell, column.name) for cell, column in zip(line.cells, table.columns, strict=True)]
        lines.append(replace(line, cells=tuple(cells)))
    return replace(table, columns=tuple(columns), lines=tuple(lines))


def _named(table: Table, name: str) -> list[int]:
    """The columns of a name; of several corpora, all of them."""
    found = [i for i, column in enumerate(table.columns) if name in _names(column)]
    if not found:
        known = list(dict.fromkeys(column.name for column in table.columns if column.name not in LABELS))
        raise RecordError(f"the table has no column '{name}'{nearest(name, known)} (there are: {', '.join(known)})")
    return found


def _names(column: Column) -> tuple[str, ...]:
    return column.name, column.header, _general(column.name)


def _general(name: str) -> str:
    return "vs" if name.startswith("vs ") else name


def _short(cell: Cell, column: str) -> Cell:
    """A comparison without its interval, '-1.3 % ***'; parameters in millions, '4.98M'; a time without its spread; the
    number of seeds, '1/6', without what became of the others.
    """
    if column == STATE:
        return replace(cell, text=f"{cell.text.partition(':')[0].removesuffix(cell.mark).strip()} {cell.mark}".strip())
    if cell.value is None:
        return cell
    if _general(column) == "vs":
        return replace(cell, text=f"{cell.value:+.1f} % {cell.mark}".strip(), interval=None)
    if column == "params":
        return replace(cell, text=f"{cell.value / 1e6:.2f}M")
    if column == "train ms/batch":
        return replace(cell, text=f"{cell.value:.0f} {cell.mark}".strip())
    return cell
