"""Lists of components are kept, and made again where anything may have changed."""

import os
import subprocess
import sys

import pytest

from harness import heads
from harness.cli import write
from harness.registry import CORPORA, HEADS

WITHOUT_TORCH = """
import sys
from harness.cli import main
sys.argv = ["harness", "list", "heads"]
try:
    main()
except SystemExit:
    pass
assert "torch" not in sys.modules
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(write, "source_hash", lambda: "the source")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(monkeypatch, what="heads"):
    """How often a list is made in two calls."""
    calls, make = [], write._components
    monkeypatch.setattr(write, "_components", lambda what: calls.append(what) or make(what))
    assert write._kept_components(what) == write._kept_components(what) == make(what)
    return len(calls)


@pytest.mark.parametrize("what", write.KINDS)
def test_a_list_is_made_once(what, monkeypatch):
    assert made(monkeypatch, what) == 1


def test_a_kept_list_is_shown_without_torch(folder):
    def listed(code):
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False)

    first = listed(WITHOUT_TORCH)  # it is made: torch is imported
    second = listed(WITHOUT_TORCH)
    assert "AssertionError" in first.stderr
    assert (second.returncode, second.stderr) == (0, "")
    assert second.stdout == first.stdout


def test_another_source_makes_it_again(monkeypatch):
    write._kept_components("heads")
    monkeypatch.setattr(write, "source_hash", lambda: "an edit")
    assert made(monkeypatch) == 1


def test_an_unknown_source_is_never_kept(monkeypatch):
    monkeypatch.setattr(write, "source_hash", lambda: "")
    assert made(monkeypatch) >= 2


def test_a_folder_of_the_user_is_never_kept(folder, monkeypatch):
    write._kept_components("heads")
    (folder / "heads").mkdir()
    assert made(monkeypatch) == 2


def test_plug_ins_are_never_kept(monkeypatch):
    write._kept_components("heads")
    monkeypatch.setattr(write, "entry_points", lambda group: [group])
    assert made(monkeypatch) == 2


def test_a_list_with_a_head_of_this_process_is_never_kept(folder, monkeypatch):
    class Cosine(HEADS.get("softmax")):
        """Defined here."""

    monkeypatch.setitem(HEADS._classes, "cosine", Cosine)
    made(monkeypatch)
    assert not list((folder / "cache").glob("lists/*.json"))


def test_a_list_with_a_fault_is_never_kept(folder, monkeypatch):
    CORPORA.names()
    monkeypatch.setattr(CORPORA, "_faults", ["a file cannot be imported"])
    made(monkeypatch, "corpora")
    assert not list((folder / "cache").glob("lists/*.json"))


def test_a_folder_that_this_process_has_added_is_seen(folder, monkeypatch):
    write._kept_components("heads")
    monkeypatch.setattr(heads, "__path__", [*heads.__path__, str(folder)])
    assert made(monkeypatch) == 2


def test_a_list_with_a_broken_head_is_never_kept(folder, monkeypatch):
    monkeypatch.setitem(HEADS._twice, "mos", ("harness.heads.other", "head 'mos' is registered twice"))
    made(monkeypatch)
    assert not list((folder / "cache").glob("lists/*.json"))
