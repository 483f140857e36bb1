"""MLflow's database under faults: several at once, writers that die, files that are no database. It stays a view."""

import os
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
from disturbed import wait_for
from mlflow import MlflowClient
from mlflow.entities import ViewType

from harness import plan
from harness.errors import ExecutionError
from harness.machine import processes
from harness.machine.processes import abandoned_scratch, scratch_prefix
from harness.records import store
from harness.records.record import CurvePoint, TrialRecord
from harness.tracking import database
from harness.tracking.run_fields import CURVES, LAYOUT
from harness.tracking.tracker import Tracker, open_or_replace, store_uri

# A driver that logs the record of argv[1] below the results folder argv[2]. It is killed before the first call of the
# method of MLflow's client that argv[3] names; without a name it is not killed.
DRIVER = """
import os, signal, sys
from pathlib import Path
from harness.records import store
from harness.tracking.tracker import MlflowClient, Tracker

trial, results, name = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
if name:
    setattr(MlflowClient, name, lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL))
print("ready", flush=True)
sys.stdin.readline()
Tracker(results).log(store.load(results / "runs" / "tiny", trial))
"""


def driver(place, call: str = "") -> subprocess.Popen:
    command = [sys.executable, "-c", DRIVER, place.record.id, str(place.results), call]
    return subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def together(*drivers: subprocess.Popen) -> list[tuple[int, str]]:
    """Let drivers that are ready go at once; their exit codes and standard errors."""
    for each in drivers:
        assert each.stdout.readline() == "ready\n"
    for each in drivers:
        each.stdin.write("go\n")
        each.stdin.flush()
    ends = [each.communicate(timeout=commands.PATIENCE) for each in drivers]
    return [(each.returncode, err) for each, (_, err) in zip(drivers, ends, strict=True)]


def runs_of(results, view: int = ViewType.ACTIVE_ONLY) -> list:
    client = MlflowClient(tracking_uri=store_uri(results))
    return client.search_runs([each.experiment_id for each in client.search_experiments()], run_view_type=view)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "tiny.yaml"
    path.write_text(commands.SUITE)
    curve = tuple(CurvePoint(epoch=e, train_loss=2.5, valid_ppl=9.5, lr=0.01, seconds=0.5) for e in (1, 2))
    spec = plan.load(path).trials[0]
    return handmade.record(suite="tiny", spec=spec, metrics={"valid_ppl": 9.5, "test_ppl": 9.25}, curve=curve)


@pytest.fixture(scope="module")
def pristine(record, tmp_path_factory):
    """A results folder with an empty database and one record that is not logged yet."""
    results = tmp_path_factory.mktemp("pristine")
    Tracker(results)
    store.save(record, results / "runs" / "tiny")
    return SimpleNamespace(results=results, record=record)


@pytest.fixture
def place(pristine, tmp_path):
    results = shutil.copytree(pristine.results, tmp_path / "results")
    return SimpleNamespace(results=results, record=pristine.record)


DEATHS = {"before the run": "create_run", "before its values": "log_batch", "before its end": "set_terminated"}


@pytest.fixture(scope="module")
def victims(pristine, tmp_path_factory):
    """Where a driver died -> its results folder."""
    folders = {death: tmp_path_factory.mktemp("victim") / "results" for death in DEATHS}
    for folder in folders.values():
        shutil.copytree(pristine.results, folder)
    places = [SimpleNamespace(results=folder, record=pristine.record) for folder in folders.values()]
    ends = together(*(driver(each, call) for each, call in zip(places, DEATHS.values(), strict=True)))
    assert [code for code, _ in ends] == [-signal.SIGKILL] * len(DEATHS)
    return folders


@pytest.fixture(params=DEATHS)
def left(victims, pristine, tmp_path, request):
    """A results folder as a dead driver left it."""
    results = shutil.copytree(victims[request.param], tmp_path / "left")
    return SimpleNamespace(results=results, record=pristine.record, death=request.param)


