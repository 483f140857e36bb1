"""Direct labels: at the ends of lines, and beside points. They replace legends."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from harness.report.figures.looks import INK, Look
from harness.report.figures.style import belongs, shown

SIZE = 7.0  # points
LINE = 1.2  # of the size: from one label to the next
ASIDE = 9  # points, from the axes to the labels of lines
DISTANCES = (5, 10, 16, 23, 31, 40, 50, 62)  # points, from a point to its label; a line joins those that are not near
NEAR = 9  # points
ANGLES = np.linspace(0, 2 * np.pi, 16, endpoint=False)
ROUNDS = 6
# The cost of a place: of each label and each mark that it covers, of each that the line to it crosses, of each other
# point that is nearer than its own, and of a point (1/72 inch) of distance.
LABEL, MARK, CROSSED, NEARER, FAR = 60.0, 12.0, 8.0, 5.0, 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A text beside a place in the data of a plot."""

    text: str
    x: float
    y: float
    look: Look


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


def beside_points(on: Axes, labels: Sequence[Label], marks: Sequence[Bbox]) -> None:
    """Write a label beside each point, where it covers no other label and as few marks as possible.

    Each label takes the best of some places around its point; this is repeated, because the others move, too.
    """
    if not labels:
        return
    on.figure.get_layout_engine().execute(on.figure)
    scale, frame = on.figure.dpi / 72, on.get_window_extent().extents
    at = [on.transData.transform((each.x, each.y)) for each in labels]
    made = [_text(on, each) for each in labels]
    drawn = [on.transData.transform_bbox(each).padded(2 * scale).extents for each in marks]
    drawn = np.array(drawn + [[*(place - 4 * scale), *(place + 4 * scale)] for place in at])
    sizes = [np.array(each.get_window_extent().size) for each in made]
    around = [_around(place, size, scale, frame) for place, size in zip(at, sizes, strict=True)]
    fixed = []
    for place, boxes in zip(at, around, strict=True):
        distance = _away(place, boxes)[1]
        nearer = sum(_away(other, boxes)[1] < distance + scale for other in at if other is not place)
        fixed.append(_cost(place, boxes, drawn, MARK) + NEARER * nearer + FAR / scale * distance)
    chosen = [boxes[cost.argmin()] for boxes, cost in zip(around, fixed, strict=True)]
    for _ in range(ROUNDS):
        for index, place in enumerate(at):
            others = np.array(chosen[:index] + chosen[index + 1 :]).reshape(-1, 4)
            chosen[index] = around[index][(fixed[index] + _cost(place, around[index], others, LABEL)).argmin()]
    for label, text, place, box in zip(labels, made, at, chosen, strict=True):
        text.set_position((box[:2] - place) / scale)
        near, distance = _away(place, box[None])
        if distance > NEAR * scale:
            line = {"arrowstyle": "-", "color": label.look.colour, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
            joined = on.annotate("", (label.x, label.y), (near[0] - place) / scale, "data", "offset points", line)
            joined.set_in_layout(False)
            belongs(label.look, "joint", joined.arrow_patch)


def _text(on: Axes, label: Label) -> Annotation:
    offset = {"textcoords": "offset points", "ha": "left", "va": "bottom", "annotation_clip": False}
    made = on.annotate(shown(label.text), (label.x, label.y), (0, 0), fontsize=SIZE, color=INK, **offset)
    made.set_in_layout(False)
    belongs(label.look, "label", made)
    return made


def _around(place: np.ndarray, size: np.ndarray, scale: float, frame: np.ndarray) -> np.ndarray:
    """The boxes of a text around a place, moved into the frame; a box is left, bottom, right, top."""
    directions = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
    steps = scale * np.array(DISTANCES)[:, None, None] * directions
    corners = (place + steps - size * (1 - directions) / 2).reshape(-1, 2)
    corners = np.clip(corners, frame[:2], np.maximum(frame[:2], frame[2:] - size))
    return np.concatenate([corners, corners + size], axis=1)


def _away(place: np.ndarray, boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The place in each box that is nearest to a place, and its distance."""
    near = np.clip(place, boxes[:, :2], boxes[:, 2:])
    return near, np.hypot(*(near - place).T)


def _cost(place: np.ndarray, boxes: np.ndarray, others: np.ndarray, covered: float) -> np.ndarray:
    """The cost of each box for what it covers, and for what the line to it crosses that is not at its place."""
    over = (boxes[:, None, :2] < others[None, :, 2:]).all(2) & (others[None, :, :2] < boxes[:, None, 2:]).all(2)
    free = others[~((others[:, :2] <= place) & (place <= others[:, 2:])).all(1)]
    steps = place + np.linspace(0, 1, 8)[1:-1, None, None] * (_away(place, boxes)[0] - place)
    inside = (free[:, :2] <= steps[:, :, None]) & (steps[:, :, None] <= free[:, 2:])
    return covered * over.sum(1) + CROSSED * inside.all(3).any(0).sum(1)
