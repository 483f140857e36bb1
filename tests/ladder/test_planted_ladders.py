"""How often ladders with a planted truth err: the required part of tests/support/planted_ladders.py.

The planted shares are at most 5 %, or 95 %; of 1,000 draws the found one is off by 0.69 % (one sd of the binomial
distribution). `HIGHEST` is the share above which 1 % of studies would be, were the truth 5 %.
"""

import pytest
from planted_ladders import CONSTANT, TREND, WORDS, ZERO, Planted, found_in
from scipy import stats

pytestmark = pytest.mark.system

LADDERS = 1_000
HIGHEST = stats.binom.isf(0.01, LADDERS, 0.05) / LADDERS  # 0.067
CHANGES = ("shrinks", "grows")


def changed(found) -> float:
    return sum(found.words[word] for word in CHANGES) / found.ladders


@pytest.mark.parametrize("sizes", [2, 3, 4])
def test_a_head_that_equals_the_baseline_seldom_has_a_gain_or_a_trend(sizes):
    found = found_in(Planted(gains=ZERO[:sizes]), ladders=LADDERS, draw=1)
    assert found.either / LADDERS <= HIGHEST
    assert found.coverage("share") >= (0.93, 0.93)
    assert found.coverage("share") <= (0.97, 0.97)


@pytest.mark.parametrize("sizes", [2, 3, 4])
def test_a_gain_that_is_the_same_at_all_sizes_seldom_has_a_trend(sizes):
    found = found_in(Planted(gains=CONSTANT[:sizes]), ladders=LADDERS, draw=2)
    assert changed(found) <= HIGHEST
    assert changed(found) > 0.02  # the rule gives away no more than it must


def test_a_trend_of_one_per_cent_a_doubling_is_found():
    found = found_in(Planted(gains=TREND), ladders=LADDERS, draw=3)
    assert found.words["shrinks"] >= 0.9 * LADDERS
    assert found.words["grows"] == 0
    (low, high), in_trend = found.coverage("share"), found.coverage("trend")
    assert 0.93 <= low <= high <= 0.97
    assert 0.93 <= in_trend[0] <= 0.97


@pytest.mark.parametrize(("gains", "expected"), WORDS.items())
def test_words_of_planted_ladders(gains, expected):
    found = found_in(Planted(gains=gains), ladders=300, draw=4)
    assert found.words.most_common(1)[0][0] == expected
    assert found.words[expected] >= 0.65 * found.ladders


@pytest.mark.parametrize("gains", [TREND, ZERO])
def test_intervals_of_worth_cover(gains):
    found = found_in(Planted(gains=gains, floor=None), ladders=LADDERS, draw=5)
    for kind in ("worth by lines", "worth by law"):
        low, high = found.coverage(kind)
        assert 0.93 <= low <= high <= 0.97
