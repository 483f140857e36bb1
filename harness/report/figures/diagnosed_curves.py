"""The plots of diagnostics: a line for each row, on logarithmic axes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.diagnostics.diagnostic import Curves
from harness.report.evidence import Evidence
from harness.report.figures.panels import MOST
from harness.report.figures.style import Plot, axes, finished, legend, logarithmic, set_titles, settings, style

if TYPE_CHECKING:
    from harness.report.diagnosed import Diagnosed

POINTS = 400  # of a line: of more values, these are evenly spaced on the logarithmic axis


def draw(evidence: Evidence, of: "Diagnosed", below: str) -> list[Plot]:
    """The plots of a diagnostic that has results; the same results give the same bytes.

    Args:
        below: the line below the title of each plot.
    """
    with settings():
        return [_plot(evidence, of, each, below) for each in of.diagnostic.plots if of.results]


def _plot(evidence: Evidence, of: "Diagnosed", curves: Curves, below: str) -> Plot:
    on, entries = axes(curves.x, curves.y), []
    having = [(row, [of.results[each.id] for each in row.trials if each.id in of.results]) for row in evidence.rows]
    firsts = [(row, results[0]) for row, results in having if results]
    shown = firsts[:MOST]
    for index, (row, result) in enumerate(shown):
        look = style(index)
        numbers, values = _thinned(curves.points(result))
        (line,) = on.plot(numbers, values, color=look.colour, linestyle=look.line)
        label = row.head if len({each.group for each, _ in shown}) == 1 else f"{row.head}, {row.backbone}, {row.corpus}"
        entries.append((line, label))
    values = [value for _, result in shown for value in curves.points(result)]
    logarithmic(on.xaxis, 1, max(len(curves.points(result)) for _, result in shown))
    logarithmic(on.yaxis, min(values), max(values))
    legend(on, entries)
    set_titles(on, curves.title, below)
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
