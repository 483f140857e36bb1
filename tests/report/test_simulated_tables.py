"""How often tables of planted heads err: rows with drawn log perplexities, judged as the rows of any suite are."""

import math
from dataclasses import replace
from types import SimpleNamespace

import handmade
import numpy as np
import pytest

from harness.plan.suite_file import TableSpec
from harness.report.ranks import ranks
from harness.report.verdicts import compare

pytestmark = pytest.mark.system

BETTER, DECIDED = {"better"}, {"better", "worse"}


@pytest.fixture
def judged(table_of):
    """A function: how far each head is above the first in nats, seeds, sd of a pair's difference, number of tables,
    random seed, how many of the first heads are controls -> verdicts, stars and ranks of each table.

    Log perplexities are a level of each seed, which all heads share, and noise of each head and seed, so that the heads
    of a table are compared with the same noise of the baseline.
    """

    def simulate(above, *, seeds: int, sd: float, tables: int, draw: int, test: str = "paired", controls: int = 1):
        rng, heads, table = np.random.default_rng(draw), len(above), table_of(len(above), seeds)
        level = 4.6 + rng.normal(0, 0.02, (tables, 1, seeds))
        noise = rng.normal(0, sd / math.sqrt(2), (tables, heads, seeds))
        spec = TableSpec(baseline="softmax", test=test)
        for ppl in np.exp(level + noise + np.asarray(above)[:, None]).tolist():
            lines = [
                replace(line, planned=replace(line.planned, is_control=at < controls))
                for at, line in enumerate(table(*ppl))
            ]
            compared = compare(
                lines, spec, SimpleNamespace(token_scores=lambda trial: None, rows_without_point=0, untuned_controls=())
            )
            yield tuple(handmade.by_place(lines, each) for each in (compared, ranks(lines, test, spec.margin)))

    return simulate


def share(found) -> float:
    return float(np.mean(list(found)))


@pytest.mark.parametrize("seeds", [6, 8])
def test_of_14_equal_heads_some_row_is_seldom_said_to_differ(judged, seeds):
    verdicts, ranked, uncorrected = [], [], []
    for compared, ranks_of in judged([0.0] * 14, seeds=seeds, sd=0.005, tables=1_000, draw=seeds):
        assert (len(compared), len(ranks_of)) == (13, 14)
        verdicts.append(any(each.verdict in DECIDED or each.stars for each in compared.values()))
        ranked.append(not set(ranks_of.values()) <= {"tie"})
        uncorrected.append(any(each.difference.p_t < 0.05 for each in compared.values()))
    assert share(a or b for a, b in zip(verdicts, ranked, strict=True)) <= 0.07
    assert share(verdicts) > 0.02  # the correction gives away no more than it must
    assert share(uncorrected) > 0.25  # what it is there for


def test_a_head_that_is_better_by_two_per_cent_is_found(judged):
    better = math.log(0.98)
    for heads in (2, 8, 14):
        above = [0.0, better, *[0.0] * (heads - 2)]
        tables = list(judged(above, seeds=8, sd=0.007, tables=100, draw=heads))
        assert share(compared[1].verdict in BETTER and bool(compared[1].stars) for compared, _ in tables) >= 0.9
        assert share(ranks_of[1] == "best" for _, ranks_of in tables) >= 0.9
        assert not any("best" in (rank for index, rank in ranks_of.items() if index != 1) for _, ranks_of in tables)


def test_a_head_that_is_better_by_two_per_cent_is_found_by_welchs_test_where_seeds_do_not_matter(judged):
    tables = judged([0.0, math.log(0.96)], seeds=8, sd=0.007, tables=100, draw=3, test="welch")
    # the level of a seed has sd 0.02, so that 4 % is two of them: t = 0.04 / (0.0206 / 2) = 3.9, 14 degrees of freedom
    assert share(compared[1].verdict == "better" for compared, _ in tables) >= 0.9


@pytest.mark.parametrize("seeds", [1, 2, 3, 5])
def test_below_six_seeds_nothing_is_ranked_starred_or_decided(judged, seeds):
    for compared, ranks_of in judged([0.0, -0.5, 0.3, 1.0], seeds=seeds, sd=0.005, tables=100, draw=5):
        assert not ranks_of
        assert {(each.verdict, each.stars) for each in compared.values()} == {("too few seeds", "")}


def test_equal_heads_are_equivalent_where_the_spread_is_small_and_those_at_the_margin_seldom(judged):
    equal = judged([0.0, 0.0], seeds=8, sd=0.003, tables=200, draw=11)
    assert share(compared[1].verdict == "equivalent" for compared, _ in equal) >= 0.9
    # at the margin itself the test of equivalence has its level, 5 %
    at_margin = judged([0.0, math.log(1.01)], seeds=8, sd=0.003, tables=1_000, draw=12)
    assert 0.03 <= share(compared[1].beyond.equivalent < 0.05 for compared, _ in at_margin) <= 0.07


def test_intervals_and_p_values_have_their_levels(judged):
    effects = [0.0, math.log(0.99), 0.0, 0.0]
    found = [compared for compared, _ in judged(effects, seeds=8, sd=0.005, tables=1_000, draw=8)]
    held = [each.difference.low <= effects[i] <= each.difference.high for of in found for i, each in of.items()]
    assert 0.93 <= share(held) <= 0.97
    assert 0.03 <= share(of[2].difference.p_t < 0.05 for of in found) <= 0.07
    assert 0.03 <= share(of[2].p_sign_flip < 0.05 for of in found[:500]) <= 0.07
    assert share(of[1].stars != "" for of in found) > 0.95  # one per cent is twice the sd
    assert share(of[1].difference.sd ** 2 for of in found) == pytest.approx(0.005**2, rel=0.05)


@pytest.mark.parametrize("controls", [2, 3, 4])
def test_with_several_controls_a_head_is_seldom_falsely_better_and_a_better_one_is_found(judged, controls):
    """Eight heads, 6 seeds; all controls are equal to the heads, or one is and the others are weak. The spread is wide,
    so that heads are not equivalent.
    """
    for weak in (0.0, 0.1):
        above = [0.0, *[weak] * (controls - 1), *[0.0] * 8]
        found = [compared for compared, _ in judged(above, seeds=6, sd=0.03, tables=1_000, draw=1, controls=controls)]
        assert share(any(each.verdict == "better" for each in of.values()) for of in found) <= 0.05
        assert share(any(each.verdict in DECIDED for each in of.values()) for of in found) <= 0.07
    better = [0.0] * controls + [math.log(0.98)] + [0.0] * 7
    found = [compared for compared, _ in judged(better, seeds=6, sd=0.005, tables=200, draw=2, controls=controls)]
    assert share(of[controls].verdict == "better" for of in found) >= 0.9
