"""MLflow as a view of the records."""

from datetime import UTC, datetime

import pytest
from mlflow import MlflowClient
from mlflow.entities import ViewType

from harness.records import store
from harness.records.record import CurvePoint
from harness.tracking import database, fields, sync
from harness.tracking.fields import CURVES, LAYOUT
from harness.tracking.sync import Mirror, Tracker

pytestmark = pytest.mark.system


@pytest.fixture
def mirror(results):
    return Mirror(results)


@pytest.fixture
def records(suite, record_of):
    return list(map(record_of, suite.trials))


def runs_of(results, view: int = ViewType.ACTIVE_ONLY) -> list:
    client = MlflowClient(tracking_uri=database.address(results))
    experiments = [e.experiment_id for e in client.search_experiments() if e.name != "Default"]
    return client.search_runs(experiments, run_view_type=view) if experiments else []


def trial_of(run) -> str:
    return run.data.tags["harness.trial_id"]


def experiment_of(mirror):
    return mirror.client.get_experiment_by_name("tiny")


def history_of(mirror, run) -> dict[str, list[tuple[int, float]]]:
    known = CURVES.values() & run.data.metrics.keys()
    return {
        name: [(m.step, m.value) for m in mirror.client.get_metric_history(run.info.run_id, name)] for name in known
    }


def test_a_record_is_one_flat_run_with_its_tags_times_settings_and_curves(mirror, records):
    mirror.show(records[2])
    (run,) = runs_of(mirror.results)
    assert (
        run.data.tags.items()
        >= {
            "suite": "tiny",
            "head": "mos(num_mixtures=2, dropout=0.1)",
            "backbone": "lstm(d_model=8, num_layers=1, dropout=0.1)",
            "corpus": "markov(vocab_size=12, num_tokens=400, branching=3)",
            "times": "alone",
            "device": "a processor",
            "seed": "1",
            "commit": "abc",
            "status": "ok",
            "stage": "table",
            "harness.trial_id": records[2].id,
            "harness.record": f"{store.digest(records[2])} {LAYOUT}",
        }.items()
    )
    started = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp() * 1000
    assert (run.info.status, run.info.start_time, run.info.end_time) == ("FINISHED", started, started + 60_000)
    given = {"head": "mos", "head.num_mixtures": "2", "backbone.d_model": "8", "train.lr": "0.01", "seed": "1"}
    defaults = {"head.activation": "tanh", "corpus.seed": "0", "train.eval_batch_size": "10"}
    assert run.data.params.items() >= {**given, **defaults}.items()
    assert {name: value for name, value in run.data.metrics.items() if name not in CURVES.values()} == {
        "valid_ppl": 9.5,
        "test_ppl": 9.25,
        "last_valid_ppl": 12.0,
        "last_test_ppl": 11.0,
        "best_epoch": 2.0,
        "params_total": 780.0,
        "params_head": 108.0,
        "train_ms_per_batch": 2.5,
        "eval_ms_per_batch": 1.5,
        "context_tokens": 7.0,
        "scored_test_tokens": 3.0,
        "state_carried": 1.0,
    }
    assert history_of(mirror, run) == {
        "curves/valid_ppl": [(1, 9.75), (2, 9.5)],
        "curves/train_loss": [(1, 2.5), (2, 1.25)],
        "curves/lr": [(1, 0.01), (2, 0.01)],
    }


def test_a_run_of_more_values_than_mlflow_accepts_in_one_call_is_complete(mirror, suite, record_of, monkeypatch):
    monkeypatch.setattr(sync, "MAX_PARAMS", 7)  # no head has a hundred parameters
    points = [CurvePoint(epoch=n, train_loss=2, valid_ppl=9.5, lr=1 / n, seconds=1) for n in range(1, 1001)]
    record = record_of(suite.trials[2], curve=tuple(points))
    mirror.show(record)
    (run,) = runs_of(mirror.results)
    assert run.data.params == fields.params(record)
    assert {name: len(points) for name, points in history_of(mirror, run).items()} == dict.fromkeys(
        CURVES.values(), 1000
    )
    assert run.data.metrics["curves/lr"] == 1 / 1000


def test_runs_are_found_by_the_filters_of_the_guide(mirror, suite, records, record_of):
    mirror.show_suite("tiny", [*records[:5], record_of(suite.trials[5], "diverged", "nan")])
    expected = {
        "tags.head = 'softmax'": 2,
        "tags.head LIKE 'mos%'": 4,
        "params.head = 'mos'": 4,
        "tags.status != 'ok'": 1,
        "params.train.lr = '0.01'": 6,
        "metrics.valid_ppl < 9.6": 5,
    }
    experiment = experiment_of(mirror).experiment_id
    assert {question: len(mirror.client.search_runs([experiment], question)) for question in expected} == expected


