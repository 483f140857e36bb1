"""The options that a command which is named for the next step takes over from the one that was given."""

from pathlib import Path

import pytest

from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError
from harness.execution.options import RunOptions, repeated

RESULTS = Path("results")


def test_how_and_where_trials_run_is_repeated_and_which_ones_is_not():
    which = {"overrides": ("train.epochs=1",), "only": ("head=mos",), "retry_failed": True, "overwrite": True}
    where = {"executor": "inline", "device": "cpu", "cpus_per_trial": 2, "gpus_per_trial": 0.5, "tracking": False}
    options = RunOptions(**where, **which, shared=True)
    assert repeated(options, Path("there"), Path("texts")) == [
        *("--executor", "inline", "--device", "cpu", "--cpus-per-trial", "2", "--gpus-per-trial", "0.5"),
        *("--no-tracking", "--shared", "--results", "there", "--data", "texts"),
    ]
    assert repeated(RunOptions(address="ray://host:1"), RESULTS, DEFAULT_DATA) == ["--address", "ray://host:1"]
    assert repeated(RunOptions(), RESULTS, DEFAULT_DATA) == []  # the usual options and folders


def test_an_executor_that_does_not_exist_is_refused():
    with pytest.raises(ExecutionError, match="there is no executor 'slurm'; there are: ray, inline"):
        RunOptions(executor="slurm")
