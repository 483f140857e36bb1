"""Rows against their controls: differences, verdicts, stars, and what is not compared, by hand."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import handmade
import numpy as np
import pytest
from made_tables import with_records

from harness.plan.suite_file import TableSpec
from harness.records.sidecars import TokenScores
from harness.report import comparison_notes, verdicts
from harness.report.row_facts import rows
from harness.report.statistics import holm, not_worse, paired, sign_flip
from harness.report.verdicts import BOTH, LIMITS, Corrected, limit_of, verdict

BASE = np.array([100.0, 101, 102, 103, 104, 105])
LEVEL = np.log(BASE)  # of six seeds, which all heads share
UNIT = np.array([1, -1, 1, -1, 1, -1]) * math.sqrt(5 / 6)  # mean 0, sd 1
DIVERGED = math.nan


def shifted(mean, sd=0.002):
    """Log perplexities above LEVEL with this mean and sd, in nats."""
    return mean + sd * UNIT


def turned(mean, sd=0.002):
    """Of the same spread, with another pattern over the seeds."""
    pattern = np.roll(UNIT * [1, 1, 2, 0.5, 1, 1], 1)
    return mean + sd * (pattern - pattern.mean())


def differing(mean, sd):
    """Perplexities whose pairs with BASE have this mean difference, in nats, and this sd."""
    return np.exp(LEVEL + shifted(mean, sd))


def compare(lines, baseline="softmax", *, without_point=0, untuned=(), scores=None, told=None, **declared):
    evidence = SimpleNamespace(
        token_scores=(scores or {}).get,
        warn=(told if told is not None else []).append,
        rows_without_point=without_point,
        untuned_controls=untuned,
    )
    return handmade.by_place(lines, verdicts.compare(lines, TableSpec(baseline=baseline, **declared), evidence))


def changed(row, changes):
    """The row with changes of its records, by seed."""
    records = {seed: row.records[seed].model_copy(update=update) for seed, update in changes.items()}
    return with_records(row, {**row.records, **records})


def test_a_head_is_compared_over_shared_seeds_by_logarithms(table_of):
    lines = table_of(4, 6)([100, 200, 300, None], [90, None, 330, 50], [None, None, None, 9])
    found = compare(lines)
    assert list(found) == [1]  # not the baseline, not a row without a seed of its
    assert (found[1].row, found[1].control, found[1].seeds) == (lines[1], lines[0], (1, 3))
    assert found[1].difference.mean == pytest.approx((math.log(0.9) + math.log(1.1)) / 2)
    assert compare(lines, "mixtape") == {}
    # forged perplexities have no logarithm
    assert compare(table_of(4, 6)([100, -5, 100], [90, 90, 0]))[1].seeds == (1,)


def test_holm_counts_the_planned_comparisons_that_have_no_result(table_of):
    better, nothing, failed = differing(-0.01, 0.0013), [None] * 6, [DIVERGED] * 6
    raw = compare(table_of(4, 6)(BASE, better))[1].p_holm
    assert compare(table_of(4, 6)(BASE, better, nothing, failed))[1].p_holm == pytest.approx(3 * raw)
    assert compare(table_of(4, 6)(BASE, better), without_point=4)[1].p_holm == pytest.approx(5 * raw)  # not tuned yet


def test_scores_of_another_text_are_told_of_and_give_no_interval(table_of):
    lines, told = table_of(2, 1)([100], [90]), []
    ids = [line.records[1].id for line in lines]
    ones = [np.ones(number, dtype=np.int32) for number in (20_000, 19_999)]
    scores = {
        trial: TokenScores(nll=n.astype(np.float32), count=n, offset=n) for trial, n in zip(ids, ones, strict=True)
    }
    assert compare(lines, scores=scores, told=told)[1].interval is None
    assert all(ids[0] in sentence and "two test splits" in sentence for sentence in told)
    assert told


@pytest.mark.parametrize(
    ("heads", "baseline", "place"),
    [
        ("{softmax: {projection: [false, true]}}", "softmax(projection=True)", 1),
        ("softmax, {softmax: {projection: true}}", "softmax", 0),
        ("{softmax: {projection: true}}, softmax", "softmax", 1),  # the one that the plan prints so comes first
        ("{softmax: {projection: true}}", "softmax", 0),
    ],
)
def test_the_baseline_is_the_head_that_the_plan_prints_so_or_the_first_of_its_name(suite_of, heads, baseline, place):
    suite = suite_of(handmade.suite_text(heads=f"[{heads}, mos]", table=f"{{baseline: {baseline}}}"))
    lines = rows(suite, {})
    assert verdicts.baselines(lines, suite.table.baseline) == {lines[0].group: lines[place]}


@pytest.mark.parametrize(
    ("mean", "sd", "declared", "expected"),
    [
        # 6 seeds: t_{0.975, 5} sd / sqrt(6) = 1.0495 sd, t_{0.95, 5} sd / sqrt(6) = 0.8226 sd; log 1.01 = 0.00995
        (-0.02, 0.01, {}, "better"),  # 0.02 > 0.0105
        (0.02, 0.01, {}, "worse"),
        (0.0, 0.01, {}, "equivalent"),  # 0.0082 < 0.00995
        (0.0, 0.013, {}, "undecided"),  # 0.0107 > 0.00995
        (0.0, 0.013, {"margin": 0.02}, "equivalent"),
        (0.015, 0.02, {}, "undecided"),  # 0.015 < 0.021
        (0.005, 0.001, {}, "equivalent"),  # a difference that is certain, and smaller than the margin
        (3.0, 0.001, {}, "worse, collapsed"),  # a unigram model has 1100
    ],
)
def test_the_verdict_is_by_the_difference_and_the_margin(table_of, mean, sd, declared, expected):
    found = compare(table_of(2, 6)(BASE, differing(mean, sd)), **declared)[1]
    assert (found.difference.mean, found.difference.sd) == (pytest.approx(mean, abs=1e-12), pytest.approx(sd))
    assert found.verdict == expected


def test_equivalence_is_corrected_over_all_comparisons_too(table_of):
    # p of one comparison is between 0.05 / 3 and 0.05: t = (0.00995 - 0) / (0.0105 / sqrt(6)) = 2.32, and the quantiles
    # of 5 degrees of freedom at 0.95 and 0.9833 are 2.015 and 2.91
    same = differing(0.0, 0.0105)
    assert compare(table_of(2, 6)(BASE, same))[1].verdict == "equivalent"
    assert {each.verdict for each in compare(table_of(4, 6)(BASE, same, same, same)).values()} == {"undecided"}


@pytest.mark.parametrize(
    ("reason", "seeds", "more", "changes"),
    [
        ("", 6, [], {}),
        ("seeds failed", 8, [DIVERGED, DIVERGED], {}),
        ("seeds missing", 7, [None], {}),
        ("equal seeds", 6, [], {2: {"weights_sha256": "ab" * 32}, 5: {"weights_sha256": "ab" * 32}}),
        ("equal seeds", 6, [], dict.fromkeys((2, 5), "losses")),
        ("not certified", 6, [], {3: {"certificate": None, "not_certified": "its process ended"}}),
    ],
)
def test_what_prevents_a_verdict_of_a_row_or_its_control_is_its_reason(table_of, reason, seeds, more, changes):
    one, other = [*BASE, 106, 107][:seeds], [*np.full(6, 80.0), *more]
    for at, values in ((1, (one, other)), (0, (other, one))):
        lines = table_of(2, seeds)(*values)
        alike = {
            "curve": handmade.learned(lines[at].records[2], 9.0, 9.0).curve,
            "metrics": lines[at].records[2].metrics,
        }
        lines[at] = changed(lines[at], {seed: alike if to == "losses" else to for seed, to in changes.items()})
        found = compare(lines)[1]
        assert found.p_holm < 1e-6
        word = ("worse", "better")[at]
        assert (found.verdict, found.stars) == ((f"undecided: {reason}", "") if reason else (word, "***"))


@pytest.mark.parametrize(
    ("falling", "expected"),
    [
        ((6, 0), "better, control not converged"),
        ((0, 4), "better, not converged"),
        ((6, 4), "better, neither converged"),
        ((0, 3), "better"),  # half of the seeds
    ],
)
def test_a_verdict_on_rows_that_are_not_converged_says_so_and_has_no_star(table_of, with_curve, falling, expected):
    lines = table_of(2, 6)(BASE, differing(-0.05, 0.001))
    lines = [with_curve(row, [200.0, 100.0], trials=number) for row, number in zip(lines, falling, strict=True)]
    found = compare(lines)[1]
    assert (found.verdict, found.judged.word, found.stars) == (expected, "better", "***" * (expected == "better"))


@pytest.mark.parametrize("limit", LIMITS)
def test_what_limits_a_comparison_changes_no_word_so_words_err_as_often_as_without_it(limit):
    """The rates of simulated tables (tests/report/test_simulated_tables.py) hold for rows that have not converged."""
    found = paired([-0.02, -0.03, -0.01, -0.02, -0.025, -0.015])
    whose = [(limit, "", limit), ("", limit, f"control {limit}"), (limit, limit, BOTH[limit])]
    pairs = list(itertools.product((0.001, 0.049, 0.051, 1.0), repeat=2))
    for (row, control, said), beyond, settings in itertools.product(whose, pairs, pairs):
        tests = found, Corrected(*beyond), Corrected(*settings)
        plain, limited = verdict(*tests, ""), verdict(*tests, limit_of(row, control))
        assert (limited.word, limited.reason) == (plain.word, plain.reason)
        assert limited.limits == (() if plain.reason else (*plain.limits, said))


def test_welch_ignores_the_pairs(table_of):
    wide = np.array([50.0, 70, 100, 140, 200, 280])
    lines = table_of(2, 6)(wide, wide * 1.02)
    pairs, means = compare(lines)[1], compare(lines, test="welch")[1]
    assert (pairs.verdict, means.verdict) == ("worse", "undecided")
    assert pairs.difference.mean == pytest.approx(means.difference.mean)
    assert means.p_sign_flip is None
    assert pairs.p_sign_flip == sign_flip([math.log(b / a) for a, b in zip(wide, wide * 1.02, strict=True)])[0]


# several controls


@pytest.fixture
def lines_of(table_of):
    """A function: log perplexities above LEVEL of the controls and of the heads, a row each -> their rows."""
    tables = {}

    def make(controls, heads):
        given = [*controls, *heads]
        if len(given) not in tables:
            tables[len(given)] = table_of(len(given), len(BASE))
        lines = tables[len(given)](*(np.exp(LEVEL + each) for each in given))
        return [
            replace(row, planned=replace(row.planned, is_control=place < len(controls)))
            for place, row in enumerate(lines)
        ]

    return make


def test_better_than_a_weak_baseline_and_not_than_a_strong_control_is_not_better(lines_of):
    controls, heads = [shifted(0.0), turned(-0.03)], [shifted(-0.03, 0.012), turned(-0.05)]
    found = compare(lines_of(controls, heads))
    assert {place: each.verdict for place, each in found.items()} == {0: "control", 2: "undecided", 3: "better"}
    assert found[3].control.head == found[2].control.head
    assert found[3].difference.mean == pytest.approx(-0.02)
    assert found[2].stars == ""
    # the largest p counts, without a correction between controls
    largest = [max(paired(list(head - control)).p_t for control in controls) for head in heads]
    assert [found[place].p_holm for place in (2, 3)] == pytest.approx(holm(largest))


def test_worse_than_the_strongest_control_counts_p_once_for_each_control(lines_of):
    controls, heads = [shifted(0.0), turned(0.02), shifted(0.03, 0.004)], [turned(0.006)]
    found = compare(lines_of(controls, heads))[3]
    difference = paired(list(heads[0] - controls[0]))
    assert found.control.head == "softmax"
    assert found.p_holm == pytest.approx(3 * difference.p_t)
    margin = math.log(1.01)
    not_below = max(not_worse(paired(list(heads[0] - control)), margin) for control in controls)
    not_above = 3 * not_worse(difference.reverse, margin)
    assert found.beyond.equivalent == pytest.approx(max(not_below, not_above))


def test_with_one_control_everything_is_as_with_a_baseline_and_all_controls_are_compared_with_it(lines_of):
    heads = [turned(-0.02), shifted(0.001), turned(0.03)]
    declared, plain = compare(lines_of([shifted(0.0)], heads)), compare(lines_of([], [shifted(0.0), *heads]))
    for place in (1, 2, 3):
        assert (declared[place].judged, declared[place].p_holm) == (plain[place].judged, plain[place].p_holm)
    found = compare(lines_of([shifted(0.0), turned(-0.05), turned(0.05)], []))
    assert {place: each.verdict for place, each in found.items()} == {1: "better", 2: "worse"}


@pytest.mark.parametrize("lost", [0, 1])
def test_a_control_with_a_missing_seed_or_without_a_point_leaves_all_heads_undecided(lines_of, lost):
    lines = lines_of([shifted(0.0), turned(0.05)], [turned(-0.05)])
    assert compare(lines)[2].verdict == "better"
    found = compare(lines, without_point=1, untuned={lines[0].group})[2]
    assert (found.verdict, found.stars) == ("undecided: a control is not tuned", "")
    for kept, verdict_of in (((1, 2, 3, 4, 5), "too few seeds"), ((), "undecided: seeds missing")):
        records = {seed: lines[lost].records[seed] for seed in kept}
        found = compare([with_records(line, records) if at == lost else line for at, line in enumerate(lines)])[2]
        assert (found.verdict, found.stars) == (verdict_of, "")


@pytest.mark.parametrize(
    ("valid", "expected"),
    [(0.05, "undecided: validation disagrees"), (-0.01, "better"), (0.0001, "better"), (None, "better")],
)
def test_a_head_that_validation_finds_worse_beyond_the_spread_is_not_better_and_a_note_says_so(
    lines_of, valid, expected
):
    lines = lines_of([shifted(0.0)], [turned(-0.05)])
    if valid is not None:
        for at, above in enumerate((0.0, turned(valid))):
            ppl = dict(zip(lines[at].records, np.exp(LEVEL + above), strict=True))
            metrics = {seed: {**each.metrics, "valid_ppl": ppl[seed]} for seed, each in lines[at].records.items()}
            lines[at] = changed(lines[at], {seed: {"metrics": each} for seed, each in metrics.items()})
    found = compare(lines)[1]
    assert (found.verdict, bool(found.stars)) == (expected, expected == "better")
    suite = SimpleNamespace(table=TableSpec(), tune=None)
    findings = SimpleNamespace(rows=lines, compared={lines[1]: found}, evidence=SimpleNamespace(suite=suite))
    notes = [note for note in comparison_notes.of_comparisons(findings) if "disagree" in note]
    assert [note.level for note in notes] == ["warning"] * (expected != "better")
    for note in notes:  # exp(-0.05) = 0.951 and exp(0.05) = 1.051
        assert f"{lines[1].head} against softmax: -4.9 % [" in note
        assert "] of test perplexity, but +5.1 % [" in note


@pytest.mark.system
def test_the_better_heads_are_the_same_whichever_control_is_the_baseline(lines_of):
    """1,000 planted tables of two to four controls and one to five heads, of differences around the margin."""
    rng, named = np.random.default_rng(67), 0
    for _ in range(1_000):
        levels = [rng.normal(0, 0.02, number) for number in (rng.integers(2, 5), rng.integers(1, 6))]
        noise = rng.choice([0.002, 0.005])
        lines = lines_of(*([each + rng.normal(0, noise, len(BASE)) for each in level] for level in levels))
        better = []
        for baseline in [line.planned.head.written for line in lines if line.is_control]:
            found = compare(lines, baseline)
            better.append({place for place, each in found.items() if each.judged.word == "better"})
        assert all(each == better[0] for each in better)
        named += bool(better[0])
    assert 100 < named < 900  # tables of both kinds
