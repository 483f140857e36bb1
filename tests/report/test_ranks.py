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
DIVERGED = math.nan


def ranks(lines, test, margin=1e-6, **more):
    return handmade.by_place(lines, ranks_module.ranks(lines, test, margin, **more))


@pytest.fixture
def table(table_of):
    return table_of(4, 6)


def test_the_lowest_is_the_best_where_all_others_differ_from_it(table):
    assert ranks(table(FAR, BASE, MIDDLE), "paired") == {0: "behind", 1: "best", 2: "behind"}


def test_the_lowest_is_a_tie_where_another_does_not_differ_from_it(table):
    assert ranks(table(FAR, BASE, NEAR), "paired") == {0: "behind", 1: "tie", 2: "tie"}


def test_one_row_has_nothing_to_be_ranked_with(table):
    assert ranks(table(BASE), "paired") == {}


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_fewer_than_six_seeds_give_no_rank_however_far_apart(table_of, seeds):
    values = [BASE[:seeds], BASE[:seeds] * 2, BASE[:seeds] * 3]
    assert ranks(table_of(4, seeds)(*values), "paired") == {}


def test_without_a_best_row_p_is_corrected_over_all_pairs_of_rows(table_of):
    # differences of mean 1 and sd s over 6 seeds have t = sqrt(6) / s; p of the two-sided test with 5 degrees of
    # freedom is 0.05 at 2.571, and 0.025 / 3 at 4.22, for the first of three pairs: t = 3.7 is less
    unit = np.array([1, -1, 1, -1, 1, -1]) * math.sqrt(5 / 6)  # mean 0, sd 1
    first = np.log(BASE)
    second = first + 0.001 * (1 + unit * math.sqrt(6) / 3.7)
    third = first + 0.0005 * (1 + unit[::-1] * math.sqrt(6) / 0.5)
    two, three = [np.exp(first), np.exp(second)], [np.exp(first), np.exp(second), np.exp(third)]
    assert ranks(table_of(2, 6)(*two), "paired") == {0: "best", 1: "behind"}
    assert ranks(table_of(4, 6)(*three), "paired")[1] == "tie"


def test_the_best_is_corrected_over_the_other_rows(table_of):
    # 0.05 / 2 is p of t = 3.163: of two others that differ by t = 2.9 (p = 0.034) neither is rejected, of one it is
    unit = np.array([1, -1, 1, -1, 1, -1]) * math.sqrt(5 / 6)
    behind, other = (np.exp(np.log(BASE) + 0.001 * (1 + way * unit * math.sqrt(6) / 2.9)) for way in (1, -1))
    assert ranks(table_of(2, 6)(BASE, behind), "paired") == {0: "best", 1: "behind"}
    assert ranks(table_of(3, 6)(BASE, behind, other), "paired") == {0: "tie", 1: "tie", 2: "tie"}


def test_a_row_that_lost_a_seed_is_not_ranked_and_nothing_above_it_is_the_best(table_of):
    table = table_of(4, 8)
    base = np.append(BASE, [106, 107])
    better = [*(BASE * 0.95 + NOISE), DIVERGED, DIVERGED]
    worse = [*(BASE * 1.2 + NOISE), DIVERGED, DIVERGED]
    other = base * 1.05 + np.append(NOISE, [0, 0])
    assert ranks(table(base, better, other), "paired") == {0: "tie", 2: "behind"}
    assert ranks(table(base, worse, other), "paired") == {0: "best", 2: "behind"}


def test_a_row_whose_seeds_are_not_all_run_is_not_ranked(table_of):
    lines = table_of(4, 7)([*BASE, None], [*MIDDLE, 110.0], [*FAR, 120.0])
    assert ranks(lines, "paired") == {1: "tie", 2: "behind"}


def test_with_too_few_shared_seeds_to_test_a_row_there_is_no_best(table):
    lost = [*(BASE[:5] * 3), DIVERGED]
    assert ranks(table(BASE, MIDDLE, lost), "paired") == {0: "tie", 1: "behind"}


def test_no_row_is_the_best_where_another_is_higher_by_less_than_is_of_interest(table):
    shaved = table(BASE * 1.00009, BASE, MIDDLE)  # the difference is the same for every seed: its sd is 0
    assert ranks(shaved, "paired") == {0: "behind", 1: "best", 2: "behind"}
    assert ranks(shaved, "paired", margin=0.01) == {0: "tie", 1: "tie", 2: "behind"}
    # of 0.007 nats, with p below 0.05, the 90 % interval (t_{0.95, 5} = 2.015) ends below or above a margin of 0.01
    unit = np.array([1, -1, 1, -1, 1, -1]) * math.sqrt(5 / 6)  # mean 0, sd 1
    for half, expected in ((0.0025, {0: "tie", 1: "tie"}), (0.0035, {0: "best", 1: "behind"})):
        other = np.exp(np.log(BASE) + 0.007 + unit * half * math.sqrt(6) / 2.015)
        assert ranks(table(BASE, other), "paired", margin=math.expm1(0.01)) == expected


