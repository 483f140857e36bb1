"""What `harness diagnose` has stored of a suite: tables, files of tables and plots, and a section of the page."""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.diagnostics.diagnosing import result_of
from harness.diagnostics.diagnostic import Curves, Diagnostic, Figure, Result
from harness.records import sidecars
from harness.records.metrics import METRICS
from harness.records.sidecars import Diagnosis
from harness.report import layouts, outputs, suite_table
from harness.report.content import Cell, Column, Line, Table
from harness.report.evidence import Evidence
from harness.report.outputs import Trials
from harness.report.row_facts import RowFacts

if TYPE_CHECKING:
    from harness.report.figures.drawn import Plot
    from harness.report.page.document import Section


LEGEND = "What the columns mean, and what they cannot say: harness docs diagnostics."
KINDS = ("corpus", "backbone", "head")
HEADING = "What the heads can express"
MOST = 12  # lines in a plot


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """What is stored of one diagnostic of a suite, with one choice of settings.

    Args:
        stored: trial id -> what was stored, with a result or with the reason why there is none.
    """

    diagnostic: Diagnostic
    stored: dict[str, Diagnosis]
    results: dict[str, Result]
    planned: int

    @property
    def trials(self) -> Trials:
        """The numbers of trials of which something is stored, and of planned trials."""
        return Trials(len(self.stored), self.planned)


def gathered(
    evidence: Evidence,
    diagnostics: Iterable[Diagnostic],
    settings: Callable[[Diagnostic], dict[str, int | float | str]] | None = None,
) -> list[Diagnosed]:
    """Read what is stored of a suite's finished trials.

    Args:
        settings: those of each diagnostic; None: those of its newest result.
    """
    kept = {each: evidence.stored(sidecars.DIAGNOSES, each) or () for each in evidence.records}
    found, planned = [], len(evidence.suite.trials)
    for diagnostic in diagnostics:
        of = {}
        for trial, many in kept.items():
            of[trial] = [each for each in many if each.diagnostic == diagnostic.name]
        newest = max((each for many in of.values() for each in many), key=lambda each: each.taken, default=None)
        if newest is None:
            continue
        wanted = newest.settings if settings is None else settings(diagnostic)
        stored = {trial: each for trial, many in of.items() for each in many if each.settings == wanted}
        results = {trial: result_of(each, diagnostic) for trial, each in stored.items()}
        results = {trial: result for trial, result in results.items() if result is not None}
        found.append(Diagnosed(diagnostic=diagnostic, stored=stored, results=results, planned=planned))
    return found


def build(evidence: Evidence, of: Diagnosed) -> Table:
    """The table of one diagnostic: all rows of the suite."""
    rows, figures = evidence.rows, of.diagnostic.figures
    labels = []
    for kind in KINDS:
        if kind == "head" or len({getattr(row, kind) for row in rows}) > 1:
            labels.append(kind)
    columns = [Column(name=kind) for kind in labels]
    columns += [Column(name=figure.name, numeric=True) for figure in figures]
    columns += [Column(name=METRICS["test_ppl"].label, numeric=True, key="test_ppl")]
    columns += [Column(name="n", key="n")]
    lines = []
    for row in rows:
        results = [of.results[trial] for trial in row.ids if trial in of.results]
        cells = [Cell(text=getattr(row, kind)) for kind in labels]
        cells += [_cell(figure, results) for figure in figures]
        cells.append(Cell.mean(row.values("test_ppl"), METRICS["test_ppl"].digits))
        cells.append(Cell(text=f"{sum(trial in of.stored for trial in row.ids)}/{len(row.trials)}"))
        lines.append(Line(cells=tuple(cells), trials=row.ids))
    return Table(
        title=f"{of.diagnostic.title}: {suite_table.title(evidence.suite)}",
        columns=tuple(columns),
        lines=tuple(lines),
        notes=tuple(_notes(rows, of)),
    )


def summary(evidence: Evidence, of: Diagnosed) -> Table:
    """The few columns of the table that a terminal shows."""
    table = build(evidence, of)
    left_out = {figure.name for figure in of.diagnostic.figures if not figure.on_terminal}
    kept = [index for index, column in enumerate(table.columns) if column.name not in left_out]
    return replace(layouts.with_columns(table, kept), notes=())


