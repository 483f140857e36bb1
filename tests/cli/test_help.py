"""The commands there are, and what they say of themselves."""

from pathlib import Path

import pytest
from typer.main import get_command

from harness import cli

ROOT = Path(__file__).parent.parent.parent
COMMANDS = ["run", "plan", "table", "report", "diff", "leaderboard", "list", "check", "doctor", "inspect", "sample"]
COMMANDS += ["runs", "export", "import", "sync", "ui", "bench", "verify", "reproduce", "new", "schema", "site"]
BENCHES = ["head", "step", "eval", "memory", "plan-memory", "sample", "table"]


def test_the_commands_are_the_documented_ones():
    assert sorted(get_command(cli.app).commands) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_of_itself(harness, name):
    done = harness(name, "--help")
    assert done.code == 0
    assert f"Example: harness {name}" in done.out


@pytest.mark.parametrize("name", BENCHES)
def test_every_benchmark_has_help_with_an_example_of_itself(harness, name):
    done = harness("bench", name, "--help")
    assert done.code == 0
    assert f"Example: harness bench {name}" in done.out


def test_the_package_installs_the_command():
    assert 'harness = "harness.cli:main"' in (ROOT / "pyproject.toml").read_text()
