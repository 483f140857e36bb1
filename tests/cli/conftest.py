"""The tiny suite in a folder, run or not."""

import shutil
from types import SimpleNamespace

import commands
import pytest


@pytest.fixture(scope="session")
def first_run(tmp_path_factory):
    """The suite run once in a process of its own: its folder, exit code and output."""
    folder = tmp_path_factory.mktemp("first")
    (folder / "suites").mkdir()
    (folder / "suites" / "tiny.yaml").write_text(commands.SUITE)
    process = commands.started(folder, "run", "suites/tiny.yaml", "--executor", "inline")
    out, err = process.communicate(timeout=commands.PATIENCE)
    return SimpleNamespace(folder=folder, code=process.returncode, out=out, err=err)


@pytest.fixture
def finished(first_run, tmp_path, monkeypatch):
    """A copy of the finished suite's folder, as the current one."""
    folder = shutil.copytree(first_run.folder, tmp_path / "finished")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A folder with the suite and nothing else, as the current one."""
    (tmp_path / "fresh" / "suites").mkdir(parents=True)
    (tmp_path / "fresh" / "suites" / "tiny.yaml").write_text(commands.SUITE)
    monkeypatch.chdir(tmp_path / "fresh")
    return tmp_path / "fresh"


@pytest.fixture
def run(harness):
    """`harness run suites/tiny.yaml` in this process, without MLflow."""
    return lambda *arguments: harness("run", "suites/tiny.yaml", "--executor", "inline", "--no-tracking", *arguments)
