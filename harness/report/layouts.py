"""The three layouts of a table, and the columns and notes that a form of it shows.

A summary is a table, too: a terminal's few columns, with the numbers and marks of the whole table's cells.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from harness.errors import RecordError
from harness.plan.suite_file import Shape
from harness.printable import counted
from harness.registry import nearest
from harness.report.columns import EMPTY, UNTESTED, Quantity, quantities
from harness.report.content import (
    NOTHING,
    OUTDATED_MARK,
    Cell,
    Column,
    Line,
    Note,
    Table,
    legend,
    meanings,
)
from harness.report.findings import Findings
from harness.report.grouping import grouped
from harness.report.row_facts import RowFacts, of_head, reduction
from harness.report.statistics import RANK_SEEDS

MAX_NAME = 30  # of a corpus, as a header or in many lines
OF_THE_MODEL = ("counts", "size", "cost")
MOST = 8  # kinds of columns of the default form
ORDER = (
    *("label", "test_ppl", "change", "verdict", "n", "printed", "reproduced", "tuned", "train_ms_per_batch"),
    *("params_total", "test_bits_per_byte", "quantity"),
)
MOST_NOTES = 6  # of the default form
LINK = "What columns, marks and tests mean: harness docs tables, harness docs statistics."

DIGITS = {"test_ppl": 2, "train_ms_per_batch": 1}  # of numbers in a summary, by the key of their column
NAMES = {"train_ms_per_batch": "ms/batch", "n": "seeds"}  # the key of a column -> its header in a summary
OF_SUITE = ("test_ppl", "change", "reproduced", "train_ms_per_batch", "n")  # keys of columns, after that of the head


Layout = tuple[list[Column], list[Line], list[str]]  # columns, lines, and notes on the layout


def lay_out(findings: Findings, shape: Shape) -> Layout:
    """Arrange the rows of a suite."""
    if not findings.lines:
        return [], [], []  # no row is tuned yet
    return _SHAPES[shape](findings, quantities(findings))


def _one_size(rows: Iterable[RowFacts]) -> bool:
    """Whether a backbone and head have the same number of parameters on every corpus."""
    models = {(row.backbone, row.head, row.params_total, row.params_head) for row in rows}
    return len(models) == len({each[:2] for each in models})


def _mixtures(findings: Findings, said: list[Quantity]) -> Layout:
    """As table 2 of Benka et al.: a line for each corpus, backbone and head, with its number of softmaxes."""
    lines = findings.lines
    labels = _labels(lines, ("corpus", "backbone", "head"))
    kept = _kept([each for each in said if each.column.name not in ("#I", "#P")], lines)
    columns = [*labels, *(replace(each.column, name="K") if each.kind == "counts" else each.column for each in kept)]
    laid = [
        Line(
            cells=(*(_label([row], column.name) for column in labels), *(each.cells[row] for each in kept)),
            trials=tuple(trial.id for trial in row.trials),
        )
        for row in lines
    ]
    return columns, laid, []


def _heads(findings: Findings, said: list[Quantity]) -> Layout:
    """As table 1 of the multi-facet poster: a line for each backbone and head, with its quality on each corpus.

    Size and cost are shown once, for the first corpus, if the size is the same on all corpora.
    """
    lines = findings.lines
    labels = _labels(lines, ("backbone", "head"))
    names, notes = _short_names(lines)
    corpora = list(names.values())
    of_corpus = {name: [row for row in lines if names[row.corpus] == name] for name in corpora}
    first = of_corpus[corpora[0]]
    leading = OF_THE_MODEL if len(corpora) == 1 or _one_size(lines) else ("counts",)
    blocks = [("", first, _kept([each for each in said if each.kind in leading], first))]
    for name, rows in of_corpus.items():
        kept = _kept([each for each in said if each.kind not in leading], rows)
        blocks.append((name if len(corpora) > 1 else "", rows, kept))
    columns = [*labels, *(replace(each.column, group=group) for group, _, kept in blocks for each in kept)]
    laid = [
        Line(
            cells=(
                *(_label([rows[place] for rows in of_corpus.values()], column.name) for column in labels),
                *(each.cells[rows[place]] for _, rows, kept in blocks for each in kept),
            ),
            trials=tuple(trial.id for rows in of_corpus.values() for trial in rows[place].trials),
        )
        for place in range(len(first))
    ]
    if len(corpora) > 1 and "cost" in leading:
        notes.append(Note(f"Times and memory are of {corpora[0]}.", "time", "memory", level="reading"))
    return columns, laid, notes


def _corpora(findings: Findings, said: list[Quantity]) -> Layout:
    """As table 1 of Benka et al.: a line for each corpus, backbone and quantity; a column for each head, with its
    reduction against the baseline.
    """
    rows = findings.lines
    names, notes = _short_names(rows)
    labels = _labels(rows, ("backbone",))
    groups = {  # corpus and backbone -> head -> its row
        group: {row.head: row for row in alike} for group, alike in grouped((row.group, row) for row in rows).items()
    }
    heads = dict.fromkeys(row.head for row in rows)
    baseline = next((row.head for row in of_head(rows, findings.evidence.suite.table.baseline)), None)
    reduced = {head for row_of in groups.values() if baseline in row_of for head in row_of} - {baseline}
    columns = [Column(name="corpus", key="label"), *labels, Column(name="quantity", key="label")]
    for head in heads:
        name = _label([row_of[head] for row_of in groups.values() if head in row_of], "head").text
        columns.append(Column(name="", numeric=True, group=name, spread="spread", key="quantity"))
        if head in reduced:
            reduction_of = {"name": "reduction", "group": name, "topics": ("comparison",)}
            columns.append(Column(**reduction_of, numeric=True, key="quantity"))
    laid = []
    for row_of in groups.values():
        first = next(iter(row_of.values()))
        for each in _kept([one for one in said if one.kind != "counts"], row_of.values()):
            cells = [Cell(text=names[first.corpus]), *(_label([first], column.name) for column in labels)]
            cells.append(Cell(text=each.column.name))
            for head in heads:
                row = row_of.get(head)
                cells.append(EMPTY if row is None else each.cells[row])
                if head in reduced:
                    cells.append(EMPTY if row is None else _reduction(row, row_of.get(baseline), each.metric))
            trials = tuple(trial.id for row in row_of.values() for trial in row.trials)
            laid.append(Line(cells=tuple(cells), trials=trials, is_main=each.column.key in ORDER))
    return columns, laid, notes


_SHAPES = {"mixtures": _mixtures, "heads": _heads, "corpora": _corpora}


def _kept(said: Iterable[Quantity], rows: Collection[RowFacts]) -> list[Quantity]:
    return [quantity for quantity in said if quantity.is_of(rows)]


def _labels(rows: list[RowFacts], kinds: tuple[str, ...]) -> list[Column]:
    return [
        Column(name=kind, key="label")
        for kind in kinds
        if kind == "head" or len({getattr(row, kind) for row in rows}) > 1
    ]


def _short_names(rows: list[RowFacts]) -> tuple[dict[str, str], list[str]]:
    """The label of each corpus -> a short name for headers and lines, and notes that explain these names."""
    labels = dict.fromkeys(row.corpus for row in rows)
    if all(len(label) <= MAX_NAME for label in labels):
        return {label: label for label in labels}, []
    names = {label: f"{label.partition(',')[0]} {number}" for number, label in enumerate(labels, start=1)}
    return names, [Note(f"{name}: {label}.", level="reading") for label, name in names.items()]


def _label(rows: list[RowFacts], kind: str) -> Cell:
    """The label that some rows share; that of a head with the marks of any of them."""
    label = getattr(rows[0], kind)
    if kind != "head":
        return Cell(text=label)
    return Cell(text=label).marked(OUTDATED_MARK if any(row.outdated for row in rows) else "")


def _reduction(row: RowFacts, reference: RowFacts | None, metric: str) -> Cell:
    share = reduction(row, reference, metric) if metric else None
    return EMPTY if share is None else Cell(text=f"{100 * share:.1f} %", value=100 * share)


def select(table: Table, columns: Sequence[str] = (), *, wide: bool = False, compact: bool = False) -> Table:
    """The table with some of its columns, and the notes on these.

    Args:
        columns: names as in the header: 'test ppl', or 'ptb test ppl' where the table has several corpora; 'vs' is the
            comparison with the baseline; (): those of the default form, the MOST first ones of ORDER.
        compact: for one column of a paper: changes without interval, parameters in millions, times without spread.
    Raises: RecordError where the table has no such column.
    """
    if columns := _joined(table, columns):
        labels = [index for index, column in enumerate(table.columns) if column.key == "label"]
        found = with_columns(
            table, list(dict.fromkeys([*labels, *(index for name in columns for index in _named(table, name))]))
        )
    else:
        found = _wide(table) if wide else _default(table, compact=compact)
    return _short(found) if compact else found


def _wide(table: Table) -> Table:
    return replace(table, notes=(*table.notes, table.labels)) if table.labels else table


def _default(table: Table, *, compact: bool) -> Table:
    keys = {column.key: None for column in table.columns if column.key in ORDER}
    labels = len({column.name for column in table.columns if column.key == "label"})
    kept = sorted(keys, key=ORDER.index)[: MOST + 1 - max(labels, 1)]
    chosen = [index for index, column in enumerate(table.columns) if not keys or column.key in kept]
    lines = tuple(line for line in table.lines if line.is_main)
    found = with_columns(replace(table, lines=lines), chosen)
    conditions = [table.conditions] if table.conditions else []
    marks = legend(_short(found) if compact else found)
    room = MOST_NOTES - len(conditions) - len(marks) - 1
    known = [note for note in found.notes if isinstance(note, Note)]
    said = [note for level in ("warning", "reading") for note in known if note.level == level][:room]
    hidden, more = len(table.columns) - len(chosen), len(table.notes) - len(said)
    rest = [counted(hidden, "more column")] * bool(hidden) + [counted(more, "more note")] * bool(more)
    where = f"{' and '.join(rest)}: harness table {table.suite} --wide. " if rest else ""
    return replace(found, notes=(*conditions, *said, *marks, f"{where}{LINK}"))


def with_columns(table: Table, chosen: Sequence[int]) -> Table:
    """The table with the columns of some indices, and the notes on these."""
    lines = [replace(line, cells=tuple(line.cells[index] for index in chosen)) for line in table.lines]
    columns = tuple(table.columns[index] for index in chosen)
    notes = tuple(note for note in table.notes if not isinstance(note, Note) or note.is_about(columns))
    return replace(table, columns=columns, lines=tuple(lines), notes=notes)


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
    found = [i for i, column in enumerate(table.columns) if name in _names(column)]
    if not found:
        known = list(dict.fromkeys(column.name for column in table.columns if column.key != "label"))
        raise RecordError(f"the table has no column '{name}'{nearest(name, known)} (there are: {', '.join(known)})")
    return found


def _names(column: Column) -> set[str]:
    return {column.name, column.header, *(["vs"] if column.key == "change" else [])}


def without_empty(table: Table) -> Table:
    """The table without columns that have nothing in any line."""
    filled = [i for i in range(len(table.columns)) if any(line.cells[i].text != NOTHING for line in table.lines)]
    return with_columns(table, filled)


def _short(table: Table) -> Table:
    return _each_cell(without_empty(table), _shortened)


def _each_cell(table: Table, change: Callable[[Cell, str], Cell]) -> Table:
    """The table with its cells changed: a function of a cell and the key of its column."""
    keys = [column.key for column in table.columns]
    lines = [replace(line, cells=tuple(map(change, line.cells, keys))) for line in table.lines]
    return replace(table, lines=tuple(lines))


def _shortened(cell: Cell, key: str) -> Cell:
    """'-1.3 % ***' for a comparison, '4.98M' for parameters, '63 (4.6x)' for a time, '1/6' for the state of a row."""
    if cell.short:
        return replace(cell, text=f"{cell.short} {cell.mark}".strip())
    if cell.value is None:
        return cell
    if key == "change":
        return replace(cell, text=f"{cell.value:+.1f} % {cell.mark}".strip(), interval=None)
    if key == "params_total":
        return replace(cell, text=f"{cell.value / 1e6:.2f}M")
    if key == "train_ms_per_batch":
        return cell.without_spread(0)
    return cell


def of_suite(table: Table, *, compact: bool = False) -> Table:
    """The summary of a suite's table in the shape 'mixtures': a section for each corpus and backbone, and in words
    how a row compares with the strongest control; if `compact` with short cells.
    """
    *grouping, head = (at for at, column in enumerate(table.columns) if column.key == "label")
    groups = grouped((", ".join(line.cells[at].text for at in grouping), line) for line in table.lines)
    lines = [replace(line, section=name) for name, group in groups.items() for line in group]
    (seeds,) = places_of(table, ["n"])
    keys = [key for key in OF_SUITE if key != "n"]
    states = {line.cells[seeds].text for line in table.lines}  # '3/3', or with what is not ok: '1/3: 2 diverged'
    if len(states) > 1 or any(":" in state for state in states):  # else the conditions below the table name the seeds
        keys.append("n")
    made = summary(replace(table, lines=tuple(lines)), [head, *places_of(table, keys)])
    columns = [
        replace(each, name="vs control", numeric=False) if each.key == "change" else each for each in made.columns
    ]
    made = replace(made, columns=tuple(columns))
    return _short(made) if compact else made


def places_of(table: Table, keys: Sequence[str]) -> list[int]:
    return [at for key in keys for at, column in enumerate(table.columns) if column.key == key]


def summary(table: Table, kept: Sequence[int]) -> Table:
    """Some columns of a table, numbers without their spread; its notes are warnings, and what marks and words mean."""
    made = _each_cell(with_columns(table, kept), _summarised)
    columns = tuple(replace(each, name=NAMES.get(each.key, each.name), group="") for each in made.columns)
    cells = [cell for line in made.lines for cell in line.cells]
    warnings = [note for note in table.notes if isinstance(note, Note) and note.level == "warning"]
    notes = [*filter(None, [table.conditions]), *warnings, *meanings(cells)]
    if any(cell.text.endswith(UNTESTED) for cell in cells):
        notes.append(f"{' and '.join(UNTESTED)}: without a verdict, which needs {RANK_SEEDS} seeds or more")
    return replace(made, columns=columns, notes=tuple(notes))


def _summarised(cell: Cell, key: str) -> Cell:
    cell = cell.summary or cell
    return cell.without_spread(DIGITS[key]) if key in DIGITS else cell
