"""Rows against their baseline: differences, verdicts, stars, and what is not compared."""

import itertools
import math
from types import SimpleNamespace

import handmade
import numpy as np
import pytest
from made_tables import with_records

from harness.plan.suite_file import TableSpec
from harness.records.sidecars import TokenScores
from harness.report import verdicts
from harness.report.row_facts import rows
from harness.report.statistics import block_interval, paired, sign_flip
from harness.report.verdicts import BOTH, LIMITS, Corrected, limit_of, verdict

SUITE = handmade.suite_text(
    heads="[softmax, {softmax: {projection: true}}, {mos: {num_mixtures: [2, 5]}}]", seeds="[1, 2]"
)
BASE = np.array([100.0, 101, 102, 103, 104, 105])
UNIT = np.array([1, -1, 1, -1, 1, -1]) * math.sqrt(5 / 6)  # mean 0, sd 1
DIVERGED = math.nan


@pytest.fixture
def table(table_of):
    return table_of(4, 6)


def compare(lines, evidence, baseline="softmax", **declared):
    return handmade.by_place(lines, verdicts.compare(lines, TableSpec(baseline=baseline, **declared), evidence))


def differing(mean: float, sd: float):
    """Perplexities whose pairs with BASE have this mean difference, in nats, and this sd."""
    return BASE * np.exp(mean + sd * UNIT)


@pytest.fixture
def evidence():
    """Token scores by trial id; none to begin with."""
    kept = {}
    told = []
    return SimpleNamespace(
        kept=kept, token_scores=kept.get, told=told, warn=told.append, rows_without_point=0, untuned_controls=()
    )


def scores(nll) -> TokenScores:
    ones = np.ones(len(nll), dtype=np.int32)
    return TokenScores(nll=np.asarray(nll, dtype=np.float32), count=ones, offset=ones)


def test_a_head_is_compared_over_shared_seeds_by_logarithms(table, evidence):
    lines = table([100, 200, 300, None], [90, None, 330, 50])
    assert lines[0].head == "softmax"
    found = compare(lines, evidence)[1]
    assert (found.row, found.control, found.seeds) == (lines[1], lines[0], (1, 3))
    assert found.difference.mean == pytest.approx((math.log(0.9) + math.log(1.1)) / 2)
    assert found.p_holm == found.difference.p_t
    assert found.interval is None


def test_what_cannot_be_compared_is_not_there(table, evidence):
    lines = table([100, 200, None], [None, None, 90], [90])
    assert list(compare(lines, evidence)) == [2]  # not the baseline, not a row without a seed of its
    assert compare(lines, evidence, "mixtape") == {}


def with_invalid(line):
    """The row, its last trial invalid."""
    found = dict(line.records)
    seed, last = found.popitem()
    return with_records(line, {**found, seed: last.model_copy(update={"status": "invalid"})})


@pytest.mark.guards("invalid-row")
def test_an_invalid_row_is_neither_compared_nor_a_baseline(table, evidence):
    lines = table([100, 101, 102], [90, 91, 92], [1, 1, 1])
    assert set(compare(lines, evidence)) == {1, 2}
    assert set(compare([*lines[:2], with_invalid(lines[2])], evidence)) == {1}
    assert compare([with_invalid(lines[0]), *lines[1:]], evidence) == {}


def test_holm_is_over_all_comparisons_of_the_table(table, evidence):
    base = np.array([100.0, 101, 102, 103, 104, 105])
    shifts = np.array([0.01, 0.012, 0.008, 0.011, 0.009, 0.01])
    lines = table(base, base * np.exp(-shifts), base * np.exp(0.3 * shifts - 0.003), base * np.exp(-2 * shifts))
    found = compare(lines, evidence)
    raw = [found[i].difference.p_t for i in (1, 2, 3)]
    assert raw[0] == pytest.approx(raw[2])  # t does not depend on the unit
    assert found[1].p_holm == pytest.approx(3 * raw[0])
    assert found[2].p_holm == pytest.approx(raw[1])  # the largest
    assert (found[1].stars, found[2].stars) == ("***", "")


