"""A head is better only if it is better than every control: by hand, and whichever control is named as the baseline."""

import math
from dataclasses import replace
from types import SimpleNamespace

import handmade
import numpy as np
import pytest
from made_tables import with_records

from harness.plan.suite_file import TableSpec
from harness.report import comparison_notes, outcome, verdicts
from harness.report.statistics import holm, not_worse, paired

SEEDS = 6
LEVEL = np.log([100.0, 101, 102, 103, 104, 105])  # of six seeds, which all heads share
UNIT = np.array([1, -1, 1, -1, 1, -1]) * math.sqrt(5 / 6)  # mean 0, sd 1


@pytest.fixture
def lines_of(table_of):
    """A function: log perplexities above LEVEL of the controls and of the heads, a row each -> their rows."""

    tables = {}

    def make(controls, heads):
        given = [*controls, *heads]
        if len(given) not in tables:
            tables[len(given)] = table_of(len(given), SEEDS)
        rows = tables[len(given)](*(np.exp(LEVEL + each) for each in given))
        return [
            replace(row, planned=replace(row.planned, is_control=place < len(controls)))
            for place, row in enumerate(rows)
        ]

    return make


def compare(lines, baseline="softmax", **more):
    evidence = SimpleNamespace(token_scores=lambda trial: None, rows_without_point=0, untuned_controls=(), **more)
    return handmade.by_place(lines, verdicts.compare(lines, TableSpec(baseline=baseline), evidence))


def shifted(mean, sd=0.002):
    return mean + sd * UNIT


def turned(mean, sd=0.002):
    """Of the same spread, with another pattern over the seeds."""
    return mean + sd * np.roll(UNIT * [1, 1, 2, 0.5, 1, 1], 1) - sd * np.mean(np.roll(UNIT * [1, 1, 2, 0.5, 1, 1], 1))


def test_better_than_a_weak_baseline_and_not_than_a_strong_control_is_not_better(lines_of):
    found = compare(lines_of([shifted(0.0), turned(-0.03)], [shifted(-0.03, 0.012), turned(-0.05)]))
    assert {place: each.verdict for place, each in found.items()} == {0: "control", 2: "undecided", 3: "better"}
    assert found[3].control.head == found[2].control.head
    assert found[3].difference.mean == pytest.approx(-0.02)
    assert found[2].stars == ""


def test_the_largest_p_counts_without_a_correction_between_controls(lines_of):
    controls, heads = [shifted(0.0), turned(0.004, 0.01)], [turned(-0.006), shifted(-0.004, 0.003)]
    found = compare(lines_of(controls, heads))
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


def test_with_one_control_everything_is_as_with_a_baseline(lines_of):
    heads = [turned(-0.02), shifted(0.001), turned(0.03)]
    declared, plain = compare(lines_of([shifted(0.0)], heads)), compare(lines_of([], [shifted(0.0), *heads]))
    for place in (1, 2, 3):
        assert declared[place].judged == plain[place].judged
        assert declared[place].p_holm == plain[place].p_holm


@pytest.mark.parametrize("lost", [0, 1])
def test_a_control_with_a_missing_or_failed_seed_leaves_all_heads_undecided(lines_of, lost):
    lines = lines_of([shifted(0.0), turned(0.05)], [turned(-0.05)])
    records = {seed: record for seed, record in lines[lost].records.items() if seed != 6}
    broken = [with_records(line, records) if place == lost else line for place, line in enumerate(lines)]
    assert compare(lines)[2].verdict == "better"
    assert compare(broken)[2].verdict in ("too few seeds", "undecided: seeds missing")
    assert compare(broken)[2].stars == ""


def test_a_control_that_is_not_tuned_yet_leaves_all_heads_undecided(lines_of):
    lines = lines_of([shifted(0.0)], [turned(-0.05)])
    evidence = {"token_scores": lambda trial: None, "rows_without_point": 1, "untuned_controls": {lines[0].group}}
    (found,) = verdicts.compare(lines, TableSpec(baseline="softmax"), SimpleNamespace(**evidence)).values()
    assert (found.verdict, found.stars) == ("undecided: a control is not tuned", "")


