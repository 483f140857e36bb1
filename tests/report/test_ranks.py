"""Which row is the best, which are behind it or tie with it, and which have no rank."""

import math

import handmade
import numpy as np
import pytest
from made_tables import with_records
from scipy import stats

from harness.report import ranks as ranks_module

BASE = np.array([100.0, 101, 102, 103, 104, 105])
NOISE = np.array([0.1, -0.2, 0.15, -0.05, 0.2, -0.2])
MIDDLE, FAR = BASE * 1.05 + NOISE, BASE * 1.1 - NOISE
NEAR = BASE + np.array([1.0, -1.2, 0.9, -0.8, 1.1, -0.9])  # equal on average
UNIT = np.array([1, -1, 1, -1, 1, -1]) * math.sqrt(5 / 6)  # mean 0, sd 1
WIDE = np.array([50.0, 70, 100, 140, 200, 280])  # pairs differ by little and always alike, the means do not
DIVERGED, NOT_RUN = math.nan, None
LOST = [*(BASE * 3)[:5], DIVERGED]
# The differences have t = sqrt(6) / sd in units of their mean. With 5 degrees of freedom p is 0.05 at 2.571, 0.05 / 2
# at 3.163 and 0.025 / 3 at 4.22.
SECOND = np.exp(np.log(BASE) + 0.001 * (1 + UNIT * math.sqrt(6) / 3.7))
THIRD = np.exp(np.log(BASE) + 0.0005 * (1 + UNIT[::-1] * math.sqrt(6) / 0.5))
BEHIND, OTHER = (np.exp(np.log(BASE) + 0.001 * (1 + way * UNIT * math.sqrt(6) / 2.9)) for way in (1, -1))
# p of this pair alone is between 0.025 / 3 and 0.025: behind of one pair, a tie of three
CLOSE = BASE * np.exp(0.02 + 0.0125 * np.array([1.0, -1, 1, -1, 1, -1]))


def ranks(lines, test="paired", margin=1e-6, **more):
    """The ranks by place, as letters: best, tie, behind, and '-' for none."""
    found = handmade.by_place(lines, ranks_module.ranks(lines, test, margin, **more))
    letters = {"best": "1", "tie": "=", "behind": "2"}
    return "".join(letters[found[at]] if at in found else "-" for at in range(len(lines)))


@pytest.fixture
def table(table_of):
    return lambda *values: table_of(4, max(map(len, values)))(*values)


@pytest.mark.parametrize(
    ("values", "more", "expected"),
    [
        ((FAR, BASE, MIDDLE), {}, "212"),
        ((FAR, BASE, NEAR), {}, "2=="),
        ((BASE,), {}, "-"),
        *(((BASE[:n], BASE[:n] * 2, BASE[:n] * 3), {}, "---") for n in (1, 2, 5)),  # however far apart
        # without a best row p is corrected over all pairs; the best over the other rows
        ((BASE, SECOND), {}, "12"),
        ((BASE, SECOND, THIRD), {}, "==="),
        ((BASE, BEHIND), {}, "12"),
        ((BASE, BEHIND, OTHER), {}, "==="),
        # pairs without a test count in the correction
        ((BASE, CLOSE), {}, "12"),
        ((BASE, CLOSE, LOST), {}, "==-"),
        ((BASE, CLOSE, [NOT_RUN] * 6), {}, "==-"),
        ((BASE, CLOSE), {"without_point": 1}, "=="),
        # a row without a rank prevents a best row, if it may be better
        (([*BASE, 106, 107], [*(BASE * 0.95 + NOISE), DIVERGED, DIVERGED], [*MIDDLE, 111, 112.5]), {}, "=-2"),
        (([*BASE, 106, 107], [*(BASE * 1.2 + NOISE), DIVERGED, DIVERGED], [*MIDDLE, 111, 112.5]), {}, "1-2"),
        (([*BASE, NOT_RUN], [*MIDDLE, 110.0], [*FAR, 120.0]), {}, "-=2"),
        ((BASE, MIDDLE, LOST), {}, "=2-"),  # five seeds are too few to test it
        ((BASE, MIDDLE, FAR, [NOT_RUN] * 6), {}, "=22-"),
        ((BASE, MIDDLE, FAR, [DIVERGED] * 6), {}, "=22-"),
        ((BASE, MIDDLE), {"without_point": 1}, "=2"),
        # none is the best where another is higher by less than is of interest; equal differences have an sd of 0
        ((BASE * 1.00009, BASE, MIDDLE), {}, "212"),
        ((BASE * 1.00009, BASE, MIDDLE), {"margin": 0.01}, "==2"),
        ((WIDE, WIDE * 1.01 + NOISE / 100), {}, "12"),
        ((WIDE, WIDE * 1.01 + NOISE / 100), {"test": "welch"}, "=="),
        ((BASE, MIDDLE, BASE * 20), {}, "122"),  # collapsed
        ((BASE * 20, BASE * 30), {}, "--"),
        (([-1.0] * 6, [0.0] * 6), {}, "--"),  # forged
    ],
)
def test_ranks_by_hand(table, values, more, expected):
    assert ranks(table(*values), **more) == expected


def test_the_planted_pair_is_as_close_as_said():
    assert 0.025 / 3 < stats.ttest_rel(np.log(CLOSE), np.log(BASE)).pvalue < 0.025


def test_a_difference_within_the_margin_is_none_of_interest(table):
    # of 0.007 nats, with p below 0.05, the 90 % interval (t_{0.95, 5} = 2.015) ends below or above a margin of 0.01
    for half, expected in ((0.0025, "=="), (0.0035, "12")):
        other = np.exp(np.log(BASE) + 0.007 + UNIT * half * math.sqrt(6) / 2.015)
        assert ranks(table(BASE, other), margin=math.expm1(0.01)) == expected


def test_a_row_that_is_not_converged_or_has_an_invalid_trial_is_not_ranked(table, with_curve):
    one, two, three = table(BASE, MIDDLE, FAR)
    falling = [200.0, 100.0]
    assert ranks([with_curve(one, falling), two, three]) == "-=2"
    assert ranks([with_curve(one, falling, trials=3), two, three]) == "122"  # half of them
    assert ranks([one, two, with_curve(three, falling)]) == "12-"
    invalid = three.records[6].model_copy(update={"status": "invalid"})
    assert ranks([one, two, with_records(three, {**three.records, 6: invalid})]) == "12-"


def test_devices_are_not_ranked_together(table):
    def on(row, *devices):
        moved = {}
        for (seed, record), device in zip(row.records.items(), devices, strict=True):
            environment = record.environment.model_copy(update={"device": device})
            moved[seed] = record.model_copy(update={"environment": environment})
        return with_records(row, moved)

    one, two, three, four = table(FAR, MIDDLE, BASE, BASE * 0.9 - NOISE)
    gpu = ["gpu"] * 6
    assert ranks([one, two, three, four]) == "2221"
    assert ranks([one, on(two, *gpu), three, on(four, *gpu)]) == "2211"
    assert ranks([one, two, three, on(four, *gpu)]) == "221-"
    assert ranks([one, two, three, on(four, *gpu[:5], "a processor")]) == "221-"