def test_holm_counts_the_planned_comparisons_that_have_no_result(table, evidence):
    base = np.array([100.0, 101, 102, 103, 104, 105])
    shifts = np.array([0.01, 0.012, 0.008, 0.011, 0.009, 0.01])
    better, nothing, failed = base * np.exp(-shifts), [None] * 6, [math.nan] * 6
    raw = compare(table(base, better), evidence)[1].p_holm
    assert compare(table(base, better, nothing, failed), evidence)[1].p_holm == pytest.approx(3 * raw)
    evidence.rows_without_point = 4  # not tuned yet
    assert compare(table(base, better), evidence)[1].p_holm == pytest.approx(5 * raw)


def test_a_single_shared_seed_has_an_interval_over_tokens(table, evidence):
    lines = table([100, None], [90, 90])
    rng = np.random.default_rng(1)
    ours, theirs = rng.normal(5, 1, (2, 5_000)).astype(np.float32)
    theirs[7] = math.nan
    both = np.arange(5_000) != 7
    evidence.kept |= {lines[1].records[1].id: scores(ours), lines[0].records[1].id: scores(theirs)}
    found = compare(lines, evidence)[1]
    expected = block_interval(ours[both].astype(np.float64) - theirs[both].astype(np.float64))
    assert found.interval == expected
    assert (found.difference.n, found.p_holm, found.stars) == (1, None, "")
    del evidence.kept[lines[0].records[1].id]
    assert compare(lines, evidence)[1].interval is None


def test_several_shared_seeds_have_no_interval_over_tokens(table, evidence):
    lines = table([100, 101], [90, 92])
    evidence.kept |= {record.id: scores(np.ones(2_000)) for row in lines for record in row.records.values()}
    assert compare(lines, evidence)[1].interval is None


def test_the_baseline_may_be_written_as_the_plan_prints_it(suite_of, record_of, evidence):
    several = "heads: [{softmax: {projection: [false, true]}}, {mos: {num_mixtures: 2}}]"
    text = f"""\
name: suite
version: 1
corpora: [{{markov: {{vocab_size: 12, num_tokens: 400, branching: 3}}}}]
backbones: [{{lstm: {{d_model: 8, num_layers: 1}}}}]
{several}
train: {{optimizer: sgd, lr: 0.5, epochs: 2, batch_size: 4, seq_len: 7}}
seeds: [1, 2]
table: {{baseline: softmax(projection=True)}}
"""
    suite = suite_of(text)
    lines = rows(suite, {trial.id: record_of(trial, test_ppl=90.0 + trial.seed) for trial in suite.trials})
    assert verdicts.baselines(lines, suite.table.baseline) == {lines[0].group: lines[1]}


def test_the_first_of_several_rows_of_its_head_is_the_baseline(suite_of, record_of, evidence):
    suite = suite_of(SUITE)
    found = {trial.id: record_of(trial, test_ppl=100.0 + trial.seed) for trial in suite.trials}
    lines = rows(suite, found)
    compared = compare(lines, evidence)
    assert sorted(compared) == [1, 2, 3]
    assert all(each.control is lines[0] for each in compared.values())


def test_the_head_that_the_plan_prints_so_comes_before_others_of_its_name(suite_of, record_of, evidence):
    suite = suite_of(
        SUITE.replace("[softmax, {softmax: {projection: true}},", "[{softmax: {projection: true}}, softmax,")
    )
    lines = rows(suite, {trial.id: record_of(trial, test_ppl=90.0 + trial.seed) for trial in suite.trials})
    assert [row.head for row in lines[:2]] == ["affine softmax", "softmax"]
    assert suite.table.baseline == "softmax"
    assert verdicts.baselines(lines, suite.table.baseline) == {lines[0].group: lines[1]}


def test_forged_perplexities_without_a_logarithm_are_left_out(table, evidence):
    assert compare(table([100, -5, 100], [90, 90, 0]), evidence)[1].seeds == (1,)


def test_scores_of_another_text_are_told_of_and_give_no_interval(table_of, evidence):
    lines = table_of(2, 1)([100], [90])
    ids = [line.records[1].id for line in lines]
    evidence.kept |= {ids[0]: scores(np.ones(20_000)), ids[1]: scores(np.ones(19_999))}
    assert compare(lines, evidence)[1].interval is None
    assert all(ids[0] in sentence and "two test splits" in sentence for sentence in evidence.told)


