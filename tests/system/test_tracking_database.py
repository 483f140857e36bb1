"""MLflow's database under faults: several processes at once, and files that MLflow cannot use."""

import shutil
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
from harness.tracking.sync import Mirror, Tracker, sync

# A driver that shows the record of argv[1] of the results folder argv[2].
DRIVER = """
import sys
from pathlib import Path
from harness.records import store
from harness.tracking.sync import Mirror

results = Path(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
Mirror(results).show(store.load(results / "runs" / "small", sys.argv[1]))
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
    Mirror(results)
    store.save(record, results / "runs" / "small")
    return SimpleNamespace(results=results, record=record)


@pytest.fixture
def place(pristine, tmp_path):
    return SimpleNamespace(results=shutil.copytree(pristine.results, tmp_path / "results"), record=pristine.record)


@pytest.mark.parametrize("fresh", [True, False])
def test_several_drivers_at_once_make_one_database_and_one_run(place, fresh):
    if fresh:
        (place.results / "mlflow.db").unlink()
    together(place, 3 if fresh else 2)
    assert [run.info.status for run in runs_of(place.results)] == ["FINISHED"]


def test_writing_waits_for_that_of_another_driver(place, monkeypatch):
    mirror = Mirror(place.results)
    monkeypatch.setattr(database, "LOCK_SECONDS", 0.1)
    with database.writing(place.results):
        with pytest.raises(ExecutionError, match=r"\.mlflow\.lock has not been free for 0\.1 s: held by process"):
            mirror.show(place.record)
    mirror.show(place.record)


def of_another_schema(database: sqlite3.Connection) -> None:
    database.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")


def half_made(database: sqlite3.Connection) -> None:
    """As a process leaves it that was killed while MLflow made the tables."""
    (tables,) = zip(*database.execute("SELECT name FROM sqlite_master WHERE type = 'table'"), strict=True)
    database.execute("PRAGMA foreign_keys = OFF")
    for table in tables[len(tables) // 2 :]:
        database.execute(f"DROP TABLE {table}")


@pytest.mark.parametrize("fault", [None, of_another_schema, half_made])
def test_a_database_that_mlflow_cannot_use_is_one_warning_and_made_again_by_sync(place, fault):
    file = place.results / "mlflow.db"
    if fault is None:
        file.write_bytes(b"garbage")
    else:
        with closing(sqlite3.connect(file, isolation_level=None)) as database:
            fault(database)
    warnings, start = [], time.monotonic()
    Tracker(place.results, warnings.append).show(place.record)
    assert time.monotonic() - start < 60  # MLflow itself: 100 s
    assert len(warnings) == 1
    assert warnings[0].startswith(f"MLflow is off from here on (MLflow cannot use {file} (")
    assert warnings[0].endswith("; `harness sync` rebuilds it later")
    said = []
    assert sync(place.results, said.append) == (1, 1)
    assert len(said) == 1
    assert said[0].endswith(f"; it is kept as {file}.previous, and a new one is written from the records")
    assert len(runs_of(place.results)) == 1