def test_the_same_record_again_writes_nothing(mirror, records):
    mirror.show(records[0])
    before = [run.info.run_id for run in runs_of(mirror.results)]
    mirror.show(records[0])
    Mirror(mirror.results).show(records[0])
    assert [run.info.run_id for run in runs_of(mirror.results, ViewType.ALL)] == before


def test_a_suite_writes_what_is_not_shown_and_no_other(mirror, suite, records, record_of):
    mirror.show(records[0])
    mirror.show_suite("tiny", records)
    first = {run.info.run_id: trial_of(run) for run in runs_of(mirror.results)}
    assert sorted(first.values()) == sorted(trial.id for trial in suite.trials)
    mirror.show_suite("tiny", [*records[:3], record_of(suite.trials[3], "oom", "no memory"), *records[4:]])
    second = {run.info.run_id: run.data.tags["status"] for run in runs_of(mirror.results, ViewType.ALL)}
    assert len(second) == 7  # one was replaced
    assert first.keys() < second.keys()
    assert sorted(run.data.tags["status"] for run in runs_of(mirror.results)) == ["ok"] * 5 + ["oom"]


@pytest.mark.parametrize("digest", [None, "another"], ids=["killed before it was complete", "of another record"])
def test_runs_that_do_not_show_the_record_are_replaced_by_one(mirror, records, digest):
    mirror.show(records[0])
    tags = {"harness.trial_id": records[0].id} | ({} if digest is None else {"harness.record": digest})
    for status in ("RUNNING", "FINISHED"):
        run = mirror.client.create_run(experiment_of(mirror).experiment_id, tags=tags)
        mirror.client.update_run(run.info.run_id, status)
    mirror.show_suite("tiny", records[:1])
    (run,) = runs_of(mirror.results)
    assert (run.info.status, run.data.metrics["valid_ppl"]) == ("FINISHED", 9.5)


@pytest.mark.parametrize(
    ("status", "message", "metrics", "shown"),
    [
        ("diverged", "Diverged: training loss is nan in epoch 1", {}, {}),
        (
            "invalid",
            "the nll of a test token is -8: below 0",
            {"test_ppl": 0.5, "train_minutes": 2.0},
            {"train_minutes": 2.0},
        ),
    ],
)
def test_a_trial_that_failed_or_is_invalid_is_a_failed_run_with_its_message(
    mirror, suite, record_of, status, message, metrics, shown
):
    mirror.show(record_of(suite.trials[0], "error", "RuntimeError: first"))
    mirror.show(record_of(suite.trials[0], status, message, metrics=metrics))
    (run,) = runs_of(mirror.results)
    tags = run.data.tags
    assert (run.info.status, tags["status"], tags["message"], run.data.metrics) == ("FAILED", status, message, shown)


def test_a_deleted_experiment_is_restored(mirror, records):
    mirror.show_suite("tiny", [])
    mirror.client.delete_experiment(experiment_of(mirror).experiment_id)
    mirror.show(records[0])
    assert len(runs_of(mirror.results)) == 1


def test_a_fault_is_one_warning_and_nothing_is_shown_after_it(results, records, monkeypatch):
    warnings, asked = [], []

    def fault(mirror, record):
        asked.append(record)
        raise OSError("disk\nfull")

    monkeypatch.setattr(Mirror, "show", fault)
    tracker = Tracker(results, warnings.append)
    for record in records:
        tracker.show(record)
    assert asked == records[:1]
    assert warnings == ["MLflow is off from here on (OSError: disk); `harness sync` rebuilds it later"]


def test_no_tracking_opens_nothing(records, tmp_path):
    Tracker(None, pytest.fail).show(records[0])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["what?", "50%41"])
def test_a_path_that_cannot_be_an_address_is_a_sentence_and_nothing_is_written(name, tmp_path, records):
    warnings = []
    Tracker(tmp_path / name, warnings.append).show(records[0])
    assert warnings == [
        f"MLflow is off from here on (MLflow cannot open {tmp_path / name}/mlflow.db: a path with '?' or '%' is no "
        "address of a database); `harness sync` rebuilds it later"
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_database_holds_no_path_so_that_results_can_be_moved(mirror, records, tmp_path):
    mirror.show_suite("tiny", records)
    assert experiment_of(mirror).artifact_location == "mlflow-artifacts:/tiny"
    moved = mirror.results.rename(tmp_path / "moved here")
    Mirror(moved).show_suite("tiny", records)
    assert len(runs_of(moved, ViewType.ALL)) == 6
    assert not mirror.results.exists()


def test_runs_of_other_trials_stay_unless_their_removal_is_asked_for_and_those_of_users_always(mirror, records):
    mirror.show_suite("tiny", records)
    mirror.client.create_run(experiment_of(mirror).experiment_id, run_name="my own")
    mirror.show_suite("tiny", records[:2])
    assert len(runs_of(mirror.results)) == 7
    mirror.show_suite("tiny", records[:2], remove_others=True)
    assert {run.info.run_name for run in runs_of(mirror.results)} == {"my own", *map(fields.name, records[:2])}
