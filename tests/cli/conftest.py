"""The tiny suite in a folder, run or not."""

import json
import shutil
from types import SimpleNamespace

import commands
import pytest
from filelock import FileLock

from harness.trial import timing as clock


@pytest.fixture(scope="session")
def first_run(request, tmp_path_factory):
    """The suite run once in a process of its own, for all test processes: its folder, exit code and output. Tests that
    change anything in it take a copy (`finished`).
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if hasattr(request.config, "workerinput") else base) / "first"
    with FileLock(folder.with_suffix(".lock")):
        if not (end := folder.with_suffix(".json")).exists():
            (folder / "suites").mkdir(parents=True)
            (folder / "suites" / "tiny.yaml").write_text(commands.SUITE)
            process = commands.started(folder, "run", "suites/tiny.yaml", "--executor", "inline")
            out, err = process.communicate(timeout=commands.PATIENCE)
            end.write_text(json.dumps({"code": process.returncode, "out": out, "err": err}))
    return SimpleNamespace(folder=folder, **json.loads(end.read_text()))


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


@pytest.fixture
def known_times(monkeypatch):
    """A function that sets what `harness plan --time` measures, on a machine without other work.

    training: name of a head -> milliseconds of a step.
    evaluation: milliseconds of a batch.
    """

    def known(training: dict[str, float], evaluation: float) -> None:
        monkeypatch.setattr(clock.environment.OtherWork, "cores", lambda self: 0.0)
        monkeypatch.setattr(clock, "evaluation", lambda *about: lambda number: [evaluation] * number)
        monkeypatch.setattr(
            clock, "training", lambda model, corpus, spec, lr: lambda number: [training[spec.head.name]] * number
        )

    return known
