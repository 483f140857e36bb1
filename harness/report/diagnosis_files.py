"""Writes what `harness diagnose` has stored: a table for each diagnostic, and its plots."""

from collections.abc import Sequence
from pathlib import Path

from harness.report import outputs
from harness.report.evidence.diagnosed import Diagnosed
from harness.report.evidence.gather import Evidence
from harness.report.table import diagnosed_table, suite_table
from harness.report.table.suite_table import FORMS


def write(
    evidence: Evidence, found: Sequence[Diagnosed], results: Path, *, overwrite: bool = False
) -> dict[str, list[Path]]:
    """Write the tables below results/tables and the plots below results/plots. Returns name of a diagnostic -> paths
    of its table, markdown first.

    Raises: FewerTrialsError, StorageError.
    """
    from harness.report.figures import diagnosed_curves, plots  # here: matplotlib takes a second to import

    stem, written = suite_table.stem(evidence.suite), {}
    for of in found:
        name, made = of.diagnostic.name, diagnosed_table.build(evidence, of)
        tables = {
            results / "tables" / f"{stem}.diagnostics.{name}{ending}": form(made).encode()
            for ending, form in FORMS.values()
        }
        drawn = diagnosed_curves.draw(evidence, of, made.title)
        pictures, _ = plots.files_of(drawn, results / "plots" / f"{stem}.diagnostics")
        outputs.write({**tables, **pictures}, overwrite=overwrite)
        written[name] = list(tables)
    return written