@pytest.mark.parametrize("state", [None, DIVERGED], ids=["not run", "diverged"])
def test_a_row_without_any_result_prevents_a_best_row(table, state):
    assert ranks(table(BASE, MIDDLE, FAR), "paired")[0] == "best"
    assert ranks(table(BASE, MIDDLE, FAR, [state] * 6), "paired") == {0: "tie", 1: "behind", 2: "behind"}


def test_rows_that_are_not_tuned_yet_prevent_a_best_row(table):
    assert ranks(table(BASE, MIDDLE), "paired", without_point=1) == {0: "tie", 1: "behind"}


def test_pairs_without_a_test_count_in_the_correction(table):
    # p of the pair, alone: between 0.025 / 3 and 0.025, so behind of 1 pair, a tie of 3 pairs
    other = BASE * np.exp(0.02 + 0.0125 * np.array([1.0, -1, 1, -1, 1, -1]))
    p = stats.ttest_rel(np.log(other), np.log(BASE)).pvalue
    assert 0.025 / 3 < p < 0.025
    lost = [*(BASE * 2)[:5], DIVERGED]  # of two rows with a lost seed none is ranked, and no pair of theirs is tested
    assert ranks(table(BASE, other), "paired") == {0: "best", 1: "behind"}
    assert ranks(table(BASE, other, lost), "paired") == {0: "tie", 1: "tie"}
    assert ranks(table(BASE, other, [None] * 6), "paired") == {0: "tie", 1: "tie"}
    assert ranks(table(BASE, other), "paired", without_point=1) == {0: "tie", 1: "tie"}


def test_a_row_that_is_not_converged_is_not_ranked(table, with_curve):
    one, two, three = table(BASE, MIDDLE, FAR)
    falling = [200.0, 100.0]
    assert ranks([with_curve(one, falling), two, three], "paired") == {1: "tie", 2: "behind"}
    assert ranks([with_curve(one, falling, trials=3), two, three], "paired")[0] == "best"  # half of them
    assert ranks([one, two, with_curve(three, falling)], "paired") == {0: "best", 1: "behind"}


def test_a_collapsed_row_is_behind_and_never_the_best(table):
    one, two, three = table(BASE, MIDDLE, BASE * 20)
    assert ranks([one, two, three], "paired") == {0: "best", 1: "behind", 2: "behind"}
    assert ranks(table(BASE * 20, BASE * 30), "paired") == {}


def test_the_declared_test_decides(table):
    # seeds that differ much, and pairs that differ by little and always alike: found in pairs, not by two means
    wide = np.array([50.0, 70, 100, 140, 200, 280])
    lines = table(wide, wide * 1.01 + NOISE / 100)
    assert ranks(lines, "paired") == {0: "best", 1: "behind"}
    assert ranks(lines, "welch") == {0: "tie", 1: "tie"}


def test_rows_with_an_invalid_trial_and_forged_perplexities_have_no_rank(table):
    one, two, three = table(BASE, MIDDLE, [1.0] * 6)
    last = three.records[6].model_copy(update={"status": "invalid"})
    cheated = with_records(three, {**three.records, 6: last})
    assert ranks([one, two, cheated], "paired") == {0: "best", 1: "behind"}
    assert ranks(table([-1.0] * 6, [0.0] * 6), "paired") == {}


def test_devices_are_not_ranked_together(table):
    def on(row, *devices):
        moved = {
            seed: record.model_copy(update={"environment": record.environment.model_copy(update={"device": device})})
            for (seed, record), device in zip(row.records.items(), devices, strict=True)
        }
        return with_records(row, moved)

    one, two, three, four = table(FAR, MIDDLE, BASE, BASE * 0.9 - NOISE)
    gpu, mixed = ["gpu"] * 6, ["gpu"] * 5 + ["a processor"]
    assert ranks([one, two, three, four], "paired")[3] == "best"
    apart = ranks([one, on(two, *gpu), three, on(four, *gpu)], "paired")
    assert apart == {0: "behind", 1: "behind", 2: "best", 3: "best"}
    assert ranks([one, two, three, on(four, *gpu)], "paired")[2] == "best"
    assert ranks([one, two, three, on(four, *mixed)], "paired") == {0: "behind", 1: "behind", 2: "best"}
