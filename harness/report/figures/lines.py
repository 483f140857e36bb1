"""Plots of lines that are no rows' perplexities: diagnostics, layers, and measured costs of backbones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.diagnostics.diagnostic import Curves
from harness.printable import counted
from harness.report.evidence import Evidence
from harness.report.figures.comparison import MOST
from harness.report.figures.drawn import Plot
from harness.report.figures.labels import Label, at_ends
from harness.report.figures.looks import by_index, looks_of
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
    at_ends(on, labels)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The costs of one backbone.

    Args:
        fit: context length -> the fitted cost; None: the line joins the measured ones.
    """

    label: str
    measured: Mapping[int, float]
    fit: Callable[[float], float] | None = None


def of_costs(costs: Sequence[Cost], name: str, title: str, below: str, y: str, caption: str) -> Plot:
    """The plot of `harness bench backbone` by context length, on logarithmic axes; equal values give equal bytes."""
    with settings():
        on, labels = axes("context length T, tokens", y, Frame(title=title, below=below)), []
        for index, cost in enumerate(costs):
            look, lengths = by_index(index), sorted(cost.measured)
            ratio = lengths[-1] / lengths[0]
            on.plot(lengths, [cost.measured[T] for T in lengths], look.marker, color=look.colour)
            points = lengths
            if cost.fit is not None:
                points = [lengths[0] * ratio ** (each / (POINTS // 2 - 1)) for each in range(POINTS // 2)]
            heights = list(map(cost.fit or cost.measured.__getitem__, points))
            on.plot(points, heights, color=look.colour, linestyle=look.line)
            labels.append(Label(text=cost.label, x=points[-1], y=heights[-1], look=look))
        values = [value for cost in costs for value in cost.measured.values()]
        lengths = [T for cost in costs for T in cost.measured]
        logarithmic(on.xaxis, min(lengths), max(lengths))
        logarithmic(on.yaxis, min(values), max(values))
        at_ends(on, labels)
        return finished(on, name=name, title=title, caption=caption, of=counted(len(costs), "backbone"))
