"""Nothing that a user has set breaks a test: a few tests, run in a process of their own in an unusual state.

The chosen tests failed in that state once, or depend on it. What the harness itself does there has tests, too.
"""

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from commands import PATIENCE

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
NEEDED = ("harness", "heads", "backbones", "suites", "tests")  # by the tests in a copy

# Of a shell, a terminal, a cluster, a hook of git. /dev/null/... is a folder that nobody can make.
SET = {
    "COLUMNS": "40",
    "CUDA_VISIBLE_DEVICES": "7",
    "FORCE_COLOR": "1",
    "GIT_DIR": "/dev/null/.git",
    "GIT_INDEX_FILE": "/dev/null/index",
    "HARNESS_CACHE": "/dev/null/cache",
    "HARNESS_DATA": "/dev/null/data",
    "HARNESS_RESULTS": "/dev/null/results",
    "HF_HOME": "/dev/null/huggingface",
    "LC_ALL": "C",
    "MLFLOW_RUN_ID": "0",
    "MLFLOW_TRACKING_URI": "http://127.0.0.1:9",
    "MPLBACKEND": "TkAgg",
    "OMP_NUM_THREADS": "3",
    "PYTHONIOENCODING": "ascii",
    "PYTHONUTF8": "0",
    "PYTHONWARNINGS": "always",
    "RAY_ADDRESS": "127.0.0.1:9",
    "RAY_AUTH_MODE": "disabled",
    "SLURM_ARRAY_TASK_ID": "3",
    "TERM": "xterm-256color",
    "TZ": "Pacific/Chatham",
    "XDG_CACHE_HOME": "/dev/null/cache",
}
TOUCHED = (
    "tests/code/test_hashes.py::test_the_commit_is_that_of_the_folder_whatever_git_sets_for_a_hook",
    "tests/execution/test_doctor.py::test_a_fit_machine_leaves_with_0_and_nothing_behind",
    "tests/execution/test_doctor.py::test_a_token_that_others_can_read_is_a_note",
    "tests/test_printable.py",
)
ELSEWHERE = (
    "tests/cli/test_products_probe.py::test_the_doctor_tells_machine_and_probe",
    "tests/cli/test_help.py::test_the_shell_is_offered_the_names_of_commands",
    "tests/code/test_hashes.py::test_without_git_no_commit_is_known",
)


@pytest.fixture
def passing(tmp_path):
    """A function: names of tests, variables, options of the process. Each of the tests must pass."""

    def call(chosen, variables: dict[str, str], folder=ROOT, **options) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        temporary = f"--basetemp={tmp_path / 'base'}"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", temporary, *chosen],
            cwd=folder,
            env={**own, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            **options,
        )
        assert done.returncode == 0, done.stdout.decode("utf-8", "replace")

    return call


def test_what_a_user_sets_reaches_no_test(passing):
    passing(TOUCHED, SET, umask=0o077)


@pytest.fixture
def copy(tmp_path):
    """What a zip of the repository has, in a path with spaces, and results of a user that cannot be read."""
    folder = tmp_path / "with spaces" / "a copy"
    for name in NEEDED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(ROOT / "pyproject.toml", folder / "pyproject.toml")
    for name in ("mlflow.db", "tables/quickstart.md", "runs/quickstart/0/record.json"):
        place = folder / "results" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("not of the harness")
    return folder


def test_a_copy_is_enough_with_one_core_without_git_and_without_a_home(passing, copy, tmp_path):
    pin = getattr(os, "sched_setaffinity", None)  # not on macOS
    one_core = pin and partial(pin, 0, {min(os.sched_getaffinity(0))})
    state = {"PYTHONPATH": str(copy), "PATH": str(tmp_path), "HOME": "/dev/null/home"}
    passing(ELSEWHERE, state, copy, preexec_fn=one_core)


LOCALES = [{"LC_ALL": "C", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "latin-1"}]


@pytest.mark.parametrize("locale", LOCALES, ids=["ASCII", "Latin-1"])
def test_what_a_locale_cannot_show_is_a_question_mark(tmp_path, locale):
    command = [sys.executable, "-m", "harness.cli", "docs", "tables"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **locale}, capture_output=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"?" in done.stdout
