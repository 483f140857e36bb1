"""The layouts of a table, and the columns and notes that a form of it shows.

A summary is a table, too: a terminal's few columns, with the numbers and marks of the whole table's cells.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from harness.errors import RecordError
from harness.extensions import provided
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
from harness.report.verdicts import Group

MAX_NAME = 30  # of a corpus, as a header or in many lines
OF_THE_MODEL = ("counts", "size", "cost")
MOST = 8  # kinds of columns of the default form
ORDER = (
    *("label", "test_ppl", "change", "verdict", "n", "printed", "reproduced", "tuned", "train_ms_per_batch"),
    *("params_total", "test_bits_per_byte", "quantity", "gain", "trend", "worth", "share"),
)
MOST_NOTES = 6  # of the default form
LINK = "What columns, marks and tests mean: harness docs tables, harness docs statistics."

DIGITS = {"test_ppl": 2, "train_ms_per_batch": 1}  # of numbers in a summary, by the key of their column
NAMES = {"train_ms_per_batch": "ms/batch", "n": "seeds"}  # the key of a column -> its header in a summary
TERMINAL_COLUMNS = (
    "test_ppl",
    "change",
    "reproduced",
    "train_ms_per_batch",
    "n",
)  # keys of columns, after that of the head


Layout = tuple[list[Column], list[Line], list[str]]  # columns, lines, and notes on the layout


def lay_out(findings: Findings, shape: Shape) -> Layout:
    """Arrange the rows of a suite."""
    if not findings.rows:
        return [], [], []  # no row is tuned yet
    if shape == "ladder":
        # None of a suite without a ladder, and before there is a result at every size.
        found = provided("harness.ladder.table:lay_out", lambda findings: None)(findings)
        if found is not None:
            return found
    return _SHAPES.get(shape, _mixtures)(findings, quantities(findings))


def _mixtures(findings: Findings, said: list[Quantity]) -> Layout:
    """As table 2 of Benka et al.: a line for each corpus, backbone and head, with its number of
    softmaxes.
    """
    rows = findings.rows
    labels = _labels(rows, ("corpus", "backbone", "head"))
    # A mixture's table has K alone: of other counts it has none.
    kept = _kept([each for each in said if each.column.name not in ("#I", "#P")], rows)
    columns = list(labels)
    for each in kept:
        is_count = each.kind == "counts"
        columns.append(replace(each.column, name="K") if is_count else each.column)
    lines = []
    for row in rows:
        cells = [_label([row], column.name) for column in labels]
        cells += [each.cell(row) for each in kept]
        lines.append(Line(cells=tuple(cells), trials=_trials([row])))
    return columns, lines, []


def _heads(findings: Findings, said: list[Quantity]) -> Layout:
    """As table 1 of the multi-facet poster: a line for each backbone and head, with its quality on
    each corpus.

    Size and cost are shown once, for the first corpus, if the size is the same on all corpora.
    """
    rows = findings.rows
    labels = _labels(rows, ("backbone", "head"))
    names, notes = _short_names(rows)
    of_corpus = grouped((names[row.corpus], row) for row in rows)
    of_line: dict[tuple[str, str], dict[str, RowFacts]] = {}  # backbone, head -> corpus -> row
    for row in rows:
        of_line.setdefault((row.backbone, row.head), {})[names[row.corpus]] = row
    several = len(of_corpus) > 1
    leading = ("counts",) if several and not _one_size(rows) else OF_THE_MODEL
    first_corpus, first = next(iter(of_corpus.items()))
    # Blocks of columns: the header above them, the corpus of their rows, and what they say.
    of_model = _kept([each for each in said if each.kind in leading], first)
    blocks = [("", first_corpus, of_model)]
    of_text = [each for each in said if each.kind not in leading]
    for name, alike in of_corpus.items():
        blocks.append((name if several else "", name, _kept(of_text, alike)))
    columns = list(labels)
    for group, _, kept in blocks:
        columns += [replace(each.column, group=group) for each in kept]
    lines = []
    for row_of in of_line.values():
        cells = [_label(list(row_of.values()), column.name) for column in labels]
        for _, corpus, kept in blocks:
            row = row_of.get(corpus)  # None: it has no point of the tuning on this corpus yet
            cells += [EMPTY if row is None else each.cell(row) for each in kept]
        lines.append(Line(cells=tuple(cells), trials=_trials(row_of.values())))
    if several and "cost" in leading:
        text = f"Times and memory are of {first_corpus}."
        notes.append(Note(text, "time", "memory", level="reading"))
    return columns, lines, notes


def _one_size(rows: Iterable[RowFacts]) -> bool:
    """Whether a backbone and head have the same number of parameters on every corpus."""
    models = {(row.backbone, row.head, row.params_total, row.params_head) for row in rows}
    return len(models) == len({each[:2] for each in models})


def _corpora(findings: Findings, said: list[Quantity]) -> Layout:
    """As table 1 of Benka et al.: a line for each corpus, backbone and quantity; a column for each
    head, with its reduction against the baseline.
    """
    rows = findings.rows
    names, notes = _short_names(rows)
    labels = _labels(rows, ("backbone",))
    groups: dict[Group, dict[str, RowFacts]] = {}  # corpus and backbone -> head -> its row
    for row in rows:
        groups.setdefault(row.group, {})[row.head] = row
    named = of_head(rows, findings.evidence.suite.table.baseline)
    baseline = named[0].head if named else None
    heads, reduced = {}, set()  # head -> a row of it; the heads that have a reduction
    for row_of in groups.values():
        for head, row in row_of.items():
            heads.setdefault(head, []).append(row)
            if baseline in row_of and head != baseline:
                reduced.add(head)
    columns = [Column(name="corpus", key="label"), *labels, Column(name="quantity", key="label")]
    for head, alike in heads.items():
        about = {"group": _label(alike, "head").text, "numeric": True, "key": "quantity"}
        columns.append(Column(name="", spread="spread", **about))
        if head in reduced:
            columns.append(Column(name="reduction", topics=("comparison",), **about))
    lines = []
    for row_of in groups.values():
        first, *_ = row_of.values()
        start = [Cell(text=names[first.corpus])]
        start += [_label([first], column.name) for column in labels]
        for each in _kept([one for one in said if one.kind != "counts"], row_of.values()):
            cells = [*start, Cell(text=each.column.name)]
            for head in heads:
                row = row_of.get(head)
                cells.append(EMPTY if row is None else each.cell(row))
                if head in reduced:
                    cells.append(_reduction(row, row_of.get(baseline), each.metric))
            is_main = each.column.key in ORDER
            lines.append(Line(cells=tuple(cells), trials=_trials(row_of.values()), is_main=is_main))
    return columns, lines, notes


_SHAPES = {"mixtures": _mixtures, "heads": _heads, "corpora": _corpora}


def _trials(rows: Iterable[RowFacts]) -> tuple[str, ...]:
    return tuple(trial for row in rows for trial in row.ids)


def _kept(said: Iterable[Quantity], rows: Collection[RowFacts]) -> list[Quantity]:
    return [quantity for quantity in said if quantity.is_of(rows)]


def _labels(rows: list[RowFacts], kinds: tuple[str, ...]) -> list[Column]:
    """A column for the head, and for what differs between rows."""
    found = []
    for kind in kinds:
        if kind == "head" or len({getattr(row, kind) for row in rows}) > 1:
            found.append(Column(name=kind, key="label"))
    return found


def _short_names(rows: list[RowFacts]) -> tuple[dict[str, str], list[str]]:
    """The label of each corpus -> a short name for headers and lines, and notes that explain these
    names.
    """
    labels = dict.fromkeys(row.corpus for row in rows)
    if all(len(label) <= MAX_NAME for label in labels):
        return {label: label for label in labels}, []
    names, notes = {}, []
    for number, label in enumerate(labels, start=1):
        names[label] = f"{label.partition(',')[0]} {number}"
        notes.append(Note(f"{names[label]}: {label}.", level="reading"))
    return names, notes


def _label(rows: Sequence[RowFacts], kind: str) -> Cell:
    """The label that some rows share; that of a head with the marks of any of them."""
    label = getattr(rows[0], kind)
    if kind != "head":
        return Cell(text=label)
    return Cell(text=label).marked(OUTDATED_MARK if any(row.outdated for row in rows) else "")


def _reduction(row: RowFacts | None, reference: RowFacts | None, metric: str) -> Cell:
    if row is None or not metric:
        return EMPTY
    share = reduction(row, reference, metric)
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
    lines = []
    for line in table.lines:
        lines.append(replace(line, cells=tuple(line.cells[index] for index in chosen)))
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
    filled = set()
    for line in table.lines:
        filled |= {at for at, cell in enumerate(line.cells) if cell.text != NOTHING}
    return with_columns(table, sorted(filled))


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


def terminal_table(table: Table, *, compact: bool = False) -> Table:
    """The summary of a suite's table in the shape 'mixtures': a section for each corpus and backbone, and in words
    how a row compares with the strongest control; if `compact` with short cells.
    """
    *grouping, head = (at for at, column in enumerate(table.columns) if column.key == "label")
    groups: dict[str, list[Line]] = {}
    for line in table.lines:
        name = ", ".join(line.cells[at].text for at in grouping)
        groups.setdefault(name, []).append(replace(line, section=name))
    lines = [line for group in groups.values() for line in group]
    (seeds,) = places_of(table, ["n"])
    keys = [key for key in TERMINAL_COLUMNS if key != "n"]
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
