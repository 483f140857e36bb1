"""AGENTS.md: its commands work in their order, from an empty folder, and it names what there is."""

import csv
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from harness.cli import app, loaded

TEXT = (Path(__file__).parents[2] / "AGENTS.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line, comments=True)[1:] for line in re.findall(r"^    (harness .*)$", TEXT, flags=re.MULTILINE)
]
# of a suite that is to be trained here: one seed and little text, for seconds in place of minutes
SHORT = ["--set", "tune=null", "--set", "seeds=1", "--set", "train.epochs=0.01"]


def test_the_commands_with_json_are_those_that_have_it():
    (named,) = re.findall(r"With `--json`: (.*?)\. Exit", TEXT, flags=re.DOTALL)
    names = {each.removeprefix("harness ") for each in re.findall(r"`([^`]+)`", named)}
    commands = {name: loaded(name) for name in get_command(app).commands}
    assert names == {name for name, each in commands.items() if any("--json" in p.opts for p in each.params)}


@pytest.mark.system
@pytest.mark.needs("conformance")
def test_the_commands_work_in_their_order(tmp_path):
    assert len(COMMANDS) == 6
    for command in COMMANDS:
        short = SHORT if command[0] in ("plan", "run", "table") else []
        if command[:2] == ["new", "suite"]:  # 20 minutes may be too few where other work runs
            short = ["--minutes", "600"]
        started = [sys.executable, "-m", "harness", *command, *short]
        done = subprocess.run(started, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert {"softmax", "mine"} <= {row["head"] for row in rows}
    assert all(row["verdict"] for row in rows)
