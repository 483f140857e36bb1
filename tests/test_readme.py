"""The README's promises that a test can keep: its head conforms and trains, its commands and suites exist."""

import re
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from harness import plan
from harness.cli import app
from harness.conformance import conformance
from harness.registry import HEADS
from harness.trial.run import Setting, run

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def cosine(tmp_path, monkeypatch):
    """The README's head, saved as it says and imported."""
    HEADS.names()
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    (tmp_path / "cosine_of_the_readme.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = dict(HEADS._classes)
    __import__("cosine_of_the_readme")
    yield "cosine"
    HEADS._classes.clear()
    HEADS._classes.update(before)
    del sys.modules["cosine_of_the_readme"]


def test_the_head_of_the_readme_conforms(cosine):
    _, outcomes = conformance(cosine)
    assert [str(outcome) for outcome in outcomes if not outcome.ok] == []


def test_the_head_of_the_readme_trains_over_its_grid(cosine, tiny_suite, tmp_path):
    text = tiny_suite.read_text().replace("  - softmax\n", "  - softmax\n  - cosine: {sharpness: [5.0, 10.0]}\n")
    tiny_suite.write_text(text)
    trials = [trial for trial in plan.load(tiny_suite).trials if trial.head.name == "cosine" and trial.seed == 1]
    setting = Setting(suite="tiny", runs=tmp_path / "runs", data=tmp_path, device="cpu", executor="inline")
    records = [run(trial, setting, lambda progress: None) for trial in trials]
    assert [(r.spec.head.params["sharpness"], r.status) for r in records] == [(5.0, "ok"), (10.0, "ok")]


def test_every_command_in_the_readme_exists():
    known = set(get_command(app).commands)
    named = set(re.findall(r"(?:`|^    )harness ([a-z]+)", README, flags=re.MULTILINE))
    assert {"run", "plan", "table", "list", "check"} <= named
    assert named <= known


def test_every_suite_named_in_the_readme_is_there_and_loads():
    for name in set(re.findall(r"suites/(\w+\.yaml)", README + (ROOT / "Makefile").read_text())):
        assert plan.load(ROOT / "suites" / name).trials


def test_every_suite_loads_and_its_header_names_its_command():
    for path in sorted((ROOT / "suites").glob("*.yaml")):
        suite = plan.load(path)
        assert suite.name == path.stem
        assert f"# Command: harness run suites/{path.name}" in path.read_text()
