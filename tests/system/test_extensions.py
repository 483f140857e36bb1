"""Each extension may be deleted: in a copy of the tree without its modules a suite runs, and its views are written."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import SUITE, WITHOUT_GPU

from harness.cli.commands import COMMANDS
from harness.extensions import EXTENSIONS

ROOT = Path(__file__).parents[2]
FOLDERS = ("harness", "heads", "backbones", "suites", "docs", "results/published")


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_without_it_a_suite_runs_and_is_shown(extension, tmp_path):
    tree, project = tmp_path / "tree", tmp_path / "project"
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for module in EXTENSIONS[extension]:
        place = tree / module.replace(".", "/")
        shutil.rmtree(place) if place.is_dir() else place.with_suffix(".py").unlink()
    (project / "suites").mkdir(parents=True)
    (project / "suites" / "tiny.yaml").write_text(SUITE)

    def harness(*arguments: str) -> str:
        command = [sys.executable, "-m", "harness.cli", *arguments]
        environment = {**os.environ, **WITHOUT_GPU, "PYTHONPATH": str(tree)}
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed = harness("--help")
    for name, command in COMMANDS.items():
        of_extension = f"harness.cli.{command.place.partition(':')[0]}" in EXTENSIONS[extension]
        assert (f"\n│ {name} " in listed) != of_extension
    assert "4 trials, 4 to run" in harness("plan", "tiny")
    assert "4 ok" in harness("run", "tiny", "--executor", "inline")
    assert "MoS 2" in harness("table", "tiny", "--form", "md")
    assert "page: " in harness("report", "tiny")
    assert "ok" in harness("runs", "tiny")
