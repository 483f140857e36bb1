"""A suite that `harness new suite` makes, trained: its rows converge. Quickstart itself is trained by `.ci/run`."""

from pathlib import Path

import pytest

from harness import bundled

pytestmark = [pytest.mark.system, pytest.mark.timeout(3600)]


def test_the_rows_of_a_new_suite_converge(tmp_path, monkeypatch, harness):
    monkeypatch.chdir(tmp_path)
    novel = (bundled("harness") / "corpora" / "pride_and_prejudice.txt").read_text(encoding="utf-8")
    Path("book.txt").write_text(novel[:20_000], encoding="utf-8")
    assert harness("new", "suite", "mine", "--text", "book.txt", "--minutes", "600").code == 0
    shorter = ("--set", "tune=null", "--set", "seeds=1", "--executor", "inline", "--no-timing", "--no-tracking")
    done = harness("run", "mine", *shorter, "--results", tmp_path / "results")
    assert done.code == 0, done.err
    (table,) = (tmp_path / "results" / "tables").glob("*.md")
    text = table.read_text(encoding="utf-8")
    assert "↓" not in text, text
