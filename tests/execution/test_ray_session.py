"""How Ray is started on this machine. That runs work in it: tests/system/ray."""

import sys
from types import SimpleNamespace

import pytest

from harness.execution.ray import session


@pytest.mark.parametrize(
    ("python", "expected"),
    [("/a folder/bin/python", {"py_executable": "'/a folder/bin/python'"}), ("/folder/bin/python", None)],
)
def test_workers_start_when_the_path_of_python_has_a_space(tmp_path, monkeypatch, python, expected):
    given = {}

    def init(address, **options):
        given.update(options)
        return SimpleNamespace(address_info={"session_dir": str(tmp_path / "session")})

    (tmp_path / "session").mkdir()
    monkeypatch.setattr(session.ray, "init", init)
    monkeypatch.setattr(sys, "executable", python)
    assert session._start() == tmp_path / "session"
    assert given.get("runtime_env") == expected
