"""The search for a width: it finds the nearest count, and it ends."""

from hypothesis import given
from hypothesis import strategies as st

from harness.plan.expansion import MAX_GAP, closest_width


@given(
    target=st.integers(1, 10**6),
    start=st.integers(1, 300),
    step=st.sampled_from([1, 2, 4, 7, 32]),
    slope=st.integers(0, 500),
)
def test_search_finds_what_trying_all_widths_finds(target, start, step, slope):
    def total(width: int) -> int | None:
        return width * width + slope * width + 17 if width % step == 0 else None

    found = closest_width(total, target, start)
    assert found % step == 0
    nearest = min(abs(total(width) - target) for width in range(step, 1100, step))
    assert abs(total(found) - target) == nearest


def test_search_below_a_largest_width_finds_it():
    # as of a rank that the model's width bounds
    assert closest_width(lambda width: 10 * width if width <= 300 else None, 10_000, 200) == 300


def test_search_keeps_the_width_where_the_count_does_not_depend_on_it():
    assert closest_width(lambda width: 5_000, 5_000, 8) == 8


def test_search_without_a_width_that_can_be_built_finds_none():
    assert closest_width(lambda width: None, 5_000, 8) is None


def test_search_for_widths_that_can_be_built_ends():
    asked = []

    def count_at(width: int) -> int | None:
        asked.append(width)

    assert closest_width(count_at, 10**9, 50_000) is None
    assert len(asked) <= 16 * MAX_GAP  # 50,000 can be halved 15 times


def test_no_width_is_built_twice_in_a_search():
    asked = []

    def count_at(width: int) -> int | None:
        asked.append(width)
        return width if width % 32 == 0 else None

    assert closest_width(count_at, 1_000, 48) == 992
    assert len(set(asked)) == len(asked)
