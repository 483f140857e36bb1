"""The three layouts of a table: how the quantities of a suite's rows are arranged in lines and columns."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from harness.plan.suite_file import Shape
from harness.report.evidence.findings import COMPAT_MARK, Findings
from harness.report.evidence.table_rows import Row, of_head, reduction
from harness.report.evidence.versions import OUTDATED_MARK
from harness.report.table.columns import EMPTY, Quantity, quantities
from harness.report.table.content import Cell, Column, Line, Note
from harness.report.table.tuned_columns import with_tuned

MAX_NAME = 30  # of a corpus, as a header or in many lines
OF_THE_MODEL = ("counts", "size", "cost")


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
    columns = [*labels, *(Column(name="K", numeric=True) if each in counts else each.column for each in kept)]
    laid = [
        Line(
            cells=(*_label_cells([row], labels), *(each.cells[index] for each in kept)),
            trials=tuple(trial.id for trial in row.trials),
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
            laid.append(Line(cells=tuple(cells), trials=trials, is_main=bool(each.column.key)))
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
