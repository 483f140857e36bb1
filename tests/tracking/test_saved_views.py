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
        assert state["searchFilter"] == "tags.stage = 'table'"
    assert state["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "row"}]


def test_the_views_show_the_trials_of_the_table_and_none_of_tuning(suite, results, record_of):
    tracker = Tracker(results)
    tuning, table = (record_of(trial) for trial in suite.trials[:2])
    for record in (tuning.model_copy(update={"tuning": True}), table):
        tracker.log(record)
    experiment = tracker.client.get_experiment(tracker.describe("tiny", "# first"))
    view = json.loads(experiment.tags[f"mlflow.sharedViewState.{saved_views.CURVES_VIEW}"])
    found = tracker.client.search_runs([experiment.experiment_id], json.loads(view["state"])["searchFilter"])
    assert [run.data.tags["harness.trial_id"] for run in found] == [table.id]
    others = tracker.client.search_runs([experiment.experiment_id], "tags.stage = 'tuning'")
    assert [run.data.tags["harness.trial_id"] for run in others] == [tuning.id]
    assert others[0].info.run_name == f"{tuning.spec.head}, lstm, markov, seed {tuning.spec.seed}, tuning"
    assert others[0].data.tags["row"] != found[0].data.tags["row"]
