"""A study: its frame, its tables and its files, and that records are read and compared once."""

import math

import handmade
import pytest

from harness.errors import RecordError, SuiteError
from harness.records.metrics import METRICS
from harness.report.study import Study

SUITE = """
name: suite
version: 1
corpora: [{markov: {vocab_size: 9, num_tokens: 200}}]
backbones: [{lstm: {d_model: 4, num_layers: 1}}]
heads: [softmax, {mos: {num_mixtures: [2, 3]}}]
train: {optimizer: sgd, lr: 1, epochs: 1, batch_size: 2, seq_len: 7}
seeds: [1, 2]
table: {baseline: softmax}
"""


@pytest.fixture
def suite(suite_of):
    return suite_of(SUITE)


@pytest.fixture
def made(suite, record_of, tmp_path):
    """Records of the first row's two trials, and of one that diverged."""
    first, second, third, *_ = suite.trials
    records = [
        record_of(first, test_ppl=8.0, params_total=100),
        record_of(second, test_ppl=9.0, params_total=100),
        record_of(third, "diverged"),
    ]
    return Study(evidence=handmade.evidence(suite, records, runs=tmp_path / "runs"), results=tmp_path)


def test_the_frame_has_one_line_a_trial_with_metrics_and_parameters(made, suite):
    frame = made.frame()
    assert list(frame["id"]) == [trial.id for trial in suite.trials]
    assert list(frame.columns[:6]) == ["id", "corpus", "backbone", "head", "seed", "status"]
    assert set(METRICS) <= set(frame.columns)
    assert list(frame["status"]) == ["ok", "ok", "diverged", "missing", "missing", "missing"]
    assert list(frame["test_ppl"][:2]) == [8.0, 9.0]
    assert math.isnan(frame["test_ppl"][2])
    assert list(frame["head.num_mixtures"][2:]) == [2, 2, 3, 3]
    assert frame["head"].nunique() == 3
    assert frame.groupby("head")["test_ppl"].mean()["softmax"] == 8.5


def test_what_stands_above_a_table_is_not_said_again_below_it(suite_of, record_of, tmp_path):
    text = SUITE.replace("[1, 2]", "[1, 2, 3, 4, 5, 6]").replace("[2, 3]", "[2]")
    suite = suite_of(text.replace("baseline: softmax", "baseline: softmax, doubt: rates were swapped"))
    records = [
        record_of(trial, test_ppl={"softmax": 100.0, "mos": 90.0}[trial.head.name] + 0.01 * trial.seed**2)
        for trial in suite.trials
    ]
    study = Study(evidence=handmade.evidence(suite, records), results=tmp_path)
    said = ("These numbers are in doubt: rates were swapped.", suite.control_notes[0].replace("`", "\\`"))
    assert [study.table(wide=True).count(each) for each in said] == [1, 1]


def test_conditions_choose_rows_of_the_table(made):
    assert [line.split()[0] for line in made.table("csv", only=["head=mos"]).splitlines()[1:]] == ["MoS", "MoS"]
    with pytest.raises(SuiteError, match="no trial has 'haed'"):
        made.table(only=["haed=mos"])


def test_a_report_of_trials_without_a_record_is_refused(made):
    with pytest.raises(
        RecordError, match=r"has no record of these trials; `harness run .*suite\.yaml --results .*` makes them"
    ):
        made.write_report(only=["head.num_mixtures=3"])


def test_a_notebook_shows_a_study_in_a_line_as_its_table_and_as_a_plot(suite, record_of, tmp_path):
    made = [record_of(trial, test_ppl=9.0 + trial.seed, valid_ppl=9.0) for trial in suite.trials]
    found = Study(evidence=handmade.evidence(suite, made), results=tmp_path)
    assert repr(found) == "<Study suite, version 1: 3 rows, 6 ok of 6 trials>"
    assert found._repr_html_().count("<tr>") == 1 + len(found.rows)
    plot = found.plot("perplexity_by_parameters")
    assert repr(plot) == f"<Plot perplexity_by_parameters: {plot.title}>"
    assert plot._repr_svg_().startswith("<?xml")
    with pytest.raises(RecordError, match="this suite has no plot 'forst'"):
        found.plot("forst")
