"""The names of rows: at the ends of a few lines, none over another, or in a legend."""

from itertools import pairwise

import pytest
from matplotlib.transforms import Bbox

from harness.report.figures.labels import ASIDE, LINE, MOST_AT_ENDS, SIZE, Label, at_ends, named, spread
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


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("count", [MOST_AT_ENDS, MOST_AT_ENDS + 1])
def test_points_and_many_lines_are_named_in_a_legend(count, points):
    names = NAMES[:count]
    with settings():
        on = axes("cost", "perplexity")
        mark = on.axhline(1, color="k")
        labels = [Label(text=name, x=1, y=index, look=by_index(index)) for index, name in enumerate(names)]
        named(on, labels, [(mark, "printed")], points=points)
    (legend,) = on.figure.legends
    inside = [text.get_text() for text in legend.get_texts()]
    if count == MOST_AT_ENDS and not points:
        assert (inside, len(on.texts)) == (["printed"], count)
    else:
        assert (inside, on.texts[:]) == ([*names, "printed"], [])
