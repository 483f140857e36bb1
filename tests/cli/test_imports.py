"""What a command imports before it does its work: this, and not a clock, decides how long a user waits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

ROOT = Path(__file__).parent.parent.parent
TORCH = {"torch", "transformers"}
WITHOUT_TORCH = (
    "table",
    "report",
    "leaderboard",
    "diff",
    "site",
    "inspect",
    "sample",
    "diagnose",
    "experiment",
    "check",
)
VIEWS = {"mlflow", "ray", "pandas", "matplotlib", "scipy.stats", "scipy.optimize"}
ASKED = """
import atexit, gc, json, sys
from harness.cli import main
sys.argv = ["harness", *json.loads(sys.argv[1])]

@atexit.register  # the last one that runs
def ended():
    print(json.dumps({"code": code, "modules": sorted(sys.modules), "left": len(gc.get_objects())}), file=sys.stderr)

try:
    main()
except SystemExit as leaving:
    code = leaving.code
"""


def after(*arguments: str) -> dict:
    """What is known of a process of its own when a command has ended in it."""
    done = subprocess.run(
        [sys.executable, "-c", ASKED, json.dumps(arguments)], cwd=ROOT, capture_output=True, text=True, env=os.environ
    )
    assert "leaked" not in done.stderr, done.stderr  # printed by nanobind, which triton is bound with
    ended = json.loads(done.stderr.splitlines()[-1])
    assert ended["code"] in (0, None), done.stderr
    return ended


def modules_after(*arguments: str) -> set[str]:
    """The modules that are imported when a command has ended."""
    return set(after(*arguments)["modules"])


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_no_library_that_takes_time(option):
    assert not modules_after(option) & {*TORCH, *VIEWS, "pydantic", "numpy", "scipy", "ruamel", "jinja2", "pooch"}


@pytest.mark.parametrize(
    ("arguments", "without"),
    [
        (("runs",), {*TORCH, *VIEWS - {"pandas"}}),  # a frame of trials
        *(((command, "--help"), {*TORCH, *VIEWS}) for command in WITHOUT_TORCH),
        (("list", "suites"), {*TORCH, *VIEWS}),
        (("list", "heads"), {*VIEWS, "transformers"}),
        (("plan", "suites/quickstart.yaml"), {*VIEWS, "transformers", "torch._dynamo"}),
        (("plan", "suites/heads_quick.yaml"), {*VIEWS, "transformers"}),  # with torch._dynamo and triton: mfs
        (("plan", "suites/ground_truth_ngrams.yaml"), {*VIEWS, "transformers", "torch._dynamo"}),  # without a backbone
    ],
    ids=lambda given: "-".join(given) if isinstance(given, tuple) else "",
)
def test_a_command_imports_only_what_it_works_with(arguments, without):
    assert not modules_after(*arguments) & without


def test_the_table_needs_no_plots_and_no_mlflow(first_run):
    done = modules_after(
        "table", str(first_run.folder / "suites/tiny.yaml"), "--results", str(first_run.folder / "results")
    )
    assert not done & {"mlflow", "ray", "pandas", "matplotlib", "transformers", "scipy.stats", "scipy.optimize"}


def test_at_its_end_a_command_leaves_no_objects_to_the_last_collection():
    """It would take 0.3 s once torch is imported."""
    assert after("list", "heads")["left"] < 10_000  # more than 100,000 else
