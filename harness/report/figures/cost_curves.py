"""The plots of `harness bench backbone`: measured costs by context length, and a line for each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.printable import counted
from harness.report.figures.style import Plot, axes, finished, legend, logarithmic, set_titles, settings, style

X = "context length T, tokens"
POINTS = 200  # of a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The costs of one backbone.

    Args:
        measured: context length -> cost.
        fit: context length -> the fitted cost; None: the line joins the measured ones.
    """

    label: str
    measured: Mapping[int, float]
    fit: Callable[[float], float] | None = None


def draw(curves: Sequence[Curve], name: str, title: str, below: str, y: str, caption: str) -> Plot:
    """The plot of some backbones, on logarithmic axes; the same values give the same bytes.

    Args:
        below: the line below the title.
        y: what the costs are, with their unit.
        caption: what marks and lines are.
    """
    with settings():
        on, entries = axes(X, y), []
        for index, curve in enumerate(curves):
            look, lengths = style(index), sorted(curve.measured)
            ratio = lengths[-1] / lengths[0]
            grid = [lengths[0] * ratio ** (each / (POINTS - 1)) for each in range(POINTS)]
            on.plot(lengths, [curve.measured[T] for T in lengths], look.marker, color=look.colour)
            points = grid if curve.fit is not None else lengths
            costs = map(curve.fit or curve.measured.__getitem__, points)
            (line,) = on.plot(points, list(costs), color=look.colour, linestyle=look.line)
            entries.append((line, curve.label))
        values = [value for curve in curves for value in curve.measured.values()]
        lengths = [T for curve in curves for T in curve.measured]
        logarithmic(on.xaxis, min(lengths), max(lengths))
        logarithmic(on.yaxis, min(values), max(values))
        legend(on, entries)
        set_titles(on, title, below)
        return finished(on, name=name, title=title, caption=caption, of=counted(len(curves), "backbone"))
