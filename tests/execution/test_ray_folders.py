"""Folders that Ray leaves: those of dead drivers of ours go, all others stay."""

import os
import socket
import subprocess
import sys

import pytest

from harness.execution.ray import session as folders
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
            (folder / folders.DRIVER).write_text(driver)
        return folder

    return make


def test_the_folder_of_a_dead_driver_is_removed_and_the_link_to_it(session, gone, tmp_path):
    left = session(gone)
    latest = tmp_path / "ray" / "session_latest"
    latest.symlink_to(left)
    folders.remove_abandoned(left.parent)
    assert not left.exists()
    assert not latest.is_symlink()


@pytest.mark.guards("ray-folders-of-dead")
def test_the_folder_of_a_living_driver_stays(session):
    folder = session(None)
    folders.mark(folder)
    assert (folder / folders.DRIVER).read_text() == processes.current_process()
    folders.remove_abandoned(folder.parent)
    assert (folder / "logs" / "raylet.out").exists()


@pytest.mark.parametrize("driver", [None, "", "nonsense", "elsewhere 1 1000.00", "x" * 5000])
def test_what_is_not_known_to_be_ours_stays(session, driver):
    folder = session(driver)
    folders.remove_abandoned(folder.parent)
    assert (folder / "logs" / "raylet.out").exists()


@pytest.mark.guards("ray-folders-of-user")
def test_the_folder_of_another_user_stays(session, gone, monkeypatch):
    folder, this = session(gone), os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: this + 1)
    folders.remove_abandoned(folder.parent)
    assert folder.exists()


@pytest.mark.guards("ray-folders-of-user")
def test_a_link_to_a_folder_of_others_is_not_followed(session, gone, tmp_path):
    theirs = session(gone, "theirs")
    (tmp_path / "ray" / "session_link").symlink_to(theirs)
    folders.remove_abandoned(tmp_path / "ray")
    assert (theirs / "logs" / "raylet.out").exists()


def test_the_link_to_a_newer_folder_stays(session, gone, tmp_path):
    old, new = session(gone), session(None, "session_2026-11-22_09-02-03_000004_6")
    latest = tmp_path / "ray" / "session_latest"
    latest.symlink_to(new)
    folders.remove(old)
    assert latest.resolve() == new


def test_ray_asks_no_cloud_where_the_documented_file_is(tmp_path, monkeypatch):
    from ray._common.usage import usage_lib

    asked = []
    monkeypatch.setattr(usage_lib.requests, "get", lambda url, **more: asked.append(url))
    (tmp_path / "ray_bootstrap_config.yaml").write_text("{}\n")
    usage_lib.get_cluster_config_to_report(str(tmp_path / "ray_bootstrap_config.yaml"))
    assert asked == []
    usage_lib.get_cluster_config_to_report(str(tmp_path / "nothing.yaml"))
    assert {url.split("/")[2] for url in asked} == {"169.254.169.254", "metadata.google.internal"}
