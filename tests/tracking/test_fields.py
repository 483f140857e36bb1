"""What a run shows of a record, and the saved views of a suite's runs."""

import json
import re

import pytest
from bundles import diagnose

from harness.diagnostics.catalogue import DIAGNOSTICS
from harness.records import sidecars, store
from harness.records.metrics import METRICS
from harness.tracking import fields
from harness.tracking.fields import CURVES, Point

MLFLOW_NAMES = {metric.mlflow for metric in METRICS.values() if metric.mlflow is not None}


@pytest.fixture
def record(suite, record_of):
    return record_of(suite.trials[2])


def test_metrics_have_the_groups_that_the_charts_are_sorted_into_learning_curves_first():
    # MLflow 3.17, main.js, getBaseChartAndSectionConfigs: groups sorted by name, a metric with several steps is a line
    names = sorted([*MLFLOW_NAMES, *CURVES.values()])
    groups = sorted({name.partition("/")[0] for name in names})
    assert groups == ["curves", "memory", "ngrams", "params", "test", "time", "train", "valid"]
    assert [name for name in names if name.startswith("curves/")] == ["curves/train_loss", "curves/valid_ppl"]
    assert not set(CURVES.values()) & MLFLOW_NAMES


@pytest.mark.parametrize(
    ("value", "shown"), [(111.173492, 111.173), (0.000123456789, 0.000123457), (4567891.0, 4567891.0), (9.5, 9.5)]
)
def test_numbers_have_six_digits_and_counts_all_of_theirs(value, shown):
    assert fields.rounded(value) == shown


@pytest.mark.parametrize(
    ("tuning", "row", "name", "tag"),
    [
        (False, "MoS 2", "MoS 2, seed 1", "MoS 2"),
        (False, None, "HEAD, lstm, markov, seed 1", "HEAD BACKBONE CORPUS"),
        (True, None, "HEAD, lstm, markov, seed 1, tuning", "tuning HEAD BACKBONE CORPUS"),
    ],
)
def test_a_run_has_the_name_of_its_row_or_else_of_what_it_is(record, tuning, row, name, tag):
    record = record.model_copy(update={"tuning": tuning})
    for kind in ("head", "backbone", "corpus"):
        name, tag = (text.replace(kind.upper(), str(getattr(record.spec, kind))) for text in (name, tag))
    assert (fields.name(record, row), fields.row_tag(record, row)) == (name, tag)
    assert fields.tags(record)["stage"] == ("tuning" if tuning else "table")


def test_trials_that_differ_in_their_seed_share_a_row(suite, record_of):
    rows = {}
    for trial in suite.trials:
        rows.setdefault(fields.tags(record_of(trial))["row"], []).append(trial.seed)
    assert list(rows.values()) == [[1, 2]] * 3


def test_of_several_settings_the_newest_numbers_are_shown_and_what_has_none_is_left_out(tmp_path, record):
    """Also left out: a refused diagnostic, one of another form, and one that is not known."""
    about, newer = {"diagnostic": "calibration"}, {"error": 0.125, "entropy": 2.0}
    diagnose(tmp_path, record, **about, content=newer, settings={"contexts": 20}, taken="2026-01-03T00:00:00+00:00")
    diagnose(tmp_path, record, **about, content={"error": 0.25, "entropy": 1.5}, settings={})
    diagnose(tmp_path, record, diagnostic="gates", settings={}, content={}, refused="no statistics")
    diagnose(tmp_path, record, diagnostic="spectrum", content={"press": 3})
    diagnose(tmp_path, record, diagnostic="of_a_plug_in", content={"press": 3})
    pairs = {"crossed": None, "control": None, "templates_left_out": 6, "pairs_left_out": 7}
    diagnose(tmp_path, record, diagnostic="word_pairs", settings={}, content=pairs)
    assert set(fields.diagnosed_points(store.runs_folder(tmp_path, "tiny"), record)) == {
        Point("diagnostics/calibration.calibration_error", 0.125, 0),
        Point("diagnostics/calibration.entropy", 2.0, 0),
        Point("diagnostics/word_pairs.templates_left_out", 6, 0),
        Point("diagnostics/word_pairs.pairs_left_out", 7, 0),
    }


def test_diagnostics_of_other_weights_and_damaged_files_show_nothing(tmp_path, record):
    runs = store.runs_folder(tmp_path, "tiny")
    diagnose(tmp_path, record, diagnostic="calibration", settings={}, content={"error": 0.25, "entropy": 1.5})
    assert len(fields.diagnosed_points(runs, record)) == 2
    assert fields.diagnosed_points(runs, record.model_copy(update={"weights_sha256": "0" * 64})) == []
    place = store.folder(runs, record.id) / sidecars.DIAGNOSES.file
    place.write_text(place.read_text().replace("0.25", "0.75"))
    assert fields.diagnosed_points(runs, record) == []


def test_the_names_of_all_columns_of_diagnostics_differ_and_are_those_that_mlflow_accepts():
    names = [fields.metric_name(name, each.name) for name, of in DIAGNOSTICS.items() for each in of.figures]
    assert len(set(names)) == len(names)
    assert {"diagnostics/spectrum.centred_rank_1e-3", "diagnostics/gradients.lost_of_p_-_e"} <= set(names)
    assert all(re.fullmatch(r"diagnostics/[A-Za-z0-9_.-]+", name) for name in names)


def test_views_have_the_form_that_mlflows_ui_reads_and_name_what_runs_have(record):
    views = fields.views([record])
    assert list(views) == ["mlflow.sharedViewState.harness-runs", "mlflow.sharedViewState.harness-curves"]
    known = {f"metrics.`{name}`" for name in MLFLOW_NAMES} | {f"tags.`{name}`" for name in fields.tags(record)}
    for view in map(json.loads, views.values()):
        state = json.loads(view["state"])
        assert isinstance(view["name"], str)
        assert set(state["selectedColumns"]) <= known
        assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`test/ppl`", True)  # as tables
        assert state["searchFilter"] == "tags.stage = 'table'"
    assert state["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "row"}]


@pytest.mark.parametrize(("trial", "kinds"), [(0, ["PARALLEL"]), (2, ["PARALLEL", "SCATTER"])])
def test_the_first_charts_compare_rows_and_show_perplexity_by_mixtures_where_there_are_some(
    suite, record_of, trial, kinds
):
    record = record_of(suite.trials[trial])
    state = json.loads(json.loads(list(fields.views([record]).values())[1])["state"])
    (section,), (across, *by) = state["compareRunSections"], state["compareRunCharts"]
    assert [chart["type"] for chart in (across, *by)] == kinds
    assert {chart["metricSectionId"] for chart in (across, *by)} == {section["uuid"]}
    assert set(across["selectedMetrics"]) <= MLFLOW_NAMES
    assert section["name"] < "curves"  # MLflow sorts sections by name
    for chart in by:
        assert chart["xaxis"]["key"] in fields.params(record)
        assert chart["yaxis"]["key"] in MLFLOW_NAMES
