"""`harness doctor`: unfit is exit code 2 and a sentence for each problem; what is odd is a note and exit code 0."""

import importlib.metadata
import os
import shutil
import signal
import socket
import sqlite3
import sys
from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch

from harness import cli
from harness.execution import doctor, machine_facts
from harness.kernels import products, rows
from harness.kernels.forms import LEAN, by_rows
from harness.machine.processes import scratch_prefix
from harness.tracking import database

RAY_VARIABLES = (
    "RAY_AUTH_MODE",
    "RAY_AUTH_TOKEN",
    "RAY_AUTH_TOKEN_PATH",
    "RAY_TMPDIR",
    "TMPDIR",
    "MLFLOW_TRACKING_URI",
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder as the current one, and nothing in the environment that the doctor could find odd."""
    for name in (*RAY_VARIABLES, *doctor.THREADS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    found = SimpleNamespace(route="default", speedup=1.0, error=0.0, exact=True, cpu="A CPU")
    monkeypatch.setattr(products, "load_probe", lambda again: found)
    monkeypatch.setattr(doctor, "_taken", lambda port: False)
    monkeypatch.setattr(doctor, "NEWEST_TESTED", {})  # `make newest` has newer ones
    return tmp_path


@pytest.fixture
def examined(place, monkeypatch, capsys):
    """A function: options of `harness doctor` -> exit code, the values shown, the notes, the problems."""

    def call(*options) -> SimpleNamespace:
        monkeypatch.setattr(sys, "argv", ["harness", "doctor", "--data", "data", *map(str, options)])
        before = signal.getsignal(signal.SIGTERM)
        try:
            with pytest.raises(SystemExit) as left:
                cli.main()
        finally:
            signal.signal(signal.SIGTERM, before)
        out, err = capsys.readouterr()
        lines = out.splitlines()
        notes = [line.removeprefix("note: ") for line in lines if line.startswith("note: ")]
        values = dict(line.split(":", 1) for line in lines if not line.startswith("note: "))
        shown = {name: value.strip() for name, value in values.items()}
        return SimpleNamespace(code=left.value.code or 0, shown=shown, notes=notes, problems=err.splitlines())

    return call


@pytest.fixture
def store(place):
    """A database with MLflow's tables as far as the doctor reads them."""
    (place / "results").mkdir()
    with sqlite3.connect(place / "results" / "mlflow.db") as made:
        made.executescript("""
            CREATE TABLE experiments (name TEXT, artifact_location TEXT);
            CREATE TABLE runs (run_uuid TEXT, status TEXT, lifecycle_stage TEXT);
            CREATE TABLE tags (run_uuid TEXT, key TEXT, value TEXT);
        """)
    yield made
    made.close()


def problems(examined, *options) -> list[str]:
    """Of a machine that is unfit."""
    found = examined(*options)
    assert found.code == 2
    assert found.problems
    return found.problems


def notes(examined, *options) -> list[str]:
    """Of a machine that is fit."""
    found = examined(*options)
    assert (found.code, found.problems) == (0, [])
    return found.notes


def test_a_fit_machine_leaves_with_0_and_nothing_behind(examined, place):
    found = examined()
    assert (found.code, found.problems) == (0, [])
    assert {"Python", "torch", "packages", "results", "data", "memory", "SQLite", "MLflow", "Ray"} <= found.shown.keys()
    assert "ray 2." in found.shown["packages"]
    assert os.listdir(place) == ["home"]


def test_without_a_gpu_there_is_nothing_to_check(examined, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert examined("--gpu").shown["GPU code"] == "right, or there is no GPU"


def test_what_is_wrong_on_the_gpu_is_a_note(examined, monkeypatch):
    monkeypatch.setattr(machine_facts, "gpu_faults", lambda: ("The Triton kernel for training is wrong",))
    found = examined("--gpu")
    assert found.code == 0  # runs go on without what is left out
    assert found.notes[0] == "The Triton kernel for training is wrong"
    assert found.shown["GPU code"] == "1 parts are wrong"
    assert "GPU code" not in examined().shown


def test_planted_batches_find_wrong_forms_and_graphs():
    def wrong(*given):
        result = rows.combine_rows_(*given)
        return result._replace(share=1.01 * result.share)

    right = by_rows("rows", "a kernel", combine=rows.combine_rows_, fits=LEAN.fits)
    faulty = by_rows("faulty", "a wrong kernel", combine=wrong, fits=LEAN.fits)
    cpu = torch.device("cpu")
    assert machine_facts.faults(cpu, [right, LEAN], record=lambda work: work) == ()
    found = machine_facts.faults(cpu, [faulty, LEAN], record=lambda work: lambda: None)
    assert [each.partition(",")[0] for each in found] == [
        "Left out on this device: a wrong kernel",
        "Left out on this device: the CUDA graph of the training step",
    ]
    assert "the gradient of the prior is wrong" in found[0]


def test_neither_ray_nor_mlflow_is_imported(examined, store, monkeypatch):
    for module in ("ray", "mlflow"):
        monkeypatch.setitem(sys.modules, module, None)  # an import of it would raise
    monkeypatch.delitem(sys.modules, "harness.tracking.tracker", raising=False)
    assert examined().code == 0


@pytest.mark.parametrize(
    ("package", "version", "sentence"),
    [
        ("torch", "2.9.1", "torch is 2.9.1; needed: torch>=2.11"),
        ("ray", None, "ray is not installed; needed: ray[tune]"),
    ],
)
def test_versions_out_of_bounds_are_problems(examined, monkeypatch, package, version, sentence):
    actual = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: version if name == package else actual(name))
    assert problems(examined)[0].startswith(sentence)


def test_an_unsupported_python_is_a_problem(examined, monkeypatch):
    monkeypatch.setattr("platform.python_version", lambda: "3.10.0")
    assert problems(examined)[0].startswith("Python 3.10.0 is not supported; needed: ")


@pytest.mark.parametrize(
    ("package", "version", "sentence"),
    [("mlflow", None, "mlflow is not installed; needed: mlflow"), ("torch", "2.14.0", "torch 2.14.0 is newer than")],
)
def test_versions_that_need_not_matter_are_notes(examined, monkeypatch, package, version, sentence):
    monkeypatch.setattr(doctor, "NEWEST_TESTED", {"torch": "2.13"})
    actual = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: version if name == package else actual(name))
    assert notes(examined)[0].startswith(sentence)