@pytest.fixture(params=[{}, {"harness.record": "another"}], ids=["half written", "complete, of another record"])
def zombie(place, request):
    """A run of the record's trial that a dead driver left RUNNING."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    writer = f"{processes.current_process().split()[0]} {child.pid} {time.time():.2f}"
    tags = {"harness.trial_id": place.record.id, "harness.writer": writer, **request.param}
    tracker = Tracker(place.results)
    return tracker.client.create_run(tracker.describe("tiny", "# tiny"), tags=tags)


@pytest.fixture
def fresh(place):
    (place.results / "mlflow.db").unlink()
    return place


def test_mlflow_db_race_several_processes_open_a_fresh_folder_at_once(fresh):
    ends = together(*(driver(fresh) for _ in range(3)))
    assert ends == [(0, "")] * 3
    assert len(runs_of(fresh.results, ViewType.ALL)) == 1
    assert not (fresh.results / "mlflow.db.new").exists()


@pytest.mark.guards("mlflow-made-whole")
def test_mlflow_db_race_a_creator_that_dies_leaves_no_half_made_database(fresh):
    ((code, _),) = together(driver(fresh, "search_experiments"))
    assert code == -signal.SIGKILL
    assert not (fresh.results / "mlflow.db").exists()
    (fresh.results / "mlflow.db.new").write_bytes(b"SQLite format 3\0" + b"half made" * 100)
    Tracker(fresh.results).log(fresh.record)
    assert [run.info.status for run in runs_of(fresh.results)] == ["FINISHED"]


def test_two_drivers_log_the_same_trial_as_one_run(place):
    assert together(driver(place), driver(place)) == [(0, ""), (0, "")]
    assert len(runs_of(place.results, ViewType.ALL)) == 1


@pytest.mark.guards("mlflow-one-writer")
@pytest.mark.parametrize("action", ["log", "catch_up", "describe"])
def test_two_drivers_every_writing_waits_for_the_other(place, monkeypatch, action):
    tracker = Tracker(place.results)
    call = {
        "log": lambda: tracker.log(place.record),
        "catch_up": lambda: tracker.catch_up("tiny", [place.record]),
        "describe": lambda: tracker.describe("tiny", "# tiny"),
    }[action]
    monkeypatch.setattr(database, "LOCK_SECONDS", 0.1)
    with database.single_writer(place.results):
        with pytest.raises(ExecutionError, match=r"\.mlflow\.lock has been held by another process for 0\.1 s"):
            call()
    call()


def test_a_killed_driver_leaves_no_run_or_one_that_is_known_as_incomplete(left):
    begun = [left.record.id] if left.death != "before the run" else []
    assert [run.info.status for run in runs_of(left.results, ViewType.ALL)] == ["RUNNING"] * len(begun)
    assert database.left_running(left.results) == begun


@pytest.mark.guards("one-run-per-trial")
@pytest.mark.parametrize("write", ["log", "catch_up"])
def test_zombie_runs_of_a_killed_driver_are_replaced(place, zombie, write):
    assert database.left_running(place.results) == [place.record.id]
    tracker = Tracker(place.results)
    if write == "log":
        tracker.log(place.record)
    else:
        tracker.catch_up("tiny", [place.record])
    assert database.left_running(place.results) == []
    (run,) = runs_of(place.results)
    assert run.info.status == "FINISHED"
    assert run.info.run_id != zombie.info.run_id


@pytest.mark.guards("run-ended", "run-digest")
@pytest.mark.parametrize("status", ["FINISHED", "KILLED", "RUNNING"])
@pytest.mark.parametrize("right_digest", [True, False])
def test_a_run_shows_a_record_only_with_its_digest_and_its_final_status(place, status, right_digest):
    tracker = Tracker(place.results)
    shown_as = f"{store.digest(place.record)} {LAYOUT}" if right_digest else ""
    tags = {"harness.trial_id": place.record.id, "harness.record": shown_as}
    run = tracker.client.create_run(tracker.describe("tiny", "# tiny"), tags=tags).info.run_id
    tracker.client.update_run(run, status)
    tracker.log(place.record)
    kept = [each.info.run_id for each in runs_of(place.results)] == [run]
    assert kept == (right_digest and status == "FINISHED")


@pytest.mark.guards("run-of-living-writer")
@pytest.mark.parametrize("writer", ["this process", "elsewhere 1 5.00", "no writer", None])
def test_zombie_runs_of_the_living_and_of_other_hosts_are_left_alone(place, writer):
    tracker = Tracker(place.results)
    experiment = tracker.describe("tiny", "# tiny")
    tags = {"harness.trial_id": place.record.id}
    if writer is not None:
        tags["harness.writer"] = processes.current_process() if writer == "this process" else writer
    tracker.client.create_run(experiment, tags=tags)
    Tracker(place.results)
    assert [run.info.status for run in runs_of(place.results)] == ["RUNNING"]
    assert database.left_running(place.results) == []


@pytest.mark.guards("process-id-reused")
def test_a_process_id_that_was_given_to_another_process_is_a_dead_writer():
    host, pid, started = processes.current_process().rsplit(" ", 2)
    assert not processes.has_ended(f"{host} {pid} {started}")
    assert processes.has_ended(f"{host} {pid} {float(started) - 60}")


def test_a_writer_that_is_dead_and_not_waited_for_is_gone():
    child = subprocess.Popen(
        [sys.executable, "-c", "from harness.machine import processes; print(processes.current_process())"]
    )
    child.kill()
    host = processes.current_process().split()[0]
    assert wait_for(lambda: processes.has_ended(f"{host} {child.pid} {time.time():.2f}"))
    child.wait()


def test_one_run_per_trial_however_the_driver_died(left):
    for _ in range(2):
        Tracker(left.results).log(left.record)
    (run,) = runs_of(left.results)
    assert (run.info.status, run.data.tags["harness.trial_id"]) == ("FINISHED", left.record.id)


def test_resume_no_duplicate_steps(left):
    for _ in range(2):
        Tracker(left.results).log(left.record)
    (run,) = runs_of(left.results)
    client = MlflowClient(tracking_uri=store_uri(left.results))
    assert {"valid/ppl", "curves/valid_ppl"} <= run.data.metrics.keys()
    for name in run.data.metrics:
        steps = [point.step for point in client.get_metric_history(run.info.run_id, name)]
        assert steps == ([1, 2] if name in CURVES.values() else [0])


def test_nonfinite_numbers_are_refused_by_the_record_and_never_reach_mlflow(place):
    for number in (float("inf"), float("nan")):
        with pytest.raises(ValueError, match="finite"):
            TrialRecord(**{**dict(place.record), "metrics": {"valid_ppl": number}})
    diverged = place.record.model_copy(update={"status": "diverged", "metrics": {}, "curve": (), "message": "nan"})
    Tracker(place.results).log(diverged)
    (run,) = runs_of(place.results)
    assert (run.info.status, run.data.tags["status"], run.data.metrics) == ("FAILED", "diverged", {})


@pytest.mark.guards("mlflow-usable", "mlflow-not-locked")
def test_mlflow_broken_a_locked_database_is_reported_within_seconds(place, monkeypatch):
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.2)
    tracker = Tracker(place.results)
    with closing(sqlite3.connect(place.results / "mlflow.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        calls = (
            lambda: Tracker(place.results),
            lambda: tracker.log(place.record),
            lambda: tracker.describe("tiny", "#"),
        )
        for call in calls:
            start = time.monotonic()
            with pytest.raises(ExecutionError, match=r"mlflow\.db is locked by another program"):
                call()
            assert time.monotonic() - start < 60  # MLflow itself: minutes
        other.execute("ROLLBACK")
    tracker.log(place.record)
    assert len(runs_of(place.results)) == 1


def test_mlflow_broken_a_database_of_another_schema_is_set_aside_by_sync(place):
    with closing(sqlite3.connect(place.results / "mlflow.db")) as other:
        other.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
        other.commit()
    with pytest.raises(
        database.UnusableDatabase, match=r"mlflow\.db cannot be used by this version of MLflow \(MlflowException: "
    ):
        Tracker(place.results)
    warnings = []
    open_or_replace(place.results, warnings.append).log(place.record)
    assert len(warnings) == 1
    assert warnings[0].endswith(f"it is kept as {place.results / 'mlflow.db.previous'}")
    assert len(runs_of(place.results)) == 1


@pytest.mark.guards("mlflow-moved")
def test_moved_results_are_noticed(place, tmp_path):
    Tracker(place.results).log(place.record)
    assert database.made_elsewhere(place.results) is None
    moved = place.results.rename(tmp_path / "moved here")
    assert database.made_elsewhere(moved) == place.results
    warnings = []
    open_or_replace(moved, warnings.append).log(place.record)
    kept = moved / "mlflow.db.previous"
    assert warnings == [f"{moved / 'mlflow.db'} was made for {place.results}; it is kept as {kept}"]
    assert database.made_elsewhere(moved) is None
    assert str(place.results).encode() not in (moved / "mlflow.db").read_bytes()
    assert [os.path.exists(place.results), len(runs_of(moved))] == [False, 1]


ODD = "a b?c=d%41#e"  # begins options, a quoted character, a fragment, in one address or another


@pytest.mark.guards("uri-of-any-name")
def test_a_results_folder_of_any_name_has_its_database_and_nothing_lies_elsewhere(tmp_path):
    results = tmp_path / ODD
    tracker = Tracker(results)
    record = handmade.record()
    tracker.log(record)
    assert [run.data.tags["harness.trial_id"] for run in runs_of(results)] == [record.id]
    (location,) = [each.artifact_location for each in tracker.client.search_experiments() if each.name == "small"]
    assert location == (results.resolve() / "artifacts" / "small").as_uri()
    assert database.made_elsewhere(results) is None
    assert [each.name for each in tmp_path.iterdir()] == [ODD]


def test_the_link_to_such_a_folder_goes_with_its_process(tmp_path):
    (tmp_path / ODD).mkdir()
    (tmp_path / "scratch").mkdir()
    script = "import sys, pathlib, harness.tracking.database as it; print(it.path_for_uri(pathlib.Path(sys.argv[1])))"
    command = [sys.executable, "-c", script, str(tmp_path / ODD)]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "scratch")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith(str(tmp_path / "scratch" / scratch_prefix())), done.stderr
    assert list((tmp_path / "scratch").iterdir()) == []
    assert (tmp_path / ODD).is_dir()


def test_the_link_of_a_killed_process_is_known_as_abandoned(tmp_path):
    (tmp_path / ODD).mkdir()
    (tmp_path / "scratch").mkdir()
    script = """
import os, pathlib, signal, sys, harness.tracking.database as it
it.path_for_uri(pathlib.Path(sys.argv[1]))
os.kill(os.getpid(), signal.SIGKILL)"""
    environment = {**os.environ, "TMPDIR": str(tmp_path / "scratch")}
    subprocess.run([sys.executable, "-c", script, str(tmp_path / ODD)], env=environment, timeout=300)
    assert abandoned_scratch(tmp_path / "scratch") == list((tmp_path / "scratch").iterdir()) != []


def test_a_folder_with_a_plain_name_needs_no_link(tmp_path):
    assert database.path_for_uri(tmp_path / "a b#c") == (tmp_path / "a b#c").resolve()


def test_an_odd_temporary_folder_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "50%"))
    with pytest.raises(ExecutionError, match=r"the temporary folder .*50% has one of"):
        database.path_for_uri(tmp_path / "what?")
