"""MLflow's database under faults: several processes at once, a lock, files that MLflow cannot use. It stays a view."""

import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from types import SimpleNamespace

import commands
import handmade
import pytest
from mlflow import MlflowClient
from mlflow.entities import ViewType

from harness.errors import ExecutionError
from harness.records import store
from harness.tracking import database
from harness.tracking.sync import Mirror

# A driver that shows the record of argv[1] of the results folder argv[2].
DRIVER = """
import sys
from pathlib import Path
from harness.records import store
from harness.tracking.sync import Mirror

results = Path(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
Mirror(results, lambda text: sys.exit(text)).show(store.load(results / "runs" / "small", sys.argv[1]))
"""


def together(place, number: int) -> None:
    """Let drivers that are ready go at once, and wait until they have ended. They say only for whom they wait."""
    command = [sys.executable, "-c", DRIVER, place.record.id, str(place.results)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    drivers = [subprocess.Popen(command, text=True, **pipes) for _ in range(number)]
    for each in drivers:
        assert each.stdout.readline() == "ready\n"
    for each in drivers:
        each.stdin.write("go\n")
        each.stdin.flush()
    ends = [each.communicate(timeout=commands.PATIENCE) for each in drivers]
    said = [line for _, err in ends for line in err.splitlines() if not line.startswith("waiting for ")]
    assert ([each.returncode for each in drivers], said) == ([0] * number, [])


def runs_of(results) -> list:
    client = MlflowClient(tracking_uri=database.address(results))
    return client.search_runs([each.experiment_id for each in client.search_experiments()], run_view_type=ViewType.ALL)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A results folder with an empty database and one record that is not shown yet."""
    results, record = tmp_path_factory.mktemp("pristine"), handmade.record()
    Mirror(results, pytest.fail)
    store.save(record, results / "runs" / "small")
    return SimpleNamespace(results=results, record=record)


@pytest.fixture
def place(pristine, tmp_path):
    return SimpleNamespace(results=shutil.copytree(pristine.results, tmp_path / "results"), record=pristine.record)


def opened(place) -> sqlite3.Connection:
    return closing(sqlite3.connect(place.results / "mlflow.db", isolation_level=None))


@pytest.mark.parametrize("fresh", [True, False])
def test_several_drivers_at_once_make_one_database_and_one_run(place, fresh):
    if fresh:
        (place.results / "mlflow.db").unlink()
    together(place, 3 if fresh else 2)
    assert [run.info.status for run in runs_of(place.results)] == ["FINISHED"]


@pytest.mark.guards("mlflow-made-whole")
def test_a_process_that_is_killed_while_it_makes_the_database_leaves_none(tmp_path):
    script = """
import os, pathlib, signal, sys
from mlflow import MlflowClient
from harness.tracking.database import client
MlflowClient.search_experiments = lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL)
client(pathlib.Path(sys.argv[1]))"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, timeout=commands.PATIENCE)
    assert (done.returncode, list(tmp_path.iterdir())) == (-signal.SIGKILL, [])


@pytest.mark.guards("mlflow-one-writer")
@pytest.mark.parametrize("action", ["open", "show", "show_suite"])
def test_every_writing_waits_for_that_of_another_driver(place, monkeypatch, action):
    mirror = Mirror(place.results, pytest.fail)
    call = {
        "open": lambda: Mirror(place.results, pytest.fail),
        "show": lambda: mirror.show(place.record),
        "show_suite": lambda: mirror.show_suite("small", [place.record]),
    }[action]
    monkeypatch.setattr(database, "LOCK_SECONDS", 0.1)
    with database.writing(place.results):
        with pytest.raises(ExecutionError, match=r"\.mlflow\.lock has not been free for 0\.1 s: held by process"):
            call()
    call()


@pytest.mark.guards("mlflow-usable", "mlflow-not-locked")
def test_a_locked_database_is_reported_within_seconds(place, monkeypatch):
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.2)
    mirror = Mirror(place.results, pytest.fail)
    with opened(place) as other:
        other.execute("BEGIN EXCLUSIVE")
        for call in (lambda: Mirror(place.results, pytest.fail), lambda: mirror.show(place.record)):
            start = time.monotonic()
            with pytest.raises(ExecutionError, match=r"mlflow\.db is locked by another program"):
                call()
            assert time.monotonic() - start < 60  # MLflow itself: minutes
        other.execute("ROLLBACK")
    mirror.show(place.record)
    assert len(runs_of(place.results)) == 1


def of_another_schema(place) -> None:
    with opened(place) as other:
        other.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")


def torn(place) -> None:
    content = (place.results / "mlflow.db").read_bytes()
    (place.results / "mlflow.db").write_bytes(content[: len(content) // 2])


def half_made(place) -> None:
    """As a process leaves it that was killed while MLflow made the tables."""
    with opened(place) as other:
        (tables,) = zip(*other.execute("SELECT name FROM sqlite_master WHERE type = 'table'"), strict=True)
        other.execute("PRAGMA foreign_keys = OFF")
        for table in tables[len(tables) // 2 :]:
            other.execute(f"DROP TABLE {table}")


@pytest.mark.parametrize("fault", [of_another_schema, torn, half_made])
def test_a_database_that_mlflow_cannot_use_is_set_aside_and_built_again(place, fault):
    fault(place)
    damaged, warnings = (place.results / "mlflow.db").read_bytes(), []
    Mirror(place.results, warnings.append).show(place.record)
    assert len(warnings) == 1
    kept = place.results / "mlflow.db.previous"
    assert warnings[0].endswith(f"; it is kept as {kept}, and `harness sync` writes all records to a new one")
    if fault is not half_made:  # MLflow begins to mend it
        assert kept.read_bytes() == damaged
    assert len(runs_of(place.results)) == 1
    Mirror(place.results, pytest.fail).show(place.record)
    assert len(runs_of(place.results)) == 1
