"""MLflow as a view of the records."""

from datetime import UTC, datetime

import pytest
from mlflow import MlflowClient
from mlflow.entities import ViewType

from harness.records.metrics import METRICS
from harness.records.record import CurvePoint
from harness.tracking import run_fields, tracker
from harness.tracking.run_fields import CURVES
from harness.tracking.tracker import Tracker, store_uri

MLFLOW_NAMES = {metric.mlflow for metric in METRICS.values() if metric.mlflow is not None}


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
    assert {name: value for name, value in metrics.items() if name not in CURVES.values()} == expected


def test_the_curve_stands_at_its_epochs(suite, results, record_of):
    Tracker(results).log(record_of(suite.trials[0]))
    (run,) = runs_of(results)
    client = MlflowClient(tracking_uri=store_uri(results))
    history = {
        name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
        if name in CURVES.values()
    }
    assert history == {
        "curves/valid_ppl": [(1, 9.75), (2, 9.5)],
        "curves/train_loss": [(1, 2.5), (2, 1.25)],
        "train/lr_by_epoch": [(1, 0.01), (2, 0.01)],
    }


def test_the_table_of_runs_shows_the_best_epochs_perplexity_not_the_curves_last_point(suite, results, record_of):
    curve = [CurvePoint(epoch=at, train_loss=2, valid_ppl=ppl, lr=1, seconds=1) for at, ppl in ((1, 9.5), (1.4, 12.0))]
    Tracker(results).log(record_of(suite.trials[0], curve=tuple(curve)))
    metrics = runs_of(results)[0].data.metrics
    assert (metrics["valid/ppl"], metrics["curves/valid_ppl"], metrics["curves/train_loss"]) == (9.5, 12.0, 2.0)


def test_metrics_have_the_groups_that_the_charts_are_sorted_into():
    groups = {name.partition("/")[0] for name in [*MLFLOW_NAMES, *CURVES.values()]}
    assert groups == {"curves", "valid", "test", "time", "params", "ngrams", "memory", "train"}
    assert not set(CURVES.values()) & set(MLFLOW_NAMES)


def test_learning_curves_are_the_first_charts_because_mlflow_sorts_groups_by_name():
    # MLflow 3.17, main.js, getBaseChartAndSectionConfigs: groups sorted by name, a metric with several steps is a line
    names = sorted([*MLFLOW_NAMES, *CURVES.values()])
    first = min(name.partition("/")[0] for name in names)
    assert [name for name in names if name.startswith(f"{first}/")] == ["curves/train_loss", "curves/valid_ppl"]


def test_the_name_of_a_run_has_head_and_backbone(suite, results, record_of):
    Tracker(results).log(record_of(suite.trials[2]))
    (run,) = runs_of(results)
    assert run.info.run_name == "mos(num_mixtures=2, dropout=0.1), lstm, markov, seed 1"


@pytest.mark.parametrize(
    ("value", "shown"), [(111.173492, 111.173), (0.000123456789, 0.000123457), (4567891.0, 4567891.0), (9.5, 9.5)]
)
def test_numbers_have_six_digits_and_counts_all_of_theirs(value, shown):
    assert run_fields.rounded(value) == shown


def test_runs_of_an_earlier_layout_are_written_again(suite, results, record_of, monkeypatch):
    tracker, record = Tracker(results), record_of(suite.trials[0])
    monkeypatch.setattr(run_fields, "LAYOUT", 1)
    tracker.log(record)
    (before,) = runs_of(results)
    monkeypatch.undo()
    tracker.catch_up("tiny", [record])
    (after,) = runs_of(results)
    assert after.info.run_id != before.info.run_id
    tracker.catch_up("tiny", [record])
    assert [run.info.run_id for run in runs_of(results)] == [after.info.run_id]


def test_a_run_of_more_values_than_mlflow_accepts_in_one_call_is_complete(suite, results, record_of, monkeypatch):
    monkeypatch.setattr(tracker, "MAX_PARAMS", 7)  # no head has a hundred parameters
    points = [CurvePoint(epoch=n, train_loss=2, valid_ppl=9.5, lr=1 / n, seconds=1) for n in range(1, 1001)]
    record = record_of(suite.trials[2], curve=tuple(points))
    Tracker(results).log(record)
    (run,) = runs_of(results)
    assert run.data.params == run_fields.params(record)
    client = MlflowClient(tracking_uri=store_uri(results))
    for name in CURVES.values():
        assert [m.step for m in client.get_metric_history(run.info.run_id, name)] == list(range(1, 1001))
    assert run.data.metrics["train/lr_by_epoch"] == 1 / 1000


def test_runs_are_found_by_the_filters_of_the_guide(suite, results, record_of):
    found = [*map(record_of, suite.trials[:5]), record_of(suite.trials[5], "diverged", "nan")]
    Tracker(results).catch_up("tiny", found)
    client = MlflowClient(tracking_uri=store_uri(results))
    experiment = client.get_experiment_by_name("tiny").experiment_id

    def count(question: str) -> int:
        return len(client.search_runs([experiment], question))

    assert count("tags.head = 'softmax'") == 2
    assert count("tags.head LIKE 'mos%'") == count("params.head = 'mos'") == 4
    assert count("tags.status != 'ok'") == 1
    assert count("params.train.lr = '0.01'") == 6  # as the guide's own example, with another value
    assert count("metrics.`valid/ppl` < 9.6") == 5


