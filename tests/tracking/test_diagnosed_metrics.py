"""The results of `harness diagnose` as metrics of MLflow's runs."""

import re

import pytest
from bundles import diagnose
from mlflow import MlflowClient
from mlflow.entities import ViewType

from harness.diagnostics.catalogue import DIAGNOSTICS
from harness.records import sidecars, store
from harness.tracking import diagnosed_metrics
from harness.tracking.diagnosed_metrics import diagnosed_points
from harness.tracking.run_fields import LAYOUT, Point
from harness.tracking.tracker import Tracker, store_uri

CALIBRATED = {"error": 0.25, "entropy": 1.5}
SHOWN = {"diagnostics/calibration.calibration_error": 0.25, "diagnostics/calibration.entropy": 1.5}


@pytest.fixture
def record(suite, record_of):
    return record_of(suite.trials[0])


def calibrate(results, record, **changes):
    diagnose(results, record, **{"diagnostic": "calibration", "settings": {}, "content": CALIBRATED, **changes})


def runs_of(results, view: int = ViewType.ACTIVE_ONLY) -> list:
    client = MlflowClient(tracking_uri=store_uri(results))
    return client.search_runs([client.get_experiment_by_name("tiny").experiment_id], run_view_type=view)


def shown(results) -> dict[str, float]:
    (run,) = runs_of(results)
    return {key: value for key, value in run.data.metrics.items() if key.startswith("diagnostics/")}


def test_a_run_shows_the_numbers_of_the_tables(results, record):
    calibrate(results, record)
    Tracker(results).log(record)
    assert shown(results) == SHOWN


def test_a_run_that_was_written_before_gets_them_and_nothing_is_written_twice(results, record):
    tracker = Tracker(results)
    tracker.catch_up("tiny", [record])
    assert shown(results) == {}
    calibrate(results, record)
    tracker.catch_up("tiny", [record])
    assert shown(results) == SHOWN
    (run,) = runs_of(results)
    tracker.catch_up("tiny", [record])
    tracker.log(record)
    assert [each.info.run_id for each in runs_of(results)] == [run.info.run_id]
    assert len(runs_of(results, ViewType.ALL)) == 2  # the first one is deleted
    calibrate(results, record, content={"error": 0.5, "entropy": 1.5}, taken="2026-01-03T00:00:00+00:00")
    tracker.log(record)
    assert shown(results)["diagnostics/calibration.calibration_error"] == 0.5


def test_a_run_without_diagnostics_has_the_tag_of_its_record_and_layout(results, record):
    Tracker(results).log(record)
    assert runs_of(results)[0].data.tags["harness.record"] == f"{store.digest(record)} {LAYOUT}"


def test_of_several_settings_the_newest_result_is_shown(results, record):
    newer = {"error": 0.125, "entropy": 2.0}
    calibrate(results, record, content=newer, settings={"contexts": 20}, taken="2026-01-03T00:00:00+00:00")
    calibrate(results, record)
    points = diagnosed_points(store.runs_folder(results, "tiny"), record)
    assert points == [
        Point("diagnostics/calibration.calibration_error", 0.125, 0),
        Point("diagnostics/calibration.entropy", 2.0, 0),
    ]


def test_what_has_no_number_is_left_out(results, record):
    """A refused diagnostic, one of another form, one that is not known, and a column without a value."""
    calibrate(results, record, content={}, refused="no statistics")
    diagnose(results, record, diagnostic="spectrum", content={"press": 3})
    diagnose(results, record, diagnostic="of_a_plug_in", content={"press": 3})
    pairs = {"crossed": None, "control": None, "templates_left_out": 6, "pairs_left_out": 7}
    diagnose(results, record, diagnostic="word_pairs", settings={}, content=pairs)
    assert diagnosed_points(store.runs_folder(results, "tiny"), record) == [
        Point("diagnostics/word_pairs.templates_left_out", 6, 0),
        Point("diagnostics/word_pairs.pairs_left_out", 7, 0),
    ]


def test_results_of_other_weights_and_damaged_files_show_nothing(results, record):
    runs = store.runs_folder(results, "tiny")
    calibrate(results, record)
    assert diagnosed_points(runs, record.model_copy(update={"weights_sha256": "0" * 64})) == []
    place = store.folder(runs, record.id) / sidecars.DIAGNOSES.file
    place.write_text(place.read_text().replace("0.25", "0.75"))
    assert diagnosed_points(runs, record) == []


def test_the_names_of_all_columns_differ_and_are_those_that_mlflow_accepts():
    keys = [(name, diagnosed_metrics._key(each.name)) for name, of in DIAGNOSTICS.items() for each in of.figures]
    assert len(set(keys)) == len(keys)
    assert ("spectrum", "centred_rank_1e-3") in keys
    assert ("gradients", "lost_of_p_-_e") in keys
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+", key) for _, key in keys)
