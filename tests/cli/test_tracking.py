"""`harness sync` and `harness ui`."""

from pathlib import Path

import pytest


def database(results: Path) -> tuple[dict, str]:
    """Trial id -> all that its run says, and the description of the experiment."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{results}/mlflow.db")
    experiment = client.get_experiment_by_name("tiny")
    found = {}
    for run in client.search_runs([experiment.experiment_id]):
        history = {
            name: [(m.step, m.value, m.timestamp) for m in client.get_metric_history(run.info.run_id, name)]
            for name in run.data.metrics
        }
        about = (run.info.run_name, run.info.status, run.info.start_time, run.info.end_time)
        trial = run.data.tags["harness.trial_id"]
        assert trial not in found
        found[trial] = (about, run.data.params, run.data.tags, history)
    return found, experiment.tags["mlflow.note.content"]


def test_sync_rebuilds_a_deleted_database_equal(finished, harness):
    (finished / "before").mkdir()
    (finished / "results" / "mlflow.db").rename(finished / "before" / "mlflow.db")
    before = database(finished / "before")
    assert len(before[0]) == 4
    done = harness("sync")
    assert done.code == 0
    assert "4 records of 1 suite" in done.out
    assert database(finished / "results") == before
    assert harness("sync").code == 0
    assert database(finished / "results") == before


def test_sync_deletes_the_runs_of_trials_without_a_record(finished, harness):
    assert harness("sync").code == 0
    gone = sorted((finished / "results" / "runs" / "tiny").glob("*/record.json"))[0]
    gone.unlink()
    assert harness("sync").code == 0
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{finished / 'results' / 'mlflow.db'}")
    (experiment,) = [e.experiment_id for e in client.search_experiments() if e.name == "tiny"]
    runs = client.search_runs([experiment])
    assert len(runs) == 3
    assert gone.parent.name not in {run.data.tags["harness.trial_id"] for run in runs}


GARBAGE = [b"garbage", b"SQLite format 3\0" + b"x" * 5000]


@pytest.mark.parametrize("content", GARBAGE)
def test_a_damaged_database_is_one_sentence_that_says_what_to_do(finished, harness, content):
    (finished / "results" / "mlflow.db").write_bytes(content)
    done = harness("ui")
    assert done.code == 2
    advice = "`harness sync` writes it again from the records\n"
    assert done.err.endswith(f"mlflow.db is damaged, or is not an SQLite database of MLflow; {advice}")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("content", GARBAGE)
def test_sync_sets_a_damaged_database_aside_and_builds_another(finished, harness, content):
    before = database(finished / "results")
    place = finished / "results" / "mlflow.db"
    place.write_bytes(content)
    done = harness("sync")
    assert done.code == 0
    assert done.err.startswith("warning: ")
    assert done.err.count("\n") == 1
    assert place.with_name("mlflow.db.previous").read_bytes() == content
    assert database(finished / "results") == before