def test_an_absent_installation_is_a_problem(examined, monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.importlib.metadata, "metadata", absent)
    assert problems(examined) == [f"output-head-harness is not installed in {sys.executable}"]


def test_readonly_results_are_a_problem(examined):
    (problem,) = problems(examined, "--results", "/proc/nowhere/results")
    assert problem.startswith("the results folder /proc/nowhere/results cannot be written (")
    assert problem.endswith("name another with --results")


def test_readonly_data_is_a_note(examined):
    (note,) = notes(examined, "--data", "/proc/nowhere")
    assert note.startswith("the data folder /proc/nowhere cannot be written (")


@pytest.mark.parametrize(("free", "code"), [(10 * 2**20, 2), (2**30, 0)])
def test_a_full_disk_is_a_problem_and_a_small_rest_a_note(examined, monkeypatch, free, code):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage(2**40, 2**40 - free, free))
    found = examined()
    assert found.code == code
    assert "left" in (found.problems if code else found.notes)[0]


@pytest.mark.parametrize("limit", [2**30, None])
def test_memory_is_what_the_control_group_leaves(examined, monkeypatch, place, limit):
    (place / "memory.max").write_text("max" if limit is None else f"{limit}\n")
    (place / "memory.current").write_text(f"{2**29}\n")
    monkeypatch.setattr(doctor, "CGROUP", place)
    monkeypatch.setattr(doctor.psutil, "virtual_memory", lambda: SimpleNamespace(available=8 * 2**30))
    assert notes(examined) == ([] if limit is None else ["only 0.5 GiB of memory are free"])


def test_readonly_home_is_a_problem_with_the_way_out(examined, monkeypatch):
    monkeypatch.setenv("HOME", "/proc/nowhere")
    (problem,) = problems(examined)
    assert problem.startswith("the home folder /proc/nowhere cannot be written (")
    assert problem.endswith("set HOME to another folder, or use --executor inline")


def test_readonly_home_with_a_token_of_the_users_own_is_fit(examined, monkeypatch):
    monkeypatch.setenv("HOME", "/proc/nowhere")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/some/where")
    assert notes(examined) == []


