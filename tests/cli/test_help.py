"""The commands there are, and what they say of themselves."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from typer.main import get_command

from harness import cli

ROOT = Path(__file__).parent.parent.parent
COMMANDS = ["run", "plan", "table", "report", "diff", "leaderboard", "list", "check", "doctor", "inspect", "sample"]
COMMANDS += [
    "diagnose",
    "experiment",
    "runs",
    "export",
    "import",
    "sync",
    "ui",
    "bench",
    "verify",
    "reproduce",
    "new",
    "schema",
    "site",
    "docs",
]
BENCHES = ["head", "step", "eval", "memory", "plan-memory", "sample", "extras", "backbone", "table"]


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


@pytest.mark.parametrize("name", COMMANDS)
def test_a_flag_is_shown_without_a_type(harness, name):
    assert "<bool>" not in harness(name, "--help").out


def test_the_list_of_commands_has_their_summaries_and_no_type_of_flags(harness):
    shown = " ".join(harness("--help").out.split())
    assert "<bool>" not in shown
    for name, command in cli.COMMANDS.items():
        assert name in shown
        assert command.summary.split()[0] in shown


def test_the_version_is_that_of_the_package(harness):
    assert harness("--version").out.strip() == metadata.version("output-head-harness")


def test_a_misspelt_command_is_told_the_nearest(harness):
    done = harness("rum")
    assert done.code == 2
    assert "Did you mean 'run'" in done.err


def test_the_shell_is_offered_the_names_of_commands():
    asked = {"_HARNESS_COMPLETE": "complete_bash", "COMP_WORDS": "harness re", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv = ['harness']; from harness.cli import main; main()"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["reproduce", "report"]


def test_the_package_installs_the_command():
    assert 'harness = "harness.cli:main"' in (ROOT / "pyproject.toml").read_text()
