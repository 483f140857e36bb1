"""The table of a diagnostic: a row has the mean over the seeds that have a result, beside its test perplexity."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from harness.diagnostics.diagnostic import Figure, Result
from harness.records.metrics import METRICS
from harness.report.evidence.diagnosed import Diagnosed
from harness.report.evidence.gather import Evidence
from harness.report.evidence.table_rows import Row
from harness.report.table import suite_table
from harness.report.table.content import NOTHING, Cell, Column, Line, Table
from harness.report.table.short_form import Summary

LEGEND = "What the columns mean, and what they cannot say: harness docs diagnostics."
KINDS = ("corpus", "backbone", "head")


def build(evidence: Evidence, of: Diagnosed) -> Table:
    """The table of one diagnostic: all rows of the suite."""
    rows, figures = evidence.rows, of.diagnostic.figures
    labels = [kind for kind in KINDS if kind == "head" or len({getattr(row, kind) for row in rows}) > 1]
    columns = [Column(name=kind) for kind in labels]
    columns += [Column(name=figure.name, numeric=True) for figure in figures]
    columns += [Column(name=METRICS["test_ppl"].label, numeric=True), Column(name="n")]
    lines = []
    for row in rows:
        results = [of.results[trial.id] for trial in row.trials if trial.id in of.results]
        cells = [Cell(text=getattr(row, kind)) for kind in labels]
        cells += [_cell(figure, results) for figure in figures]
        cells.append(mean_cell(row.values("test_ppl"), METRICS["test_ppl"].digits))
        cells.append(Cell(text=f"{sum(trial.id in of.stored for trial in row.trials)}/{len(row.trials)}"))
        lines.append(Line(cells=tuple(cells), trials=tuple(trial.id for trial in row.trials)))
    return Table(
        title=f"{of.diagnostic.title}: {suite_table.title(evidence.suite)}",
        columns=tuple(columns),
        lines=tuple(lines),
        notes=tuple(_notes(rows, of)),
    )


def summary(evidence: Evidence, of: Diagnosed) -> Summary:
    """The few columns of the table that a terminal shows."""
    table = build(evidence, of)
    left_out = {figure.name for figure in of.diagnostic.figures if not figure.on_terminal}
    kept = [index for index, column in enumerate(table.columns) if column.name not in left_out]
    lines = tuple(replace(line, cells=tuple(line.cells[index] for index in kept)) for line in table.lines)
    return Summary(
        title=table.title, columns=tuple(table.columns[index] for index in kept), sections=(("", lines),), legend=()
    )


def _cell(figure: Figure, results: Sequence[Result]) -> Cell:
    known = [(value, figure.at_least(each)) for each in results if (value := figure.value(each)) is not None]
    cell = mean_cell([float(value) for value, _ in known], figure.digits)
    if any(more for _, more in known):
        return Cell(text=f"≥ {cell.text}", value=cell.value, spread=cell.spread, mark="≥")
    return cell


def mean_cell(values: Sequence[float], digits: int) -> Cell:
    """Mean ± standard deviation; '-' for no value."""
    if not values:
        return Cell(text=NOTHING)
    mean, spread = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
    text = f"{mean:,.{digits}f}" + ("" if spread is None else f" ± {spread:,.{digits}f}")
    return Cell(text=text, value=mean, spread=spread)


def _notes(rows: Sequence[Row], of: Diagnosed) -> list[str]:
    """What the columns mean, contexts, heads without a result, machine."""
    contexts = sorted({each.contexts for each in of.results.values() if hasattr(each, "contexts")})
    notes = list(of.diagnostic.notes)
    if contexts:
        numbers = " or ".join(f"{number:,}" for number in contexts)
        notes.append(f"Contexts: {numbers} {of.diagnostic.contexts}; float64; the weights of the best epoch.")
    refused: dict[str, dict[str, None]] = {}
    for row in rows:
        for reason in (of.stored[each.id].refused for each in row.trials if each.id in of.stored):
            refused.setdefault(reason, {})[row.head] = None
    notes += [f"No result of {', '.join(heads)}: {reason}." for reason, heads in refused.items() if reason]
    machines = dict.fromkeys(
        f"Computed on {each.device}, {each.threads} thread(s), torch {each.torch}, harness {each.harness} at "
        f"{each.commit}."
        for each in of.stored.values()
    )
    return [*dict.fromkeys(notes), *machines, LEGEND]