def test_ray_token_on_is_asked_for(examined, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    (problem,) = problems(examined)
    assert problem.startswith("RAY_AUTH_MODE=disabled: ")


@pytest.mark.parametrize(
    ("home", "token", "exposed"), [(0o755, 0o644, True), (0o700, 0o644, False), (0o755, 0o600, False)]
)
def test_a_token_that_others_can_read_is_a_note(examined, place, home, token, exposed):
    (place / "home" / ".ray").mkdir()
    (place / "home" / ".ray").chmod(0o755)  # whatever the umask
    (place / "home" / ".ray" / "auth_token").write_text("secret")
    (place / "home" / ".ray" / "auth_token").chmod(token)
    (place / "home").chmod(home)
    file = place / "home" / ".ray" / "auth_token"
    sentence = f"Ray's token {file} can be read by every user of this machine: chmod 600 {file}"
    assert notes(examined) == [sentence] * exposed


def test_stale_cluster_file_is_a_note_and_a_living_clusters_is_none(examined, place):
    address = place / "tmp" / "ray" / "ray_current_cluster"
    address.parent.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as cluster:
        address.write_text(f"127.0.0.1:{cluster.getsockname()[1]}")
        assert notes(examined) == []
    assert notes(examined)[0].startswith(f"{address} names a Ray cluster that does not answer")
    address.write_text("no address")
    assert len(notes(examined)) == 1


def test_too_many_threads_are_a_note(examined, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "4000")
    monkeypatch.setenv("MKL_NUM_THREADS", "1")
    (note,) = notes(examined)
    assert note.startswith("OMP_NUM_THREADS=4000 is more than the ")


def test_sqlite_that_does_not_work_is_a_problem(examined, monkeypatch):
    def connect(*_, **__):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(doctor.sqlite3, "connect", connect)
    assert problems(examined)[0].startswith("SQLite does not work in results (disk I/O error)")


def test_a_damaged_database_is_a_problem(examined, place):
    (place / "results").mkdir()
    (place / "results" / "mlflow.db").write_bytes(b"garbage")
    (problem,) = problems(examined)
    assert problem.endswith(
        "is damaged, or is not an SQLite database of MLflow; `harness sync` writes it again from the records"
    )


def test_a_locked_database_is_a_note(examined, store, monkeypatch):
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
    store.isolation_level = None
    store.execute("BEGIN EXCLUSIVE")
    (note,) = notes(examined)
    assert "is locked by another program" in note


def test_zombie_runs_are_a_note(examined, store):
    with store:
        for run, status, pid in (
            ("a", "RUNNING", 2**22 + 1),
            ("b", "RUNNING", os.getpid()),
            ("c", "KILLED", 2**22 + 1),
        ):
            started = doctor.psutil.Process().create_time()
            store.execute("INSERT INTO runs VALUES (?, ?, 'active')", (run, status))
            store.execute("INSERT INTO tags VALUES (?, ?, ?)", (run, database.TRIAL_TAG, run * 12))
            writer = f"{socket.gethostname()} {pid} {started}"
            store.execute("INSERT INTO tags VALUES (?, ?, ?)", (run, database.WRITER_TAG, writer))
    assert notes(examined) == ["1 MLflow runs are incomplete: their driver was killed; `harness sync` replaces them"]


def test_moved_results_are_a_note(examined, store):
    with store:
        store.execute("INSERT INTO experiments VALUES ('tiny', 'file:///old%20place/artifacts/tiny')")
        store.execute("INSERT INTO experiments VALUES ('Default', '/somewhere/mlruns/0')")
    assert notes(examined) == [
        "results/mlflow.db was made for /old place; `harness sync` writes it again from the records"
    ]


def test_file_store_uri_and_an_old_mlruns_folder_are_notes_with_the_command_that_keeps_their_runs(
    examined, place, monkeypatch
):
    for folder in ("results/mlruns", "old/mlruns"):
        (place / folder).mkdir(parents=True)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{place}/old/mlruns")
    unused, ours, theirs = notes(examined)
    assert unused.startswith(f"MLFLOW_TRACKING_URI=file:{place}/old/mlruns is not used")
    assert ours.endswith(f"migrate-filestore --source results/mlruns --target sqlite:///{place}/results/mlruns.db")
    assert theirs.endswith(f"migrate-filestore --source {place}/old/mlruns --target sqlite:///{place}/old/mlruns.db")


def test_begun_trials_and_the_folders_of_dead_drivers_are_notes(examined, place):
    runs = place / "results" / "runs" / "tiny"
    for trial, files in {"begun": ["best.pt"], "done": ["best.pt", "record.json"], "empty": ["trial.log"]}.items():
        (runs / trial).mkdir(parents=True)
        for name in files:
            (runs / trial / name).write_bytes(b"")
    for pid in (os.getpid(), 2**22 + 1):  # the second is above the largest that Linux gives
        (runs / f"{scratch_prefix()}{pid}-x").mkdir()
    assert notes(examined) == [
        "1 of the trials of tiny were started and have no record: `harness run` continues them",
        f"results/runs/tiny/{scratch_prefix()}{2**22 + 1}-x was left by a driver that no longer runs on this "
        "machine; delete it",
    ]


def test_a_taken_port_is_a_note(examined, monkeypatch):
    monkeypatch.setattr(doctor, "_taken", lambda port: port == 5000)
    assert notes(examined) == ["port 5000 is taken: use `harness ui --port`"]


def test_a_port_is_taken_while_another_listens():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert doctor._taken(port)
    assert not doctor._taken(port)
