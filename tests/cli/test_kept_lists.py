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


def plant(change, folder, monkeypatch):
    """What may have changed since a list was kept, or why none may be."""
    CORPORA.names()
    if change == "edit":
        monkeypatch.setattr(write, "source_hash", lambda: "an edit")
    elif change == "unknown source":
        monkeypatch.setattr(write, "source_hash", lambda: "")
    elif change == "own folder":
        (folder / "heads").mkdir()
    elif change == "plug-in":
        monkeypatch.setattr(write, "entry_points", lambda group: [group])
    elif change == "added folder":
        monkeypatch.setattr(heads, "__path__", [*heads.__path__, str(folder)])
    elif change == "class of this process":
        monkeypatch.setitem(HEADS._classes, "cosine", type("Cosine", (HEADS.get("softmax"),), {"__doc__": "Mine."}))
    elif change == "fault":
        monkeypatch.setattr(CORPORA, "_faults", ["a file cannot be imported"])
    elif change == "broken head":
        monkeypatch.setitem(HEADS._twice, "mos", ("harness.heads.other", "head 'mos' is registered twice"))


NEVER = ["unknown source", "own folder", "plug-in", "added folder", "class of this process", "fault", "broken head"]


@pytest.mark.parametrize("change", [*write.KINDS, "edit", *NEVER])  # of the kinds nothing has changed
def test_a_list_is_made_once_and_kept_only_where_all_of_it_is_of_the_package_and_sound(change, folder, monkeypatch):
    calls, make = [], write._components
    monkeypatch.setattr(write, "_components", lambda what: calls.append(what) or make(what))
    what = "corpora" if change == "fault" else change if change in write.KINDS else "heads"
    before = write._kept_components(what) if change == "edit" else None
    plant(change, folder, monkeypatch)
    first = write._kept_components(what)
    assert first == write._kept_components(what) == (before or first)
    kept = len(list((folder / "cache").glob("lists/*.json")))
    assert kept == (0 if change in NEVER else 2 if change == "edit" else 1)
    assert len(calls) == kept or change in NEVER


def test_a_kept_list_is_shown_without_torch(folder):
    def listed(code):
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False)

    first = listed(WITHOUT_TORCH)  # it is made: torch is imported
    second = listed(WITHOUT_TORCH)
    assert "AssertionError" in first.stderr
    assert (second.returncode, second.stderr) == (0, "")
    assert second.stdout == first.stdout