def test_a_head_that_validation_finds_worse_is_not_better(lines_of):
    base, head = lines_of([shifted(0.0)], [turned(-0.05)])
    for record in base.records.values():
        record.metrics["valid_ppl"] = 100.0
    records = {}
    for seed, record in head.records.items():
        worse = {**record.metrics, "valid_ppl": 100 * math.exp(0.05 + 0.001 * seed)}
        records[seed] = record.model_copy(update={"metrics": worse})
    assert compare([base, head])[1].verdict == "better"
    found = compare([base, with_records(head, records)])[1]
    assert (found.verdict, found.stars) == ("undecided: validation disagrees", "")


def test_where_all_rows_are_controls_they_are_compared_with_the_baseline(lines_of):
    found = compare(lines_of([shifted(0.0), turned(-0.05), turned(0.05)], []))
    assert {place: each.verdict for place, each in found.items()} == {1: "better", 2: "worse"}


@pytest.mark.system
def test_the_better_heads_are_the_same_whichever_control_is_the_baseline(lines_of):
    """1,000 planted tables of two to four controls and one to five heads, of differences around the margin."""
    rng, named = np.random.default_rng(67), 0
    for _ in range(1_000):
        levels = [rng.normal(0, 0.02, number) for number in (rng.integers(2, 5), rng.integers(1, 6))]
        noise = rng.choice([0.002, 0.005])
        lines = lines_of(*([each + rng.normal(0, noise, SEEDS) for each in level] for level in levels))
        better = []
        for baseline in [line.planned.head.written for line in lines if line.is_control]:
            found = compare(lines, baseline)
            better.append({place for place, each in found.items() if each.judged.word == "better"})
        assert all(each == better[0] for each in better)
        named += bool(better[0])
    assert 100 < named < 900  # tables of both kinds


def test_a_weak_baseline_is_named_as_what_it_is(suite_of, record_of):
    text = handmade.suite_text(
        heads="[softmax, {softmax: {projection: true}}, {mos: {num_mixtures: 3}}]",
        seeds="[1, 2, 3, 4, 5, 6]",
        table="{baseline: affine softmax}",
    )
    suite = suite_of(text)
    above = {"softmax": shifted(0.0), "affine softmax": turned(0.03), "MoS 3": shifted(-0.001, 0.012)}
    made = []
    for trial in suite.trials:
        ppl = float(np.exp(LEVEL + above[suite.row_of(trial).head.name])[trial.seed - 1])
        made.append(record_of(trial, test_ppl=ppl, valid_ppl=ppl))
    findings = handmade.findings(suite, made)
    first, second, *_ = outcome.sentences(findings, findings.rows)
    assert first.startswith("MoS 3 is not shown to beat softmax (the strongest control), -0.1 % [")
    assert second.startswith("The baseline, affine softmax, is weak: 3.0 % [")
    assert second.endswith("lower than the baseline, and not shown to beat softmax.")


@pytest.mark.parametrize(("valid", "noted"), [(0.01, True), (-0.01, False), (0.001, False)])
def test_a_row_whose_validation_and_test_disagree_has_a_note_with_both_changes(lines_of, valid, noted):
    control, mixture = lines_of([shifted(0.0)], [turned(-0.02)])
    levels = {control.head: LEVEL, mixture.head: LEVEL + turned(valid)}
    rows = []
    for row in (control, mixture):
        ppl = dict(zip(row.records, np.exp(levels[row.head]), strict=True))
        records = {
            seed: each.model_copy(update={"metrics": {**each.metrics, "valid_ppl": ppl[seed]}})
            for seed, each in row.records.items()
        }
        rows.append(with_records(row, records))
    notes = comparison_notes.of_splits(mixture.head, rows[1], rows[0])
    assert [note.level for note in notes] == ["warning"] * noted
    if noted:  # exp(-0.02) = 0.9802 and exp(0.01) = 1.0101
        assert f"{mixture.head} against softmax: -2.0 % [" in notes[0]
        assert notes[0].endswith("of validation perplexity.")
        assert "] of test perplexity, but +1.0 % [" in notes[0]
    (compared,) = compare(rows).values()
    suite = SimpleNamespace(table=TableSpec(), tune=None)
    findings = SimpleNamespace(rows=rows, compared={rows[1]: compared}, evidence=SimpleNamespace(suite=suite))
    assert [note for note in comparison_notes.of_comparisons(findings) if "disagree" in note] == notes
