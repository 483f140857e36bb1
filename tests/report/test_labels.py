"""Direct labels: none covers another, each is near its own point, ends of lines keep their order."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from matplotlib.transforms import Bbox

from harness.report.figures.labels import ASIDE, LINE, SIZE, Label, at_ends, beside_points, spread
from harness.report.figures.looks import by_index
from harness.report.figures.style import axes, least_span, settings

NAMES = ("softmax", "affine softmax", "affine softmax, rank 16", "MoS 1", "MoS 5", "DOC 2+1", "MoC 5")


def boxes(on):
    """What is written in the axes, by its text."""
    on.figure.draw_without_rendering()
    return {text.get_text(): Bbox.from_bounds(*_lower_left(text), *_size(text)) for text in on.texts if text.get_text()}


def _size(text):
    found = text.get_window_extent()
    whole = super(type(text), text).get_window_extent()  # of an annotation: the text without its line
    return min(found.width, whole.width), min(found.height, whole.height)


def _lower_left(text):
    return super(type(text), text).get_window_extent().min


def placed(points, marks=()):
    with settings():
        on = axes("cost", "perplexity")
        on.plot([x for x, _ in points], [y for _, y in points], "o")
        on.margins(x=0.12, y=0.1)
        labels = [Label(text=NAMES[index], x=x, y=y, look=by_index(index)) for index, (x, y) in enumerate(points)]
        beside_points(on, labels, marks)
        return on, boxes(on)


@pytest.mark.parametrize("seed", range(6))
def test_no_label_covers_another_or_leaves_the_axes(seed):
    drawn = np.random.default_rng(seed)
    points = [(float(x), float(y)) for x, y in drawn.normal(size=(7, 2))]
    points = points[:4] + [(points[0][0] + 0.02 * n, points[0][1] + 0.02 * n) for n in (1, 2, 3)]  # a cluster
    on, found = placed(points)
    assert len(found) == 7
    assert not [pair for pair in combinations(found.values(), 2) if Bbox.intersection(*pair) is not None]
    frame = on.get_window_extent()
    for box in found.values():
        assert frame.x0 - 1 <= box.x0 <= box.x1 <= frame.x1 + 1
        assert frame.y0 - 1 <= box.y0 <= box.y1 <= frame.y1 + 1


def test_a_label_alone_stands_beside_its_point_and_one_in_a_crowd_has_a_line_to_it():
    def lines(on):
        return [text for text in on.texts if text.get_text() == "" and text.arrow_patch is not None]

    on, _ = placed([(0.0, 0.0), (9.0, 9.0)])
    assert lines(on) == []
    on, _ = placed([(0.0, 0.0), *((9 + n / 50, 9 + n / 50) for n in range(6))])
    assert lines(on)


def test_a_label_covers_no_bar_where_there_is_room():
    bar = Bbox([[1.0, -8.0], [1.0, 8.0]])
    on, found = placed([(0.0, 0.0), (1.0, 0.0), (2.0, 0.0), (1.0, 8.0), (1.0, -8.0)], [bar])
    shown = on.transData.transform_bbox(bar)
    assert [
        name
        for name, box in found.items()
        if box.x0 < shown.x0 < box.x1 and box.y0 < shown.y1 - 5 and box.y1 > shown.y0 + 5
    ] == []


@pytest.mark.parametrize(
    ("wanted", "gap", "expected"),
    [
        ([5, 1, 3], 1, [5, 1, 3]),  # room for all
        ([5, 5, 5], 1, [4, 5, 6]),  # around their mean, in the order given
        ([0, 0, 9], 2, [0, 2, 9]),  # not below the lowest place
        ([10, 10, 10], 3, [4, 7, 10]),  # not above the highest
        ([5, 5.5, 8], 1, [4.75, 5.75, 8]),
        ([0, 0, 0], 9, [0, 9, 18]),  # no room: from the lowest on
    ],
)
def test_places_are_as_near_to_the_wanted_ones_as_their_distance_allows(wanted, gap, expected):
    assert spread(wanted, gap, 0, 10) == pytest.approx(expected)


def test_labels_of_lines_are_to_the_right_in_the_order_of_their_ends():
    with settings():
        on = axes("epoch", "perplexity")
        ends = [1.0, 1.01, 1.02, 5.0, 1.03, 40.0, 1.04]
        for end in ends:
            on.plot([0, 1], [9, end])
        on.set_ylim(0, 10)  # one line ends above the axes
        at_ends(on, [Label(text=name, x=1, y=end, look=by_index(0)) for name, end in zip(NAMES, ends, strict=True)])
        found = boxes(on)
    places = [found[name].y0 for _, name in sorted(zip(ends, NAMES, strict=True))]
    scale = on.figure.dpi / 72
    assert all(upper - lower >= LINE * SIZE * scale - 1 for lower, upper in pairwise(places))
    assert all(box.x0 >= on.get_window_extent().x1 + ASIDE * scale / 2 for box in found.values())
    assert on.get_window_extent().y0 - 9 <= min(places) <= max(places) <= on.get_window_extent().y1


@pytest.mark.parametrize(
    ("values", "noise", "least"),
    [
        ([16.2490, 16.2510], [], 4 * 0.1625),  # without known noise it is 1 % of the values
        ([16.2490, 16.2510], [0.5, 0.3, 0.4], 4 * 0.4),  # the median
        ([10.0, 30.0], [1.0], 20.0),  # wide enough: as it is
        ([-0.01, 0.01], [0.1], 0.4),  # changes, around 0
    ],
)
def test_an_axis_is_never_finer_than_the_noise(values, noise, least):
    with settings():
        on = axes("", "")
        on.plot([0, 1], values)
        before = on.get_ylim()
        least_span(on.yaxis, noise)
    low, high = on.get_ylim()
    assert high - low == pytest.approx(max(least, before[1] - before[0]))
    assert low + high == pytest.approx(sum(before))