# verdicts


@pytest.mark.parametrize(
    ("mean", "sd", "expected"),
    [
        # 6 seeds: t_{0.975, 5} sd / sqrt(6) = 1.0495 sd, t_{0.95, 5} sd / sqrt(6) = 0.8226 sd; log 1.01 = 0.00995
        (-0.02, 0.01, "better"),  # 0.02 > 0.0105
        (0.02, 0.01, "worse"),
        (0.0, 0.01, "equivalent"),  # 0.0082 < 0.00995
        (0.0, 0.013, "undecided"),  # 0.0107 > 0.00995
        (0.015, 0.02, "undecided"),  # 0.015 < 0.021
        (0.005, 0.001, "equivalent"),  # a difference that is certain, and smaller than the margin
    ],
)
def test_the_verdict_is_by_the_difference_and_the_margin(table_of, evidence, mean, sd, expected):
    (found,) = compare(table_of(2, 6)(BASE, differing(mean, sd)), evidence).values()
    assert (found.difference.mean, found.difference.sd) == (pytest.approx(mean, abs=1e-12), pytest.approx(sd))
    assert found.verdict == expected


def test_the_margin_is_the_suites(table_of, evidence):
    lines = table_of(2, 6)(BASE, differing(0.0, 0.013))
    assert [compare(lines, evidence, margin=margin)[1].verdict for margin in (0.01, 0.02)] == [
        "undecided",
        "equivalent",
    ]


def test_equivalence_is_corrected_over_all_comparisons_too(table_of, evidence):
    # p of one comparison is between 0.05 / 3 and 0.05: t = (0.00995 - 0) / (0.0105 / sqrt(6)) = 2.32, and the quantiles
    # of 5 degrees of freedom at 0.95 and 0.9833 are 2.015 and 2.91
    same = differing(0.0, 0.0105)
    assert compare(table_of(2, 6)(BASE, same), evidence)[1].verdict == "equivalent"
    found = compare(table_of(4, 6)(BASE, same, same, same), evidence)
    assert {each.verdict for each in found.values()} == {"undecided"}


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_below_six_seeds_there_is_neither_verdict_nor_star(table_of, evidence, seeds):
    (found,) = compare(table_of(2, seeds)(BASE[:seeds], 2 * BASE[:seeds]), evidence).values()
    assert (found.verdict, found.stars) == ("too few seeds", "")


def test_two_diverged_seeds_of_eight_give_no_star(table_of, evidence):
    base = np.append(BASE, [106, 107])
    lost = [*differing(-0.05, 0.001), DIVERGED, DIVERGED]
    for lines in (table_of(2, 8)(base, lost), table_of(2, 8)(lost, base)):
        (found,) = compare(lines, evidence).values()
        assert found.p_holm < 1e-6
        assert (found.verdict, found.stars) == ("undecided: seeds failed", "")


def test_seeds_that_have_not_run_leave_it_undecided(table_of, evidence):
    (found,) = compare(table_of(2, 7)([*BASE, 106], [*differing(-0.05, 0.001), None]), evidence).values()
    assert (found.verdict, found.stars) == ("undecided: seeds missing", "")


@pytest.mark.parametrize("same", ["weights", "losses"])
def test_seeds_with_the_same_result_are_no_repetition(table_of, evidence, same):
    base = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2]
    baseline, row = table_of(2, 6)(base, [80.0] * 6)
    assert compare([baseline, row], evidence)[1].stars == "***"
    twins = [row.records[seed] for seed in (2, 5)]
    if same == "weights":
        twins = [record.model_copy(update={"weights_sha256": "ab" * 32}) for record in twins]
    else:
        twins = [handmade.learned(record, 9.0, 9.0) for record in twins]
    twice = with_records(row, {**row.records, **dict(zip((2, 5), twins, strict=True))})
    found = compare([baseline, twice], evidence)[1]
    assert (found.verdict, found.stars) == ("undecided: equal seeds", "")


