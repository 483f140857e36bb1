"""The watch over a trial: limits of time and memory, and the end of one that is silent."""

import contextlib
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from commands import PATIENCE

from harness.plan.suite_file import TimeoutSpec
from harness.trial import watch
from harness.trial.setting import Setting
from harness.trial.watch import TimedOut, Watch

# A worker of Ray's that gives no sign of life, in the folder argv[1].
SILENT = """
import sys, time
from pathlib import Path
from harness.plan.suite_file import TimeoutSpec
from harness.trial.setting import Setting
from harness.trial.watch import Watch

here = Path(sys.argv[1])
limits = TimeoutSpec(silent_minutes=2 / 60)
setting = Setting(suite="tiny", runs=here, data=here, device="cpu", executor="ray", timeout=limits)
with Watch(setting, here, 0.0):
    time.sleep(600)
"""


@pytest.fixture
def setting(tmp_path):
    def make(**changes):
        return Setting(suite="tiny", runs=tmp_path, data=tmp_path, device="cpu", executor="inline", **changes)

    return make


def silent(seconds: float) -> TimeoutSpec:
    return TimeoutSpec(silent_minutes=seconds / 60)


def test_the_minutes_of_all_processes_count(setting, tmp_path):
    limits = TimeoutSpec(minutes=1.0)
    with Watch(setting(timeout=limits), tmp_path, 59.0):
        pass
    with pytest.raises(TimedOut, match="not finished after 1 minutes"), Watch(setting(timeout=limits), tmp_path, 61.0):
        pass


def test_host_oom_a_process_over_its_own_limit_is_ended(setting, tmp_path):
    with Watch(setting(memory_gib=1000.0), tmp_path, 0.0):
        pass
    with pytest.raises(MemoryError, match=r"its limit is 0\.01 GiB"), Watch(setting(memory_gib=0.01), tmp_path, 0.0):
        pass


@pytest.mark.parametrize(("percent", "share", "ended"), [(99.0, 1e-6, True), (50.0, 1e-6, False), (99.0, 1.0, False)])
def test_host_oom_whoever_holds_more_than_its_share_ends_once_memory_is_short(
    percent, share, ended, setting, tmp_path, monkeypatch
):
    machine = SimpleNamespace(percent=percent, total=psutil.virtual_memory().total)
    monkeypatch.setattr(watch.psutil, "virtual_memory", lambda: machine)
    ending = pytest.raises(MemoryError, match="the machine is short of memory") if ended else contextlib.nullcontext()
    with ending, Watch(setting(memory_share=share), tmp_path, 0.0):
        pass


def test_hang_in_this_process_is_timed_out_by_an_alarm(setting, tmp_path):
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TimedOut, match="no sign of life"), Watch(setting(timeout=silent(0.1)), tmp_path, 0.0):
        time.sleep(600)
    with Watch(setting(timeout=silent(600)), tmp_path, 0.0):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == before


def test_hang_of_a_worker_ends_its_process_and_leaves_where_it_was(tmp_path):
    done = subprocess.run([sys.executable, "-c", SILENT, str(tmp_path)], timeout=PATIENCE, capture_output=True)
    assert done.returncode == 1
    assert 'File "<string>", line 12' in (tmp_path / "stuck.log").read_text()


def test_a_sign_of_life_that_cannot_be_given_ends_no_trial(setting, tmp_path):
    with Watch(setting(), tmp_path / "gone", 0.0):
        pass
