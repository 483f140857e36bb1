"""Views of what `harness diagnose` has stored: files of tables and plots, and a section of the suite's page."""

from collections.abc import Container, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.report import outputs
from harness.report.evidence.diagnosed import Diagnosed, gathered
from harness.report.evidence.gather import Evidence
from harness.report.table import diagnosed_table, suite_table
from harness.report.table.suite_table import FORMS

if TYPE_CHECKING:
    from harness.report.figures.style import Plot
    from harness.report.page.document import Section

HEADING = "What the heads can express"


def write(
    evidence: Evidence, found: Sequence[Diagnosed], results: Path, *, overwrite: bool = False
) -> dict[str, list[Path]]:
    """Write the tables below results/tables and the plots below results/plots. Returns name of a diagnostic -> paths
    of its table, markdown first.

    Raises: FewerTrialsError, StorageError.
    """
    from harness.report.figures import lines, plots  # here: matplotlib takes a second to import

    stem, written = suite_table.stem(evidence.suite), {}
    for of in (each for each in found if each.results):
        name, made = of.diagnostic.name, diagnosed_table.build(evidence, of)
        tables = {
            results / "tables" / f"{stem}.diagnostics.{name}{ending}": form(made).encode()
            for ending, form in FORMS.values()
        }
        drawn = lines.of_diagnostic(evidence, of, suite_table.title(evidence.suite))
        pictures, _ = plots.files_of(drawn, results / "plots" / f"{stem}.diagnostics")
        outputs.write({**tables, **pictures}, overwrite=overwrite)
        written[name] = list(tables)
    return written


def for_page(evidence: Evidence, only: Container[str] | None = None) -> "tuple[list[Section], list[Plot]]":
    """The section of a suite's page, and the plots for it; both empty if no result is stored.

    Args:
        only: ids of trials whose rows are shown; None: all.
    """
    from harness.diagnostics.catalogue import DIAGNOSTICS
    from harness.report.figures import lines
    from harness.report.page.document import Section

    tables, plots = [], []
    for of in (each for each in gathered(evidence, DIAGNOSTICS.values()) if each.results):
        table = diagnosed_table.build(evidence, of)
        shown = [line for line in table.lines if only is None or any(trial in only for trial in line.trials)]
        tables.append(replace(table, lines=tuple(shown)))
        plots += lines.of_diagnostic(evidence, of, suite_table.title(evidence.suite))
    return [Section(heading=HEADING, tables=tuple(tables))] if tables else [], plots
