"""The watch over a trial: limits of time and memory, and the end of one that is silent."""

import contextlib
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import handmade
import psutil
import pytest
from commands import PATIENCE

from harness.plan.suite_file import TimeoutSpec
from harness.trial import watch
from harness.trial.watch import TimedOut, Watch

# A worker that gives no sign of life; argv[1] is its task.
SILENT = """
import sys, time
from harness.trial.task import Task
from harness.trial.watch import Watch

with Watch(Task.from_json(sys.argv[1]), 0.0):
    time.sleep(600)
"""


@pytest.fixture
def task(tmp_path):
    def make(**changes):
        return handmade.task(handmade.record().spec, tmp_path, **changes)

    return make


def silent(seconds: float) -> TimeoutSpec:
    return TimeoutSpec(silent_minutes=seconds / 60)


def test_the_minutes_of_all_processes_count(task, tmp_path):
    limits = TimeoutSpec(minutes=1.0)
    with Watch(task(timeout=limits), 59.0):
        pass
    with pytest.raises(TimedOut, match="not finished after 1 minutes"), Watch(task(timeout=limits), 61.0):
        pass


def test_host_oom_a_process_over_its_own_limit_is_ended(task, tmp_path):
    with Watch(task(memory_gib=1000.0), 0.0):
        pass
    with pytest.raises(MemoryError, match=r"its limit is 0\.01 GiB"), Watch(task(memory_gib=0.01), 0.0):
        pass


@pytest.mark.parametrize(("percent", "share", "ended"), [(99.0, 1e-6, True), (50.0, 1e-6, False), (99.0, 1.0, False)])
def test_host_oom_whoever_holds_more_than_its_share_ends_once_memory_is_short(
    percent, share, ended, task, tmp_path, monkeypatch
):
    machine = SimpleNamespace(percent=percent, total=psutil.virtual_memory().total)
    monkeypatch.setattr(watch.psutil, "virtual_memory", lambda: machine)
    ending = pytest.raises(MemoryError, match="the machine is short of memory") if ended else contextlib.nullcontext()
    with ending, Watch(task(memory_share=share), 0.0):
        pass


def test_hang_in_this_process_is_timed_out_by_an_alarm(task, tmp_path):
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TimedOut, match="no sign of life"), Watch(task(timeout=silent(0.1)), 0.0):
        time.sleep(600)
    with Watch(task(timeout=silent(600)), 0.0):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == before


def test_hang_of_a_worker_ends_its_process_and_leaves_where_it_was(task):
    silent_one = task(executor="ray", timeout=TimeoutSpec(silent_minutes=2 / 60))
    silent_one.folder.mkdir()
    sent = silent_one.to_json()
    done = subprocess.run([sys.executable, "-c", SILENT, sent], timeout=PATIENCE, capture_output=True)
    assert done.returncode == 1
    assert 'File "<string>", line 7' in (silent_one.folder / "stuck.log").read_text()


def test_a_sign_of_life_that_cannot_be_given_ends_no_trial(task, tmp_path):
    with Watch(replace(task(), runs=Path("no such folder")), 0.0):
        pass
