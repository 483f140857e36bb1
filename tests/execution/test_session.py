"""A Ray session on this machine: how Ray is started, and its folders: those of dead drivers of ours go, others stay.

That runs work in it: tests/system/ray.
"""

import os
import socket
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import pytest

from harness.errors import ExecutionError
from harness.execution import ray as settings
from harness.execution.ray import session as ours
from harness.machine import processes


@pytest.fixture
def gone():
    """A process of this host that is no more, as harness.machine.processes names it."""
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    return f"{socket.gethostname()} {process.pid} 1000.00"


@pytest.fixture
def session(tmp_path):
    """A function: who made it -> a folder as Ray makes it, with a log."""

    def make(driver: str | None, name: str = "session_2026-11-22_01-02-03_000004_5"):
        folder = tmp_path / "ray" / name
        (folder / "logs").mkdir(parents=True)
        (folder / "logs" / "raylet.out").write_text("a line")
        if driver is not None:
            (folder / ours.DRIVER).write_text(driver)
        return folder

    return make


def test_the_folder_of_a_dead_driver_is_removed_and_the_link_to_it(session, gone, tmp_path):
    left = session(gone)
    latest = tmp_path / "ray" / "session_latest"
    latest.symlink_to(left)
    ours.remove_abandoned(left.parent)
    assert not left.exists()
    assert not latest.is_symlink()
    old, new = session(gone), session(None, "session_2026-11-22_09-02-03_000004_6")
    latest.symlink_to(new)  # the link to a newer folder stays
    ours.remove(old)
    assert latest.resolve() == new


def test_the_folder_of_a_living_driver_and_what_is_not_known_to_be_ours_stay(session):
    ours.mark(living := session(None))
    assert (living / ours.DRIVER).read_text() == processes.current_process()
    drivers = (None, "", "nonsense", "elsewhere 1 1000.00", "x" * 5000)
    folders = [
        living,
        *(session(driver, f"session_2026-11-22_01-02-03_000004_{number + 6}") for number, driver in enumerate(drivers)),
    ]
    ours.remove_abandoned(living.parent)
    assert all((folder / "logs" / "raylet.out").exists() for folder in folders)


def test_the_folder_of_another_user_stays_and_a_link_to_one_is_not_followed(session, gone, tmp_path, monkeypatch):
    theirs, this = session(gone, "theirs"), os.getuid()
    (tmp_path / "ray" / "session_link").symlink_to(theirs)
    ours.remove_abandoned(tmp_path / "ray")
    assert (theirs / "logs" / "raylet.out").exists()
    folder = session(gone)
    monkeypatch.setattr(os, "getuid", lambda: this + 1)
    ours.remove_abandoned(folder.parent)
    assert folder.exists()


def test_ray_asks_no_cloud_where_the_documented_file_is(tmp_path, monkeypatch):
    from ray._common.usage import usage_lib

    asked = []
    monkeypatch.setattr(usage_lib.requests, "get", lambda url, **more: asked.append(url))
    (tmp_path / "ray_bootstrap_config.yaml").write_text("{}\n")
    usage_lib.get_cluster_config_to_report(str(tmp_path / "ray_bootstrap_config.yaml"))
    assert asked == []
    usage_lib.get_cluster_config_to_report(str(tmp_path / "nothing.yaml"))
    assert {url.split("/")[2] for url in asked} == {"169.254.169.254", "metadata.google.internal"}


def test_workers_start_when_the_path_of_python_has_a_space(tmp_path, monkeypatch):
    given = {}

    def init(address, **options):
        given.update(options)
        return SimpleNamespace(address_info={"session_dir": str(tmp_path)})

    monkeypatch.setattr(ours.ray, "init", init)
    for python, expected in (("/folder/bin/python", None), ("/a folder/bin/python", "'/a folder/bin/python'")):
        monkeypatch.setattr(sys, "executable", python)
        assert ours._start() == tmp_path
        assert given.get("runtime_env") == (expected and {"py_executable": expected})


def test_the_folders_that_dead_drivers_left_to_tune_are_removed(gone, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f".harness-tune-{socket.gethostname()}-{gone.split()[1]}-x"
    alive = tmp_path / f".harness-tune-{socket.gethostname()}-1-x"
    for folder in (left, alive):
        folder.mkdir()
    with ours.scratch_folder(tmp_path, "local") as scratch:
        assert [left.exists(), alive.exists()] == [False, True]
    assert not scratch.exists()


def at_limit(more: int) -> str:
    """A path with which Ray's longest path of a socket, the folder's, a slash and 67 bytes, has 107 bytes and more."""
    return "/" + "x" * (107 - 1 - 67 - 1 + more)


@pytest.mark.parametrize(
    ("named", "temporary", "expected"),
    [
        (None, at_limit(0), at_limit(0)),
        (None, at_limit(1), "/tmp"),
        (at_limit(0), "/tmp", at_limit(0)),
        (at_limit(1), "/tmp", "its path is 1 bytes too long; name another folder"),
        ("/proc/nowhere", "/tmp", r"cannot be written \(.*\); name another folder"),
        (None, "/proc/nowhere", "/tmp"),
    ],
)
def test_ray_gets_a_folder_whose_sockets_have_short_paths(named, temporary, expected, monkeypatch):
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    if named:
        monkeypatch.setenv("RAY_TMPDIR", named)
    monkeypatch.setattr(tempfile, "tempdir", temporary)
    monkeypatch.setattr(settings, "write_fault", lambda folder: "denied" if str(folder).startswith("/proc") else "")
    if expected.startswith("/"):
        assert str(settings.temporary_folder()) == expected
    else:
        with pytest.raises(ExecutionError, match=expected):
            settings.temporary_folder()


def test_without_any_folder_the_variable_is_named(monkeypatch):
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setattr(settings, "write_fault", lambda folder: "No space left on device")
    with pytest.raises(ExecutionError, match="set RAY_TMPDIR to a folder on a local disk with a short path"):
        settings.temporary_folder()
