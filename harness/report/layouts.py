"""The three layouts of a table, and the columns and notes that a form of it shows."""

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass, replace

from harness.errors import RecordError
from harness.plan.suite_file import Shape
from harness.printable import counted
from harness.registry import nearest
from harness.report.columns import EMPTY, Quantity, quantities, with_tuned
from harness.report.content import COMPAT_MARK, MARKS, NOTHING, OUTDATED_MARK, Cell, Column, Line, Note, Table
from harness.report.findings import Findings
from harness.report.table_rows import Row, of_head, reduction

MAX_NAME = 30  # of a corpus, as a header or in many lines
OF_THE_MODEL = ("counts", "size", "cost")
MOST = 8  # kinds of columns of the default form
ORDER = (
    *("label", "test_ppl", "change", "verdict", "n", "printed", "reproduced", "test_bits_per_byte", "tuned", "time"),
    *("params", "quantity"),
)
MOST_NOTES = 5  # of the default form
LINK = "What columns, marks and tests mean: harness docs tables, harness docs statistics."
STARS = "p below 0.05 (*), 0.01 (**), 0.001 (***), corrected"


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns and lines, and notes on the layout."""

    columns: list[Column]
    lines: list[Line]
    notes: list[str]


def lay_out(findings: Findings, shape: Shape) -> Layout:
    """Arrange the rows of a suite."""
    if not findings.lines:
        return Layout([], [], [])  # no row is tuned yet
    return _SHAPES[shape](findings, with_tuned(quantities(findings), findings))


def one_size(findings: Findings) -> bool:
    """Whether a backbone and head have the same number of parameters on every corpus."""
    sizes: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for row in findings.lines:
        sizes.setdefault((row.backbone, row.head), set()).add((row.params_total, row.params_head))
    return all(len(found) == 1 for found in sizes.values())


def _mixtures(findings: Findings, said: list[Quantity]) -> Layout:
    """As table 2 of Benka et al.: a line for each corpus, backbone and head, with its number of softmaxes."""
    lines = findings.lines
    labels = _labels(lines, ("corpus", "backbone", "head"))
    counts = [each for each in said if each.kind == "counts" and each.column.name == "#S"]
    kept = _kept(counts + [each for each in said if each.kind != "counts"], range(len(lines)))
    number = Column(name="K", numeric=True, key="counts")
    columns = [*labels, *(number if each in counts else each.column for each in kept)]
    laid = [
        Line(
            cells=(*_label_cells([row], labels), *(each.cells[index] for each in kept)),
            trials=tuple(trial.id for trial in row.trials),
            is_baseline=row is findings.baselines.get(row.group),
        )
        for index, row in enumerate(lines)
    ]
    return Layout(columns, laid, [])


def _heads(findings: Findings, said: list[Quantity]) -> Layout:
    """As table 1 of the multi-facet poster: a line for each backbone and head, with its quality on each corpus.

    Size and cost are shown once, for the first corpus, if the size is the same on all corpora.
    """
    lines = findings.lines
    labels = _labels(lines, ("backbone", "head"))
    names, notes = _short_names(lines)
    corpora = list(names.values())
    of_corpus = {name: [i for i, row in enumerate(lines) if names[row.corpus] == name] for name in corpora}
    first = of_corpus[corpora[0]]
    leading = OF_THE_MODEL if len(corpora) == 1 or one_size(findings) else ("counts",)
    blocks = [("", first, _kept([each for each in said if each.kind in leading], first))]
    for name, indices in of_corpus.items():
        kept = _kept([each for each in said if each.kind not in leading], indices)
        blocks.append((name if len(corpora) > 1 else "", indices, kept))
    columns = [*labels, *(replace(each.column, group=group) for group, _, kept in blocks for each in kept)]
    laid = [
        Line(
            cells=(
                *_label_cells([lines[indices[place]] for indices in of_corpus.values()], labels),
                *(each.cells[indices[place]] for _, indices, kept in blocks for each in kept),
            ),
            trials=tuple(trial.id for indices in of_corpus.values() for trial in lines[indices[place]].trials),
        )
        for place in range(len(first))
    ]
    if len(corpora) > 1 and "cost" in leading:
        notes.append(Note(f"Times and memory are of {corpora[0]}.", ("ms/batch", "peak MiB"), level="reading"))
    return Layout(columns, laid, notes)


def _corpora(findings: Findings, said: list[Quantity]) -> Layout:
    """As table 1 of Benka et al.: a line for each corpus, backbone and quantity; a column for each head, with its
    reduction against the baseline.
    """
    rows = findings.lines
    names, notes = _short_names(rows)
    labels = _labels(rows, ("backbone",))
    groups: dict[tuple[str, str], dict[str, int]] = {}  # corpus and backbone -> head -> index of its row
    for index, row in enumerate(rows):
        groups.setdefault(row.group, {})[row.head] = index
    heads = dict.fromkeys(row.head for row in rows)
    baseline = _baseline(findings)
    reduced = {head for indices in groups.values() if baseline in indices for head in indices} - {baseline}
    columns = [Column(name="corpus", key="label"), *labels, Column(name="quantity", key="label")]
    for head in heads:
        name = _label([rows[indices[head]] for indices in groups.values() if head in indices], "head").text
        columns.append(Column(name="", numeric=True, group=name, spread="spread", key="quantity"))
        if head in reduced:
            columns.append(Column(name="reduction", numeric=True, group=name, key="quantity"))
    laid = []
    for indices in groups.values():
        reference = rows[indices[baseline]] if baseline in indices else None
        first = rows[next(iter(indices.values()))]
        for each in _kept([one for one in said if one.kind != "counts"], indices.values()):
            cells = [Cell(text=names[first.corpus]), *_label_cells([first], labels), Cell(text=each.column.name)]
            for head in heads:
                index = indices.get(head)
                cells.append(EMPTY if index is None else each.cells[index])
                if head in reduced:
                    cells.append(EMPTY if index is None else _reduction(rows[index], reference, each.metric))
            trials = tuple(trial.id for index in indices.values() for trial in rows[index].trials)
            laid.append(Line(cells=tuple(cells), trials=trials, is_main=each.column.key in ORDER))
    return Layout(columns, laid, notes)


_SHAPES = {"mixtures": _mixtures, "heads": _heads, "corpora": _corpora}


def _kept(said: Iterable[Quantity], indices: Collection[int]) -> list[Quantity]:
    """The quantities that a table of some rows has."""
    return [quantity for quantity in said if quantity.is_of(indices)]


def _labels(rows: list[Row], kinds: tuple[str, ...]) -> list[Column]:
    """Columns of labels: those in which rows differ, and the head."""
    return [
        Column(name=kind, key="label")
        for kind in kinds
        if kind == "head" or len({getattr(row, kind) for row in rows}) > 1
    ]


def _short_names(rows: list[Row]) -> tuple[dict[str, str], list[str]]:
    """The label of each corpus -> a short name for headers and lines, and notes that explain these names."""
    labels = dict.fromkeys(row.corpus for row in rows)
    if all(len(label) <= MAX_NAME for label in labels):
        return {label: label for label in labels}, []
    names = {label: f"{label.partition(',')[0]} {number}" for number, label in enumerate(labels, start=1)}
    return names, [Note(f"{name}: {label}.", level="reading") for label, name in names.items()]


def _label_cells(rows: list[Row], labels: list[Column]) -> list[Cell]:
    return [_label(rows, column.name) for column in labels]


def _label(rows: list[Row], kind: str) -> Cell:
    """The label that some rows share; that of a head with the marks of any of them."""
    label = getattr(rows[0], kind)
    if kind != "head":
        return Cell(text=label)
    marks = {COMPAT_MARK: rows[0].compat is not None, OUTDATED_MARK: any(row.outdated for row in rows)}
    mark = " ".join(each for each, applies in marks.items() if applies)
    return Cell(text=f"{label} {mark}".strip(), mark=mark)


def _baseline(findings: Findings) -> str | None:
    """The label of the first row of the baseline; None if the suite names none."""
    return next((row.head for row in of_head(findings.lines, findings.evidence.suite.table.baseline)), None)


def _reduction(row: Row, reference: Row | None, metric: str) -> Cell:
    share = reduction(row, reference, metric) if metric else None
    return EMPTY if share is None else Cell(text=f"{100 * share:.1f} %", value=100 * share)


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
    if cell.short:
        return replace(cell, text=f"{cell.short} {cell.mark}".strip())
    if cell.value is None:
        return cell
    if key == "change":
        return replace(cell, text=f"{cell.value:+.1f} % {cell.mark}".strip(), interval=None)
    if key == "params":
        return replace(cell, text=f"{cell.value / 1e6:.2f}M")
    if key == "time":
        return cell.without_spread(0)
    return cell
