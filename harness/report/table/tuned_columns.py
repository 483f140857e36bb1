"""The columns of a tuned suite: the value of each key that was chosen for a row."""

from harness.plan.specs import value_text
from harness.report.evidence.findings import Findings
from harness.report.table.columns import EMPTY, Quantity
from harness.report.table.content import Cell, Column


def with_tuned(said: list[Quantity], findings: Findings) -> list[Quantity]:
    """The quantities of a table, with a column for each tuned key before the quality of the predictions."""
    tuning = findings.evidence.suite.tuning
    if tuning is None:
        return said
    first = next(index for index, each in enumerate(said) if each.kind == "quality")
    return [*said[:first], *(_column(key, findings) for key in tuning.spec.space), *said[first:]]


def _column(key: str, findings: Findings) -> Quantity:
    cells = tuple(_cell(line.tuned[key]) if key in line.tuned else EMPTY for line in findings.lines)
    numeric = all(cell is EMPTY or cell.value is not None for cell in cells)
    return Quantity(
        column=Column(name=f"{key.removeprefix('train.')} (tuned)", numeric=numeric, key="tuned"),
        cells=cells,
        kind="quality",
    )


def _cell(value: object) -> Cell:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(text=f"{value:g}", value=value)
    return Cell(text=value_text(value))