def _cell(figure: Figure, results: Sequence[Result]) -> Cell:
    known = [(value, figure.at_least(each)) for each in results if (value := figure.value(each)) is not None]
    cell = Cell.mean([float(value) for value, _ in known], figure.digits)
    if any(more for _, more in known):
        return Cell(text=f"≥ {cell.text}", value=cell.value, spread=cell.spread, mark="≥")
    return cell


def _notes(rows: Sequence[RowFacts], of: Diagnosed) -> list[str]:
    contexts = sorted({each.contexts for each in of.results.values() if hasattr(each, "contexts")})
    notes = list(of.diagnostic.notes)
    if contexts:
        numbers = " or ".join(f"{number:,}" for number in contexts)
        notes.append(f"Contexts: {numbers} {of.diagnostic.contexts}; float64; the weights of the best epoch.")
    refused: dict[str, dict[str, None]] = {}
    for row in rows:
        for reason in (of.stored[each].refused for each in row.ids if each in of.stored):
            refused.setdefault(reason, {})[row.head] = None
    notes += [f"No result of {', '.join(heads)}: {reason}." for reason, heads in refused.items() if reason]
    machines = dict.fromkeys(
        f"Computed on {each.device}, {each.threads} thread(s), torch {each.torch}, harness {each.harness} at "
        f"{each.commit}."
        for each in of.stored.values()
    )
    return [*dict.fromkeys(notes), *machines, LEGEND]


def plots_of(evidence: Evidence, of: Diagnosed) -> "list[Plot]":
    """The plots of a diagnostic that has results, a line for each row; the same results give the same bytes."""
    from harness.report.figures.style import settings  # here: matplotlib takes a second to import

    with settings():
        return [_plot(evidence, of, each) for each in of.diagnostic.plots if of.results]


def _plot(evidence: Evidence, of: Diagnosed, curves: Curves) -> "Plot":
    from harness.report.figures.lines import PlotPoint, Series, lines
    from harness.report.figures.looks import looks_of
    from harness.report.figures.style import Frame, finished

    looks, found, several = looks_of(evidence), [], len({row.group for row in evidence.rows}) > 1
    for row in evidence.rows:
        results = [of.results[trial] for trial in row.ids if trial in of.results]
        if results:
            values = enumerate(curves.points(results[0]), start=1)
            points = tuple(PlotPoint(x=number, y=value, low=value, high=value) for number, value in values)
            label = f"{row.head}, {row.backbone}, {row.corpus}" if several else row.head
            found.append(Series(label=label, look=looks[row], points=points))
    frame = Frame(title=curves.title, below=suite_table.title(evidence.suite))
    on = lines(found[:MOST], curves.x, curves.y, frame, log="xy")
    left = len(found) - MOST
    caption = "The first seed of each row." + (f" {left} more rows are not drawn." if left > 0 else "")
    return finished(on, name=curves.name, title=curves.title, caption=caption, of=str(of.trials))


def write(evidence: Evidence, found: Sequence[Diagnosed], results: Path) -> dict[str, list[Path]]:
    """Write the tables below results/tables and the plots below results/plots. Returns name of a diagnostic -> paths
    of its table, markdown first.

    Raises: StorageError.
    """
    from harness.report.figures import plots  # here: matplotlib takes a second to import

    stem, written = suite_table.stem(evidence.suite), {}
    for of in (each for each in found if each.results):
        tables = suite_table.files_of(build(evidence, of), f"{stem}.diagnostics.{of.diagnostic.name}", results)
        drawn = plots_of(evidence, of)
        pictures, _ = plots.files_of(drawn, results / "plots" / f"{stem}.diagnostics")
        outputs.write({**tables, **pictures})
        written[of.diagnostic.name] = list(tables)
    return written


def for_page(evidence: Evidence, only: Container[str] | None = None) -> "tuple[list[Section], list[Plot]]":
    """The section of a suite's page, and the plots for it; both empty if no result is stored."""
    from harness.diagnostics.catalogue import DIAGNOSTICS
    from harness.report.page.document import Section

    tables, plots = [], []
    for of in (each for each in gathered(evidence, DIAGNOSTICS.values()) if each.results):
        table = build(evidence, of)
        shown = []
        for line in table.lines:
            if only is None or any(trial in only for trial in line.trials):
                shown.append(line)
        tables.append(replace(table, lines=tuple(shown)))
        plots += plots_of(evidence, of)
    return [Section(heading=HEADING, tables=tuple(tables))] if tables else [], plots
