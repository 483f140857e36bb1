"""The command line with MLflow at its worst: suites run all the same, and `harness sync` makes it good."""

import shutil
import sys
from pathlib import Path

import commands
import pytest
from mlflow import MlflowClient
from shown import dump

from harness.tracking.sync import Mirror

RUN = ("run", "suites/tiny.yaml", "--executor", "inline")
ONE = (*RUN, "--only", "head=softmax,seed=1")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The tiny suite in a folder of its own, the current one."""
    (tmp_path / "here" / "suites").mkdir(parents=True)
    (tmp_path / "here" / "suites" / "tiny.yaml").write_text(commands.SUITE)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def missing(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)


def raising_at(name: str):
    """MLflow whose client raises in one of its methods."""

    def fail(*_, **__):
        raise RuntimeError("no more\nof this")

    return lambda monkeypatch: monkeypatch.setattr(MlflowClient, name, fail)


def damaged(monkeypatch) -> None:
    Path("results").mkdir()
    Path("results/mlflow.db").write_bytes(b"garbage")


FAULTS = {"missing": missing, "damaged": damaged} | {
    f"raising at {name}": raising_at(name) for name in ("__init__", "create_experiment")
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_mlflow_broken_or_callback_raises_the_suite_runs_with_one_warning(folder, harness, fault):
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        done = harness(*ONE)
    assert done.code == 0
    assert done.err.startswith("warning: MLflow is off from here on (")
    assert done.err.endswith("; `harness sync` rebuilds it later\n")
    assert done.err.count("\n") == 1
    assert len(commands.record_files(folder)) == 1
    synced = harness("sync")
    assert synced.code == 0
    assert len(dump(folder / "results")["tiny"][1]) == 1


def test_mlflow_broken_while_syncing_is_a_sentence(lived, tmp_path, harness, monkeypatch):
    monkeypatch.chdir(shutil.copytree(lived, tmp_path / "copy"))
    raising_at("search_runs")(monkeypatch)
    done = harness("sync")
    assert done.code == 2
    assert (
        done.err.splitlines()[-1] == "MLflow cannot be written (RuntimeError: no more); runs and tables work without it"
    )


@pytest.mark.parametrize("command", [("sync",), ("ui",)])
def test_mlflow_broken_is_a_sentence_where_it_is_needed(lived, tmp_path, harness, monkeypatch, command):
    monkeypatch.chdir(shutil.copytree(lived, tmp_path / "copy"))
    missing(monkeypatch)
    done = harness(*command)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("MLflow cannot be imported (")
    assert done.err.count("\n") == 1


def test_file_store_uri_and_an_old_mlruns_folder_do_not_disturb(folder, harness, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{folder}/elsewhere")
    (folder / "results" / "mlruns" / "0").mkdir(parents=True)
    (folder / "mlruns").mkdir()
    done = harness(*ONE)
    assert (done.code, done.err) == (0, "")
    assert len(dump(folder / "results")["tiny"][1]) == 1
    assert not (folder / "elsewhere").exists()


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """A results folder with a history: good trials, diverged ones, all run again."""
    folder = tmp_path_factory.mktemp("lived")
    (folder / "suites").mkdir()
    (folder / "suites" / "tiny.yaml").write_text(commands.SUITE)
    diverging = commands.SUITE.replace("name: tiny", "name: steep").replace("lr: 0.01", "lr: 1e30")
    (folder / "suites" / "steep.yaml").write_text(diverging)
    tiny, steep = ("run", "suites/tiny.yaml"), ("run", "suites/steep.yaml", "--only", "seed=1")
    at_once = [commands.started(folder, *arguments, "--executor", "inline") for arguments in (tiny, steep)]
    ends = []
    for process in at_once:
        errors = process.communicate(timeout=commands.PATIENCE)[1].splitlines()
        # on a busy machine one waits for the other so long that it says so
        ends.append(([line for line in errors if not line.startswith("waiting for ")], process.returncode))
    assert ends == [([], 0), ([], 1)]
    again = commands.started(folder, *tiny, "--only", "seed=1", "--force", "--executor", "inline")
    assert (again.communicate(timeout=commands.PATIENCE)[1], again.returncode) == ("", 0)
    return folder


def test_sync_rebuilds_mlflow_from_the_records_alone(lived, tmp_path):
    folder = shutil.copytree(lived, tmp_path / "copy")
    before = dump(folder / "results")
    assert {name: len(runs) for name, (_, runs) in before.items()} == {"Default": 0, "tiny": 4, "steep": 2}
    for each in (folder / "results").iterdir():
        if each.name != "runs":
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    for each in (folder / "results" / "runs").rglob("*"):
        if each.is_file() and each.name != "record.json":
            each.unlink()
    # in a process of its own: in this one MLflow has made the tables of the address, and makes them only once
    again = commands.started(folder, "sync")
    assert (again.communicate(timeout=commands.PATIENCE)[1], again.returncode) == ("", 0)
    assert dump(folder / "results") == before


def test_moved_results_hold_no_absolute_path_in_their_records(lived):
    places = sorted((lived / "results").rglob("record.json"))
    assert len(places) == 6
    for place in places:
        assert str(lived) not in place.read_text()
        assert "/tmp/" not in place.read_text()


@pytest.mark.parametrize("command", [ONE, (*RUN[:2], "--executor", "ray")])
def test_readonly_results_are_refused_before_anything_starts(folder, harness, command):
    done = harness(*command, "--results", "/proc/nowhere/results")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("/proc/nowhere/results/runs/tiny cannot be written (")
    assert done.err.endswith("; name another folder with --results\n")


def test_readonly_home_does_not_matter_inline(folder, monkeypatch):
    monkeypatch.setenv("HOME", "/proc/nowhere")
    process = commands.started(folder, *ONE)
    assert (process.communicate(timeout=commands.PATIENCE)[1], process.returncode) == ("", 0)
    assert len(dump(folder / "results")["tiny"][1]) == 1


def test_readonly_home_is_one_sentence_with_the_way_out_under_ray(folder, harness, monkeypatch):
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/proc/nowhere")
    done = harness("run", "suites/tiny.yaml")
    assert done.code == 2
    assert done.err.startswith("the home folder /proc/nowhere cannot be written (")
    assert done.err.endswith("; set HOME to another folder, or use --executor inline\n")
    assert commands.record_files(folder) == {}


def test_records_whose_driver_died_before_it_logged_them_are_logged_by_the_next_run(folder, harness, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Mirror, "show", lambda mirror, record: None)
        assert harness(*ONE).code == 0
    assert dump(folder / "results")["tiny"][1] == []
    assert harness(*RUN).code == 0
    shown = dump(folder / "results")["tiny"][1]
    assert harness("sync").code == 0
    assert (len(shown), dump(folder / "results")["tiny"][1]) == (4, shown)
