"""The names of rows in a plot: at the ends of a few lines, or else in a legend."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from harness.report.figures.looks import INK, Look
from harness.report.figures.style import belongs, legend, shown

SIZE = 7.0  # points
LINE = 1.2  # of the size: from one label to the next
ASIDE = 9  # points, from the axes to the labels of lines
MOST_AT_ENDS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A text beside a place in the data of a plot."""

    text: str
    x: float
    y: float
    look: Look


def named(on: Axes, labels: Sequence[Label], marks: Sequence[tuple[Artist, str]] = (), *, points: bool = False) -> None:
    """Name rows at the ends of their lines; points, and more than MOST_AT_ENDS lines, in the legend.

    Args:
        marks: what else the legend names.
        points: the rows are points.
    """
    if not points and len(labels) <= MOST_AT_ENDS:
        legend(on, marks)
        at_ends(on, labels)
        return
    looks = [label.look for label in labels]
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, linestyle="" if points else look.line) for look in looks
    ]
    made = legend(on, [*zip(handles, (label.text for label in labels), strict=True), *marks])
    for look, text, handle in zip(looks, made.get_texts(), made.legend_handles, strict=False):
        belongs(look, "label", text, handle)


def at_ends(on: Axes, labels: Sequence[Label]) -> None:
    """Write labels to the right of the axes, each near the height at which its line ends, none over another."""
    on.figure.get_layout_engine().execute(on.figure)
    box, points = on.get_window_extent(), 72 / on.figure.dpi
    low, high = sorted(on.get_ylim())
    inside = [(each.x, min(max(each.y, low), high)) for each in labels]
    heights = [on.transAxes.inverted().transform(on.transData.transform(place))[1] for place in inside]
    right = 1 + ASIDE / (box.width * points)
    for label, place, height in zip(
        labels, inside, spread(heights, LINE * SIZE / (box.height * points), 0, 1), strict=True
    ):
        line = {"arrowstyle": "-", "color": label.look.colour, "linewidth": 0.7, "relpos": (0, 0.5), "shrinkA": 1}
        made = on.annotate(
            shown(label.text),
            place,
            (right, height),
            textcoords="axes fraction",
            va="center",
            fontsize=SIZE,
            color=INK,
            arrowprops={**line, "shrinkB": 1},
            annotation_clip=False,
        )
        belongs(label.look, "label", made, made.arrow_patch)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places in the order of the wanted ones and at least `gap` apart, with the least sum of squared distances to them.
    They are between low and high if there is room.
    """
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    blocks: list[list[float]] = []  # of neighbours that touch: what each wants less its distance from the first one
    for rank, index in enumerate(order):
        blocks.append([wanted[index] - rank * gap])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    last = max(low, high - (len(order) - 1) * gap)
    starts = [min(max(float(np.mean(block)), low), last) for block in blocks for _ in block]
    places = dict(zip(order, (start + rank * gap for rank, start in enumerate(starts)), strict=True))
    return [places[index] for index in range(len(wanted))]
