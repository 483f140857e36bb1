"""Line plots: `lines` draws them all, and says in a legend which line is whose."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from matplotlib.axes import Axes

from harness.report.figures.looks import Look
from harness.report.figures.style import Frame, axes, belongs, logarithmic, shown

MARKED = 20  # points; of a longer line, only some have a marker


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotPoint:
    """A point of a line.

    Args:
        x, y: its coordinates; y may be a mean over seeds.
        low, high: those of the lowest seed and of the highest; both are y if there is one.
        printed: y in a paper that counts tokens in the same way, and the title of the paper.
    """

    x: float
    y: float
    low: float
    high: float
    printed: float | None = None
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line: points in the order of x.

    Args:
        joined: whether a line joins the points.
    """

    label: str
    look: Look
    points: tuple[PlotPoint, ...]
    joined: bool = True


def lines(
    found: Sequence[Series], x: str, y: str, frame: Frame | None = None, *, log: str = "", bands: bool = False
) -> Axes:
    """New axes with a line for each series, its range over seeds, and printed values as stars.

    Args:
        x, y: what the axes are named.
        log: 'x', 'y' or 'xy': the axes that are logarithmic where their values span more than a factor of 3.
        bands: show ranges as bands, not as bars.
    """
    on = axes(x, y, frame)
    for each in found:
        drawn = _line(on, each, bands=bands)
        printed = [point for point in each.points if point.printed is not None]
        for point in printed:
            star = {"color": each.look.colour, "markersize": 9, "fillstyle": "none", "clip_on": False}
            drawn += on.plot(point.x, point.printed, "*", label=shown(point.source), **star)
        belongs(each.look.row, drawn)
    points = [point for each in found for point in each.points]
    if "x" in log:
        logarithmic(on.xaxis, [point.x for point in points])
    if "y" in log:
        logarithmic(on.yaxis, [point.y for point in points])
    return on


def _line(on: Axes, of: Series, *, bands: bool) -> list:
    look, at = of.look, [point.x for point in of.points]
    lows, highs = [point.low for point in of.points], [point.high for point in of.points]
    drawn = on.plot(
        at,
        [point.y for point in of.points],
        color=look.colour,
        linestyle=look.line if of.joined else "",
        marker=look.marker,
        markevery=0.12 if len(at) > MARKED else None,  # of the diagonal of the axes
        label=shown(of.label),
    )
    if lows == highs:
        return drawn
    if bands:
        return [*drawn, on.fill_between(at, lows, highs, color=look.colour, alpha=0.15, linewidth=0)]
    return [*drawn, on.vlines(at, lows, highs, color=look.colour, alpha=0.6, linewidth=1.2)]


def apart(found: Sequence[Series]) -> list[Series]:
    """The same lines, moved a little in x, so that no bar is behind another."""
    places = sorted({point.x for each in found for point in each.points})
    least = min((after - before for before, after in pairwise(places)), default=0)
    step = min(0.6 * least / len(found), (places[-1] - places[0]) / 60)
    moved = []
    for number, each in enumerate(found):
        aside = step * (number - (len(found) - 1) / 2)
        points = tuple(replace(point, x=point.x + aside) for point in each.points)
        moved.append(replace(each, points=points))
    return moved
