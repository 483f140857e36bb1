"""The saved views of a suite's runs."""

import json

from harness.records.metrics import METRICS
from harness.tracking import saved_views
from harness.tracking.tracker import Tracker


def test_an_experiment_has_views_that_mlflows_ui_can_read(suite, results, record_of):
    tracker = Tracker(results)
    tracker.log(record_of(suite.trials[0]))
    experiment = tracker.client.get_experiment(tracker.describe("tiny", "# first"))
    (run,) = tracker.client.search_runs([experiment.experiment_id])
    for key in (saved_views.RUNS_VIEW, saved_views.CURVES_VIEW):
        view = json.loads(experiment.tags[f"mlflow.sharedViewState.{key}"])
        assert isinstance(view["name"], str)
        state = json.loads(view["state"])
        known = {f"metrics.`{metric.mlflow}`" for metric in METRICS.values()} | {
            f"tags.`{name}`" for name in run.data.tags
        }
        assert set(state["selectedColumns"]) <= known
        assert state["orderByKey"] in known
        assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`valid/ppl`", True)  # test chooses nothing
    assert state["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "row"}]
