"""How often ladders with a planted truth err: the required part of tests/support/planted_ladders.py.

False words are at most 5 % and intervals cover in 93 to 97 %; of 1,000 draws the found share is off by 0.69 % (one sd
of the binomial distribution at 5 %). So each bound below is the one that 1 % of studies would miss, were the true share
at the end of what is allowed. The mean coverage over sizes has no such allowance.
"""

import pytest
from planted_ladders import CONSTANT, TREND, WORDS, ZERO, Planted, found_in
from scipy import stats

pytestmark = pytest.mark.system

LADDERS = 1_000
HIGHEST = stats.binom.isf(0.01, LADDERS, 0.05) / LADDERS  # 0.067 of false words
COVERED = stats.binom.isf([0.99, 0.01], LADDERS, [0.93, 0.97]) / LADDERS  # 0.911 to 0.982
CHANGES = ("shrinks", "grows")


def changed(found) -> float:
    return sum(found.words[word] for word in CHANGES) / found.ladders


def covers(found, kind: str) -> bool:
    lowest, mean, highest = found.coverage(kind)
    return COVERED[0] <= lowest <= highest <= COVERED[1] and 0.93 <= mean <= 0.97


@pytest.mark.parametrize("sizes", [2, 3, 4])
def test_a_head_that_equals_the_baseline_seldom_has_a_gain_or_a_trend(sizes):
    found = found_in(Planted(gains=ZERO[:sizes]), ladders=LADDERS, draw=1)
    assert found.either / LADDERS <= HIGHEST
    assert covers(found, "share in nats")
    assert covers(found, "share in ppl")
    assert covers(found, "trend")


@pytest.mark.parametrize("sizes", [2, 3, 4])
def test_a_gain_that_is_the_same_at_all_sizes_seldom_has_a_trend(sizes):
    found = found_in(Planted(gains=CONSTANT[:sizes]), ladders=LADDERS, draw=2)
    assert changed(found) <= HIGHEST
    assert changed(found) > 0.02  # the rule gives away no more than it must


def test_a_trend_of_one_per_cent_a_doubling_is_found():
    found = found_in(Planted(gains=TREND), ladders=LADDERS, draw=3)
    assert found.words["shrinks"] >= 0.9 * LADDERS
    assert found.words["grows"] == 0
    assert all(covers(found, kind) for kind in ("share in nats", "share in ppl", "trend"))


@pytest.mark.parametrize(("gains", "expected"), WORDS.items())
def test_words_of_planted_ladders(gains, expected):
    found = found_in(Planted(gains=gains), ladders=300, draw=4)
    assert found.words.most_common(1)[0][0] == expected
    assert found.words[expected] >= 0.65 * found.ladders


@pytest.mark.parametrize("gains", [TREND, ZERO])
def test_intervals_of_worth_cover(gains):
    found = found_in(Planted(gains=gains, floor=None), ladders=LADDERS, draw=5)
    assert covers(found, "worth by lines")
    assert covers(found, "worth by law")


def test_intervals_cover_if_seeds_spread_less_at_larger_sizes():
    # with a spread pooled over sizes the trend is covered in 91 %, and the share at the first size in 80 %
    found = found_in(Planted(gains=ZERO, noise=(0.01, 0.0063, 0.004, 0.0025)), ladders=LADDERS, draw=6)
    assert found.either / LADDERS <= HIGHEST
    assert all(covers(found, kind) for kind in ("share in nats", "share in ppl", "trend"))