def test_catching_up_writes_the_records_that_are_not_shown_and_no_other(suite, results, record_of):
    tracker, logged = Tracker(results), list(map(record_of, suite.trials))
    tracker.log(logged[0])
    tracker.catch_up("tiny", logged)
    first = {run.info.run_id: run.data.tags["harness.trial_id"] for run in runs_of(results)}
    assert sorted(first.values()) == sorted(trial.id for trial in suite.trials)
    tracker.catch_up("tiny", [*logged[:3], record_of(suite.trials[3], "oom", "no memory"), *logged[4:]])
    second = {run.info.run_id: run.data.tags["status"] for run in runs_of(results, ViewType.ALL)}
    assert len(second) == 7  # one was replaced
    assert first.keys() < second.keys()
    assert sorted(run.data.tags["status"] for run in runs_of(results)) == ["ok"] * 5 + ["oom"]


def test_catching_up_lists_the_runs_once(suite, results, record_of, monkeypatch):
    tracker, logged = Tracker(results), list(map(record_of, suite.trials))
    tracker.catch_up("tiny", logged)
    searches, original = [], MlflowClient.search_runs
    monkeypatch.setattr(
        MlflowClient, "search_runs", lambda *args, **kwargs: searches.append(args) or original(*args, **kwargs)
    )
    tracker.catch_up("tiny", logged)
    assert len(searches) == 1


def test_logging_one_record_asks_for_the_runs_of_its_trial_only(suite, results, record_of, monkeypatch):
    tracker, questions, original = Tracker(results), [], MlflowClient.search_runs
    monkeypatch.setattr(
        MlflowClient, "search_runs", lambda *args, **kwargs: questions.append(args[2]) or original(*args, **kwargs)
    )
    tracker.log(record_of(suite.trials[0]))
    assert questions == [f"tags.`harness.trial_id` = '{suite.trials[0].id}'"]


def test_runs_beyond_the_first_page_are_listed(suite, results, record_of, monkeypatch):
    tracker, logged, original = Tracker(results), list(map(record_of, suite.trials)), MlflowClient.search_runs
    tracker.catch_up("tiny", logged)
    before = runs_of(results, ViewType.ALL)
    monkeypatch.setattr(
        MlflowClient, "search_runs", lambda *args, **kwargs: original(*args, **{**kwargs, "max_results": 4})
    )
    tracker.catch_up("tiny", logged)
    monkeypatch.undo()
    assert len(runs_of(results, ViewType.ALL)) == len(before) == 6


@pytest.mark.guards("all-pages-of-runs")
def test_runs_beyond_the_first_page_are_removed_too(suite, results, record_of, monkeypatch):
    tracker, original = Tracker(results), MlflowClient.search_runs
    tracker.catch_up("tiny", map(record_of, suite.trials))
    monkeypatch.setattr(
        MlflowClient, "search_runs", lambda *args, **kwargs: original(*args, **{**kwargs, "max_results": 4})
    )
    tracker.catch_up("tiny", [], remove_others=True)
    monkeypatch.undo()
    assert runs_of(results) == []


@pytest.mark.guards("runs-of-others-stay")
def test_runs_of_other_trials_stay_unless_their_removal_is_asked_for(suite, results, record_of):
    tracker, logged = Tracker(results), list(map(record_of, suite.trials))
    tracker.catch_up("tiny", logged)
    tracker.catch_up("tiny", logged[:2])
    assert len(runs_of(results)) == 6
    tracker.catch_up("tiny", logged[:2], remove_others=True)
    assert {run.data.tags["harness.trial_id"] for run in runs_of(results)} == {trial.id for trial in suite.trials[:2]}


@pytest.mark.guards("one-run-per-trial")
def test_two_runs_of_one_trial_are_replaced_by_one(suite, results, record_of):
    tracker, record = Tracker(results), record_of(suite.trials[0])
    tracker.log(record)
    tracker._write(record, tracker._experiment("tiny"))
    assert len(runs_of(results)) == 2
    tracker.catch_up("tiny", [record])
    assert len(runs_of(results)) == 1


@pytest.mark.guards("runs-of-users-stay")
def test_a_run_that_a_user_added_stays(suite, results, record_of):
    tracker = Tracker(results)
    tracker.client.create_run(tracker.describe("tiny", "# tiny"), run_name="my own")
    tracker.catch_up("tiny", [record_of(suite.trials[0])], remove_others=True)
    assert {run.info.run_name for run in runs_of(results)} == {"my own", run_fields.name(record_of(suite.trials[0]))}


def test_trials_that_differ_in_their_seed_share_a_row(suite, results, record_of):
    rows = {}
    for trial in suite.trials:
        rows.setdefault(run_fields.tags(record_of(trial))["row"], []).append(trial.seed)
    assert list(rows.values()) == [[1, 2]] * 3


@pytest.mark.guards("run-not-logged-twice")
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


@pytest.mark.guards("invalid-run")
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


def test_a_deleted_experiment_is_restored(suite, results, record_of):
    tracker = Tracker(results)
    client = MlflowClient(tracking_uri=store_uri(results))
    client.delete_experiment(tracker.describe("tiny", "# first"))
    tracker.log(record_of(suite.trials[0]))
    assert len(runs_of(results)) == 1


def test_the_store_is_the_database_of_the_results_folder(results):
    assert store_uri(results) == f"sqlite:///{results}/mlflow.db"
    assert (results / "mlflow.db").exists()