def test_a_verdict_on_rows_that_are_not_converged_says_so_and_has_no_star(table_of, evidence, with_curve):
    base, better = table_of(2, 6)(BASE, differing(-0.05, 0.001))
    falling = [200.0, 100.0]
    first, second = with_curve(base, falling), with_curve(better, falling, trials=4)
    cases = {
        "better, control not converged": [first, better],
        "better, not converged": [base, second],
        "better, neither converged": [first, second],
    }
    for said, lines in cases.items():
        (found,) = compare(lines, evidence).values()
        assert (found.verdict, found.judged.word, found.stars) == (said, "better", "")
    (found,) = compare([base, with_curve(better, falling, trials=3)], evidence).values()
    assert (found.verdict, found.stars) == ("better", "***")


def test_a_verdict_on_a_collapsed_row_says_so_and_has_no_star(table_of, evidence):
    (found,) = compare(table_of(2, 6)(BASE, BASE * 15), evidence).values()
    assert (found.verdict, found.stars) == ("worse, collapsed", "")


def test_a_row_with_a_compatibility_switch_is_not_compared(suite_of, record_of, evidence):
    suite = suite_of(SUITE.replace("{softmax: {projection: true}}", "{mos: {compat: {log_epsilon: 1.0e-8}}}"))
    lines = rows(suite, {trial.id: record_of(trial, test_ppl=100.0) for trial in suite.trials})
    (switched,) = (index for index, line in enumerate(lines) if line.compat is not None)
    assert set(compare(lines, evidence)) == {1, 2, 3} - {switched}


# the declared test


def test_welch_ignores_the_pairs(table_of, evidence):
    wide = np.array([50.0, 70, 100, 140, 200, 280])
    lines = table_of(2, 6)(wide, wide * 1.02)
    pairs, means = compare(lines, evidence)[1], compare(lines, evidence, test="welch")[1]
    assert (pairs.verdict, means.verdict) == ("worse", "undecided")
    assert pairs.difference.mean == pytest.approx(means.difference.mean)
    assert means.p_sign_flip is None
    logs = [math.log(b / a) for a, b in zip(wide, wide * 1.02, strict=True)]
    assert pairs.p_sign_flip == sign_flip(logs)[0]


def test_the_correlation_over_seeds_is_that_of_log_perplexities(table_of, evidence):
    e = np.exp([1.0, 2, 3, 4, 5, 6])
    found = compare(table_of(3, 6)(e, e**2, 100 / e), evidence)
    assert [found[index].correlation for index in (1, 2)] == [pytest.approx(1), pytest.approx(-1)]


@pytest.mark.guards("uncertified-is-unranked")
def test_a_trial_that_could_not_be_certified_leaves_its_row_without_a_verdict(table_of, evidence):
    baseline, row = table_of(2, 6)([100.0, 101.0, 99.0, 100.5, 99.5, 100.2], [80.0] * 6)
    without = row.records[3].model_copy(update={"certificate": None, "not_certified": "its process ended"})
    found = compare([baseline, with_records(row, {**row.records, 3: without})], evidence)[1]
    assert (found.verdict, found.stars) == ("undecided: not certified", "")


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("whose", ["row", "control", "both"])
def test_what_limits_a_comparison_changes_no_word_so_words_err_as_often_as_without_it(limit, whose):
    """The rates of simulated tables (tests/report/test_simulated_tables.py) hold for rows that have not converged."""
    row, control = (limit if whose in (each, "both") else "" for each in ("row", "control"))
    found = paired([-0.02, -0.03, -0.01, -0.02, -0.025, -0.015])
    said = {"row": limit, "control": f"control {limit}", "both": BOTH[limit]}[whose]
    values = (0.001, 0.049, 0.051, 1.0)
    for beyond, settings in itertools.product(itertools.product(values, values), repeat=2):
        tests = found, Corrected(*beyond), Corrected(*settings)
        plain, limited = verdict(*tests, ""), verdict(*tests, limit_of(row, control))
        assert limited.word == plain.word
        assert limited.reason == plain.reason
        assert limited.limits == (() if plain.reason else (*plain.limits, said))
