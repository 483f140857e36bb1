"""The command line on a hostile suite: refused with located sentences, in time, and nothing written."""

import re

import handmade
import pytest

from harness.registry import BACKBONES, CORPORA, HEADS

SECONDS = 30.0  # of processor time: a guard against work without end, no claim of speed


@pytest.fixture
def changed():
    """A function: a sound suite with what a test replaces in it."""
    return handmade.changed


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty project, as the current folder, with suites/ for a hostile suite."""
    for registry in (HEADS, BACKBONES, CORPORA):
        registry.names()  # imported once, not in the time of a suite
    folder = tmp_path / "project"
    (folder / "suites").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def command(project, harness):
    """The command line in the project."""
    return harness


@pytest.fixture
def refused(project, command):
    """A function: a suite's content, overrides -> its problems, from 'line:column:' on. Code 2, nothing written."""

    def run(content: str | bytes | None, *overrides: str) -> list[str]:
        path = project / "suites" / "suite.yaml"
        if content is not None:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        before = everything(project.parent)
        options = [part for text in overrides for part in ("--set", text)]
        ended = command("run", path, "--executor", "inline", *options)
        assert ended.code == 2, ended.err
        assert ended.seconds < SECONDS
        assert everything(project.parent) == before
        *problems, last = ended.err.split("\n")[:-1]
        assert re.fullmatch(r"\d+ problems?; nothing was run", last)
        assert all(line.isprintable() for line in problems), "a control character reached the terminal"
        assert all(re.match(rf"{re.escape(str(path))}(:\d+:\d+)?: |--set ", line) for line in problems)
        return [line.removeprefix(str(path)).removeprefix(":") for line in problems]

    return run


def everything(folder) -> dict[str, int]:
    """Every path below a folder and when it was changed."""
    return {str(path): path.lstat().st_mtime_ns for path in sorted(folder.rglob("*"))}
