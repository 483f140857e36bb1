"""The commands there are, and what they say of themselves."""

import os
import subprocess
import sys
from importlib import metadata

from harness import cli


def test_every_command_has_help_with_an_example_of_itself_and_flags_without_a_type(harness):
    for name in cli.COMMANDS:
        done = harness(name, "--help")
        assert done.code == 0, name
        assert f"Example: harness {name}" in done.out
        assert "<bool>" not in done.out, name


def test_the_list_of_commands_has_their_summaries_and_no_type_of_flags(harness):
    shown = " ".join(harness("--help").out.split())
    assert "<bool>" not in shown
    assert all(f" {name} {command.summary.split()[0]}" in shown for name, command in cli.COMMANDS.items())


def test_the_version_is_that_of_the_package(harness):
    assert harness("--version").out.strip() == metadata.version("output-head-harness")


def test_the_shell_is_offered_the_names_of_commands():
    asked = {"_HARNESS_COMPLETE": "complete_bash", "COMP_WORDS": "harness re", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv = ['harness']; from harness.cli import main; main()"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["report", "reproduce"]
