"""`harness.run_suite` as a notebook calls it: its study, what it prints, and what it leaves."""

import io
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from commands import SUITE
from rich.console import Console

import harness
from harness import plan
from harness.errors import ExecutionError
from harness.execution import run_suite as running
from harness.execution.live import Reporter

QUIET = harness.RunOptions(executor="inline", device="cpu", tracking=False)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The tiny suite run once: (the path of the suite file, its results folder, what was printed, its study)."""
    folder = tmp_path_factory.mktemp("notebook")
    suite = folder / "suites" / "tiny.yaml"
    suite.parent.mkdir()
    suite.write_text(SUITE)
    out = io.StringIO()
    reporter = Reporter(Console(file=out, width=100), Console(file=out, width=100))
    study = harness.run_suite(suite, results=folder / "results", options=QUIET, reporter=reporter)
    assert reporter.problems == []
    return suite, folder / "results", out.getvalue(), study


def test_a_run_prints_plain_lines_and_its_table_and_gives_the_study(first):
    suite, results, printed, study = first
    assert list(study.records) == [spec.id for spec in plan.load(suite).trials]
    assert {record.status for record in study.records.values()} == {"ok"}
    assert study.table() in printed
    assert study.table() == (results / "tables" / "tiny.md").read_text()
    assert running.all_ok(study)
    lines = printed.splitlines()
    assert [sum(line.startswith(kind) for line in lines) for kind in ("start   ", "end     ")] == [4, 4]
    assert any(line.startswith("4 of 4 trials: 4 ok; wall time ") for line in lines)
    assert "\x1b" not in printed
    (result,) = [line for line in lines if line.startswith("Nothing is decided: ")]
    assert printed.count(result.split(". ")[-1].rstrip(".")) == 1


def test_a_run_in_a_thread_gives_the_same_records(first, tmp_path):
    suite, _, _, study = first
    found = []

    def work():
        options = replace(QUIET, only=("seed=1",))
        found.append(harness.run_suite(suite, results=tmp_path / "results", options=options))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    (made,) = found
    assert len(made.records) == 2
    assert not running.all_ok(made)
    assert running.all_ok(made, ("seed=1",))
    for trial, record in made.records.items():
        assert record.weights_sha256 == study.records[trial].weights_sha256


def test_a_study_is_loaded_without_training(first, tmp_path, monkeypatch, capsys):
    suite, results, _, study = first
    assert harness.load_study(suite, results=results).table() == study.table()
    monkeypatch.setenv("HARNESS_RESULTS", str(results))
    assert len(harness.load_study(str(suite)).records) == 4
    assert harness.load_study(suite, results=tmp_path).records == {}
    assert harness.load_study(suite, results=results, overrides=["train.epochs=3"]).records == {}
    assert capsys.readouterr().out == ""


def test_single_options_are_keyword_arguments(first, tmp_path):
    suite, _, _, _ = first
    options = {"results": tmp_path, "executor": "inline", "tracking": False, "only": ("head=softmax,seed=2",)}
    made = harness.run_suite(plan.load(suite, ("train.epochs=1",)), overrides=(), **options)
    assert [record.spec.seed for record in made.records.values()] == [2]
    again = harness.run_suite(suite, overrides=("train.epochs=1",), **options)
    assert again.records == made.records


def test_wrong_options_are_refused_before_anything_starts(first, tmp_path):
    suite, _, _, _ = first
    with pytest.raises(ExecutionError, match="overrides cannot be applied to a loaded suite"):
        harness.run_suite(plan.load(suite), results=tmp_path, overrides=("a=1",))
    with pytest.raises(TypeError, match="colour"):
        harness.run_suite(suite, results=tmp_path, colour="red")
    assert list(tmp_path.iterdir()) == []


def test_import_harness_imports_neither_torch_nor_a_terminal_library():
    script = "import sys, harness; print([name for name in ('torch', 'rich', 'ray', 'pandas') if name in sys.modules])"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout == "[]\n"
    assert {"run_suite", "load_study", "RunOptions"} <= set(dir(harness))
    with pytest.raises(AttributeError, match="has no attribute 'run_sweet'"):
        harness.run_sweet  # noqa: B018
