"""Plots of lines that are no rows' perplexities: those of diagnostics."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.diagnostics.diagnostic import Curves
from harness.report.evidence import Evidence
from harness.report.figures.comparison import MOST
from harness.report.figures.drawn import Plot
from harness.report.figures.labels import Label, named
from harness.report.figures.looks import looks_of
from harness.report.figures.style import Frame, axes, belongs, finished, logarithmic, settings

if TYPE_CHECKING:
    from harness.report.diagnosed import Diagnosed

POINTS = 400  # of a line: of more values, these are evenly spaced on the logarithmic axis


def of_diagnostic(evidence: Evidence, of: "Diagnosed", below: str) -> list[Plot]:
    """The plots of a diagnostic that has results, a line for each row; the same results give the same bytes."""
    with settings():
        return [_of_rows(evidence, of, each, below) for each in of.diagnostic.plots if of.results]


def _of_rows(evidence: Evidence, of: "Diagnosed", curves: Curves, below: str) -> Plot:
    on, labels = axes(curves.x, curves.y, Frame(title=curves.title, below=below)), []
    having = [(row, [of.results[each.id] for each in row.trials if each.id in of.results]) for row in evidence.rows]
    firsts = [(row, results[0]) for row, results in having if results]
    shown, looks = firsts[:MOST], looks_of(evidence)
    for row, result in shown:
        look = looks[row]
        numbers, values = _thinned(curves.points(result))
        belongs(look, "line", *on.plot(numbers, values, color=look.colour, linestyle=look.line))
        name = row.head if len({each.group for each, _ in shown}) == 1 else f"{row.head}, {row.backbone}, {row.corpus}"
        labels.append(Label(text=name, x=numbers[-1], y=values[-1], look=look))
    values = [value for _, result in shown for value in curves.points(result)]
    logarithmic(on.xaxis, 1, max(len(curves.points(result)) for _, result in shown))
    logarithmic(on.yaxis, min(values), max(values))
    named(on, labels)
    left = len(firsts) - len(shown)
    caption = "The first seed of each row." + (f" {left} more rows are not drawn." if left else "")
    return finished(on, name=curves.name, title=curves.title, caption=caption, of=str(of.trials))


def _thinned(values: Sequence[float]) -> tuple[list[int], list[float]]:
    """The numbers of values, from 1, and the values: all, or some that are evenly spaced on a logarithmic axis."""
    count = len(values)
    numbers = list(range(1, count + 1))
    if count > POINTS:
        numbers = sorted({round(count ** (each / (POINTS - 1))) for each in range(POINTS)})
    return numbers, [values[number - 1] for number in numbers]
