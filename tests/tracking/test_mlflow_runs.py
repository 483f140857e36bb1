"""MLflow as a view of the records."""

import io
import json
import shutil
from datetime import UTC, datetime

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, ViewType
from rich.console import Console

from harness.errors import ExecutionError
from harness.records.metrics import METRICS
from harness.records.record import CurvePoint
from harness.tracking import mlflow_runs, ui
from harness.tracking import run_content as content
from harness.tracking.guarded import Tracking
from harness.tracking.mlflow_runs import Tracker, store_uri
from harness.tracking.run_content import CURVES
from harness.tracking.ui import Address, deep_link

MLFLOW_NAMES = {metric.mlflow for metric in METRICS.values() if metric.mlflow is not None}


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A results folder with an empty store; making one takes seconds, copying it none."""
    results = tmp_path_factory.mktemp("empty")
    Tracker(results)
    return results


@pytest.fixture
def results(empty, tmp_path):
    return shutil.copytree(empty, tmp_path / "results")


def runs_of(results, view: int = ViewType.ACTIVE_ONLY) -> list:
    client = MlflowClient(tracking_uri=store_uri(results))
    experiments = [e.experiment_id for e in client.search_experiments() if e.name != "Default"]
    return client.search_runs(experiments, run_view_type=view) if experiments else []


def test_a_record_is_one_flat_run_with_its_tags(suite, results, record_of):
    Tracker(results).log(record_of(suite.trials[2]))
    (run,) = runs_of(results)
    expected = {
        "suite": "tiny",
        "head": "mos(num_mixtures=2, dropout=0.1)",
        "backbone": "lstm(d_model=8, num_layers=1, dropout=0.1)",
        "corpus": "markov(vocab_size=12, num_tokens=400, branching=3)",
        "times": "alone",
        "device": "a processor",
        "seed": "1",
        "commit": "abc",
        "status": "ok",
        "harness.trial_id": suite.trials[2].id,
    }
    assert expected.items() <= run.data.tags.items()
    assert "mlflow.parentRunId" not in run.data.tags
    assert run.info.status == "FINISHED"


def test_a_run_has_the_times_of_the_trial(suite, results, record_of):
    Tracker(results).log(record_of(suite.trials[0]))
    (run,) = runs_of(results)
    started = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp() * 1000
    assert (run.info.start_time, run.info.end_time) == (started, started + 60_000)


def test_params_hold_every_setting_with_defaults(suite, results, record_of):
    Tracker(results).log(record_of(suite.trials[2]))
    params = runs_of(results)[0].data.params
    given = {"head": "mos", "head.num_mixtures": "2", "backbone.d_model": "8", "train.lr": "0.01", "seed": "1"}
    defaults = {
        "head.activation": "tanh",
        "head.tie_weights": "False",
        "corpus.seed": "0",
        "train.eval_batch_size": "10",
    }
    assert {**given, **defaults}.items() <= params.items()


def test_final_metrics_have_their_names_in_mlflow(suite, results, record_of):
    Tracker(results).log(record_of(suite.trials[0]))
    metrics = runs_of(results)[0].data.metrics
    expected = {
        "valid/ppl": 9.5,
        "test/ppl": 9.25,
        "valid/ppl_last": 12.0,
        "test/ppl_last": 11.0,
        "train/best_epoch": 2.0,
        "params/total": 780.0,
        "params/head": 108.0,
        "time/train_ms_per_batch": 2.5,
        "time/eval_ms_per_batch": 1.5,
    }
    assert {name: value for name, value in metrics.items() if not name.endswith("_by_epoch")} == expected


def test_the_curve_stands_at_its_epochs(suite, results, record_of):
    Tracker(results).log(record_of(suite.trials[0]))
    (run,) = runs_of(results)
    client = MlflowClient(tracking_uri=store_uri(results))
    history = {
        name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
        if name.endswith("_by_epoch")
    }
    assert history == {
        "valid/ppl_by_epoch": [(1, 9.75), (2, 9.5)],
        "train/loss_by_epoch": [(1, 2.5), (2, 1.25)],
        "train/lr_by_epoch": [(1, 0.01), (2, 0.01)],
    }


def test_the_table_of_runs_shows_the_best_epochs_perplexity_not_the_curves_last_point(suite, results, record_of):
    curve = [CurvePoint(epoch=at, train_loss=2, valid_ppl=ppl, lr=1, seconds=1) for at, ppl in ((1, 9.5), (1.4, 12.0))]
    Tracker(results).log(record_of(suite.trials[0], curve=tuple(curve)))
    metrics = runs_of(results)[0].data.metrics
    assert (metrics["valid/ppl"], metrics["valid/ppl_by_epoch"], metrics["train/loss_by_epoch"]) == (9.5, 12.0, 2.0)


def test_metrics_have_the_groups_that_the_charts_are_sorted_into():
    groups = {name.partition("/")[0] for name in [*MLFLOW_NAMES, *CURVES.values()]}
    assert groups == {"valid", "test", "time", "params", "memory", "train"}
    assert not set(CURVES.values()) & set(MLFLOW_NAMES)


def test_a_run_reads_the_same_as_one_that_mlflows_own_calls_wrote(suite, results, record_of):
    tracker, record = Tracker(results), record_of(suite.trials[2])
    tracker.log(record)
    (ours,) = runs_of(results)
    client = tracker.client
    about, own = ours.info, [Metric(p.key, p.value, ours.info.end_time, p.step) for p in content.points(record)]
    tags = {name: value for name, value in ours.data.tags.items() if name != "mlflow.runName"}
    theirs = client.create_run(about.experiment_id, about.start_time, tags, str(record.spec)).info.run_id
    params = [Param(name, value) for name, value in content.params(record).items()]
    client.log_batch(theirs, own, params)
    client.set_terminated(theirs, "FINISHED", about.end_time)
    other = client.get_run(theirs)
    assert other.data.to_dictionary() == ours.data.to_dictionary()
    differing = {key for key, value in dict(other.info).items() if value != dict(about)[key]}
    assert differing == {"run_id", "artifact_uri"}
    assert other.info.artifact_uri.replace(theirs, about.run_id) == about.artifact_uri
    for name in ours.data.metrics:
        assert client.get_metric_history(theirs, name) == client.get_metric_history(about.run_id, name)


def test_runs_are_found_by_the_filters_of_the_guide(suite, results, record_of):
    Tracker(results).log(*map(record_of, suite.trials[:5]), record_of(suite.trials[5], "diverged", "nan"))
    client = MlflowClient(tracking_uri=store_uri(results))
    experiment = client.get_experiment_by_name("tiny").experiment_id

    def count(question: str) -> int:
        return len(client.search_runs([experiment], question))

    assert count("tags.head = 'softmax'") == 2
    assert count("tags.head LIKE 'mos%'") == count("params.head = 'mos'") == 4
    assert count("tags.status != 'ok'") == 1
    assert count("params.train.lr = '0.01'") == 6  # as the guide's own example, with another value
    assert count("metrics.`valid/ppl` < 9.6") == 5


def test_many_records_at_once_are_as_many_runs_and_again_none(suite, results, record_of, monkeypatch):
    monkeypatch.setattr(mlflow_runs, "AT_ONCE", 4)
    tracker, logged = Tracker(results), list(map(record_of, suite.trials))
    tracker.log(*logged)
    first = {run.info.run_id: run.data.tags["harness.trial_id"] for run in runs_of(results)}
    assert sorted(first.values()) == sorted(trial.id for trial in suite.trials)
    tracker.log(*logged[:3], record_of(suite.trials[3], "oom", "no memory"), *logged[4:])
    second = {run.info.run_id: run.data.tags["status"] for run in runs_of(results, ViewType.ALL)}
    assert len(second) == 7  # one was replaced
    assert first.keys() < second.keys()
    assert sorted(run.data.tags["status"] for run in runs_of(results)) == ["ok"] * 5 + ["oom"]


def test_an_experiment_has_views_that_mlflows_ui_can_read(suite, results, record_of):
    tracker = Tracker(results)
    tracker.log(record_of(suite.trials[0]))
    experiment = tracker.client.get_experiment(tracker.describe("tiny", "# first"))
    run = runs_of(results)[0]
    for key in (content.RUNS_VIEW, content.CURVES_VIEW):
        view = json.loads(experiment.tags[f"mlflow.sharedViewState.{key}"])
        assert isinstance(view["name"], str)
        state = json.loads(view["state"])
        known = {f"metrics.`{name}`" for name in MLFLOW_NAMES} | {f"tags.`{name}`" for name in run.data.tags}
        assert set(state["selectedColumns"]) <= known
        assert state["orderByKey"] in known
    assert state["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "row"}]


def test_trials_that_differ_in_their_seed_share_a_row(suite, results, record_of):
    rows = {}
    for trial in suite.trials:
        rows.setdefault(content.tags(record_of(trial))["row"], []).append(trial.seed)
    assert list(rows.values()) == [[1, 2]] * 3


def test_the_same_record_again_adds_nothing(suite, results, record_of):
    tracker, record = Tracker(results), record_of(suite.trials[0])
    tracker.log(record)
    before = runs_of(results, ViewType.ALL)
    tracker.log(record)
    Tracker(results).log(record)
    after = runs_of(results, ViewType.ALL)
    assert [run.info.run_id for run in after] == [run.info.run_id for run in before]
    assert len(after) == 1


def test_a_trial_that_ran_again_has_its_run_replaced(suite, results, record_of):
    tracker, metrics = Tracker(results), record_of(suite.trials[0]).metrics
    tracker.log(record_of(suite.trials[0], "error", "RuntimeError: no"))
    tracker.log(record_of(suite.trials[1]))
    tracker.log(record_of(suite.trials[0], metrics={**metrics, "test_ppl": 8.0}, finished="2026-01-03T00:00:00+00:00"))
    found = {run.data.tags["harness.trial_id"]: run for run in runs_of(results)}
    assert len(runs_of(results)) == len(found) == 2
    assert found[suite.trials[0].id].data.metrics["test/ppl"] == 8.0
    assert found[suite.trials[0].id].info.status == "FINISHED"


def test_a_failed_trial_is_a_failed_run_with_its_message(suite, results, record_of):
    Tracker(results).log(record_of(suite.trials[0], "diverged", "Diverged: training loss is nan in epoch 1"))
    (run,) = runs_of(results)
    assert run.info.status == "FAILED"
    assert run.data.tags["status"] == "diverged"
    assert run.data.tags["message"] == "Diverged: training loss is nan in epoch 1"
    assert run.data.metrics == {}


def test_an_invalid_trial_is_a_failed_run_without_its_perplexities(suite, results, record_of):
    metrics = {"test_ppl": 0.5, "valid_ppl": 0.5, "train_minutes": 2.0}
    record = record_of(suite.trials[0], "invalid", "the nll of a test token is -8: below 0", metrics=metrics)
    Tracker(results).log(record)
    (run,) = runs_of(results)
    assert (run.info.status, run.data.tags["status"]) == ("FAILED", "invalid")
    assert run.data.tags["message"] == "the nll of a test token is -8: below 0"
    assert run.data.metrics == {"time/train_minutes": 2.0}


def test_a_failed_trial_that_fails_again_in_the_same_second_shows_its_new_message(suite, results, record_of):
    tracker = Tracker(results)
    tracker.log(record_of(suite.trials[0], "error", "RuntimeError: first"))
    tracker.log(record_of(suite.trials[0], "oom", "MemoryError: second"))
    (run,) = runs_of(results)
    assert (run.data.tags["status"], run.data.tags["message"]) == ("oom", "MemoryError: second")


def test_the_table_is_the_description_of_the_experiment(suite, results):
    tracker = Tracker(results)
    tracker.describe("tiny", "# first")
    experiment = tracker.describe("tiny", "# tiny, version 1\n\n| a |\n")
    found = MlflowClient(tracking_uri=store_uri(results)).get_experiment_by_name("tiny")
    assert found.experiment_id == experiment
    assert found.tags["mlflow.note.content"] == "# tiny, version 1\n\n| a |\n"


def test_a_deleted_experiment_is_taken_up_again(suite, results, record_of):
    tracker = Tracker(results)
    client = MlflowClient(tracking_uri=store_uri(results))
    client.delete_experiment(tracker.describe("tiny", "# first"))
    tracker.log(record_of(suite.trials[0]))
    assert len(runs_of(results)) == 1


def test_the_store_is_the_database_of_the_results_folder(results):
    assert store_uri(results) == f"sqlite:///{results}/mlflow.db"
    assert (results / "mlflow.db").exists()


def test_the_deep_link_opens_the_runs_of_the_suite():
    base = "http://127.0.0.1:5000"
    runs = f"{base}/#/experiments/7/runs?workflowType=machine_learning"
    assert deep_link(base, "7") == f"{runs}&viewStateShareKey=harness-runs"
    assert deep_link(base, "7", charts=True) == f"{runs}&compareRunsMode=CHART&viewStateShareKey=harness-curves"
    assert deep_link(base, None) == f"{base}/#/experiments"


def test_the_ui_refuses_an_unknown_suite_and_names_the_known(suite, results, record_of):
    Tracker(results).log(record_of(suite.trials[0]))
    with pytest.raises(ExecutionError, match=r"no suite 'tyni' in .*mlflow\.db \(known: tiny\)"):
        ui.serve(results, Address(), "tyni", print)


def test_tracking_turns_a_fault_into_one_warning_and_goes_on(results):
    output, asked = io.StringIO(), []
    guarded = Tracking(results, Console(file=output, width=200))

    def fault(tracker):
        asked.append(tracker)
        raise OSError("disk\nfull")

    for _ in range(3):
        guarded.call(fault)
    assert len(asked) == 1
    assert output.getvalue() == (
        "warning: MLflow is off from here on (OSError: disk); `harness sync` rebuilds it later\n"
    )


def test_tracking_survives_a_store_that_cannot_be_opened(tmp_path, monkeypatch):
    monkeypatch.setattr("mlflow.store.db.utils.time.sleep", lambda seconds: None)  # it tries ten times, for 100 s
    (tmp_path / "mlflow.db").mkdir()
    output, asked = io.StringIO(), []
    guarded = Tracking(tmp_path, Console(file=output, width=200))
    guarded.call(asked.append)
    assert asked == []
    assert output.getvalue().startswith("warning: MLflow is off from here on (")


def test_tracking_opens_the_store_once(results):
    asked = []
    guarded = Tracking(results, Console(file=io.StringIO()))
    guarded.call(asked.append)
    guarded.call(asked.append)
    assert isinstance(asked[0], Tracker)
    assert asked[0] is asked[1]


def test_no_tracking_asks_nothing():
    asked, output = [], io.StringIO()
    Tracking(None, Console(file=output)).call(asked.append)
    assert asked == []
    assert output.getvalue() == ""
