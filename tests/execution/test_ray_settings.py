"""What Ray's settings in harness/execution/ray/__init__.py are for: what Ray does with each, and without it.

Those that are not here have tests that need a running Ray: tests/system/test_network.py, ray/test_tuner.py (niceness),
test_drivers.py (Ctrl-C).
"""

import os
from types import SimpleNamespace

import pytest
from ray._common.usage import usage_lib
from ray._private import ray_constants, worker
from ray._private.runtime_env import uv_runtime_env_hook
from ray.train.v2.api.data_parallel_trainer import RAY_CHDIR_TO_TRIAL_DIR
from ray.tune.trainable import Trainable
from ray.tune.utils.callback import _create_default_callbacks

from harness.execution.ray import SETTINGS


@pytest.fixture(params=[True, False], ids=["set", "not set"])
def is_set(request, monkeypatch):
    """Whether the settings are made; otherwise none is."""
    for name, value in SETTINGS.items():
        if request.param:
            monkeypatch.setenv(name, value)
        else:
            monkeypatch.delenv(name, raising=False)
    return request.param


def test_workers_change_to_the_folder_of_their_trial(is_set, tmp_path, monkeypatch):
    assert RAY_CHDIR_TO_TRIAL_DIR in SETTINGS  # Ray Train reads it, too
    monkeypatch.delenv("TUNE_ORIG_WORKING_DIR", raising=False)
    monkeypatch.chdir(before := os.getcwd())
    folder = str(tmp_path / "trial")
    Trainable._setup_logdir(SimpleNamespace(_storage=SimpleNamespace(trial_working_directory=folder)))
    os.environ.pop("TUNE_ORIG_WORKING_DIR")
    assert os.getcwd() == (before if is_set else folder)


def test_statistics_are_sent(is_set, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_USAGE_STATS_CONFIG_PATH", str(tmp_path / "none.json"))
    assert usage_lib.usage_stats_enabled() == (not is_set)


def test_tune_writes_files_of_progress(is_set):
    made = {type(each).__name__ for each in _create_default_callbacks([])}
    files = {"CSVLoggerCallback", "JsonLoggerCallback", "TBXLoggerCallback"}
    assert made & files == (set() if is_set else files)


def test_under_uv_run_the_working_folder_is_uploaded(is_set, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(uv_runtime_env_hook, "_get_uv_run_cmdline", lambda: ["uv", "run", "harness", "run"])
    asked = ray_constants.env_bool("RAY_ENABLE_UV_RUN_RUNTIME_ENV", True)  # as Ray does when it is imported
    monkeypatch.setattr(ray_constants, "RAY_ENABLE_UV_RUN_RUNTIME_ENV", asked)
    given = worker._maybe_modify_runtime_env(None, False)
    assert given is None if is_set else given["working_dir"] == str(tmp_path)
