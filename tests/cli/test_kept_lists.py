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


def test_a_list_with_a_head_of_this_process_is_never_kept(folder, monkeypatch):
    class Cosine(HEADS.get("softmax")):
        """Defined here."""

    monkeypatch.setitem(HEADS._classes, "cosine", Cosine)
    made(monkeypatch)
    assert not list((folder / "cache").glob("lists/*.json"))


@pytest.mark.parametrize(
    ("change", "number"), [("source", 1), ("unknown source", 2), ("own", 2), ("plug-in", 2), ("added", 2)]
)
def test_where_anything_may_have_changed_it_is_made_again(change, number, folder, monkeypatch):
    write._kept_components("heads")
    if "source" in change:
        monkeypatch.setattr(write, "source_hash", lambda: "" if change == "unknown source" else "an edit")
    elif change == "own":
        (folder / "heads").mkdir()
    elif change == "plug-in":
        monkeypatch.setattr(write, "entry_points", lambda group: [group])
    else:
        monkeypatch.setattr(heads, "__path__", [*heads.__path__, str(folder)])
    assert made(monkeypatch) == number


@pytest.mark.parametrize("fault", ["broken head", "fault"])
def test_a_list_with_a_fault_is_never_kept(fault, folder, monkeypatch):
    CORPORA.names()
    if fault == "fault":
        monkeypatch.setattr(CORPORA, "_faults", ["a file cannot be imported"])
    else:
        monkeypatch.setitem(HEADS._twice, "mos", ("harness.heads.other", "head 'mos' is registered twice"))
    made(monkeypatch, "corpora" if fault == "fault" else "heads")
    assert not list((folder / "cache").glob("lists/*.json"))
