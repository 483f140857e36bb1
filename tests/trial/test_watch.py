"""The watch over a trial: limits of time and memory, and the end of one that is silent."""

import contextlib
import math
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
from disturbed import suite_text
from trained import before_steps, loaded

from harness.machine import limits
from harness.plan.suite_file import TimeoutSpec
from harness.records import store
from harness.training.checkpoint import Checkpoints
from harness.trial import watch
from harness.trial.run import run
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
def watched(tmp_path):
    """A function: what a task has -> a watch over it."""
    return lambda before=0.0, **task: Watch(handmade.task(handmade.record().spec, tmp_path, **task), before)


def silent(seconds: float) -> TimeoutSpec:
    return TimeoutSpec(silent_minutes=seconds / 60)


def test_the_minutes_of_all_processes_count(watched):
    limits = TimeoutSpec(minutes=1.0)
    with watched(59.0, timeout=limits):
        pass
    with pytest.raises(TimedOut, match="not finished after 1 minutes"), watched(61.0, timeout=limits):
        pass


def test_host_oom_a_process_over_its_own_limit_is_ended(watched):
    with watched(memory_gib=1000.0):
        pass
    with pytest.raises(MemoryError, match=r"its limit is 0\.01 GiB"), watched(memory_gib=0.01):
        pass


@pytest.mark.parametrize(("percent", "share", "ended"), [(99.0, 1e-6, True), (50.0, 1e-6, False), (99.0, 1.0, False)])
def test_host_oom_whoever_holds_more_than_its_share_ends_once_memory_is_short(
    percent, share, ended, watched, monkeypatch
):
    total = psutil.virtual_memory().total
    monkeypatch.setattr(watch.limits, "memory", lambda: limits.Memory(total, round(total * (1 - percent / 100))))
    ending = pytest.raises(MemoryError, match="the machine is short of memory") if ended else contextlib.nullcontext()
    with ending, watched(memory_share=share):
        pass


def test_hang_in_this_process_is_timed_out_by_an_alarm(watched):
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TimedOut, match="no sign of life"), watched(timeout=silent(0.1)):
        time.sleep(600)
    with watched(timeout=silent(600)):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == before


@pytest.mark.system
def test_hang_of_a_worker_ends_its_process_and_leaves_where_it_was(tmp_path):
    task = handmade.task(handmade.record().spec, tmp_path, executor="ray", timeout=silent(2))
    task.folder.mkdir()
    done = subprocess.run([sys.executable, "-c", SILENT, task.to_json()], timeout=PATIENCE, capture_output=True)
    assert done.returncode == 1
    assert 'File "<string>", line 7' in (task.folder / "stuck.log").read_text()


def test_a_sign_of_life_that_cannot_be_given_ends_no_trial():
    with Watch(handmade.task(handmade.record().spec, Path("no such folder")), 0.0):
        pass


# within a trial


@pytest.fixture
def limited(tmp_path):
    """A function: limits -> the task of a tiny trial that has them: three epochs of 15 steps."""
    (spec,) = loaded(tmp_path, suite_text("softmax")).trials
    return lambda **limits: handmade.task(spec, tmp_path / "runs", timeout=TimeoutSpec(**limits))


def spin():
    while True:
        pass


class Clock:
    """The time that the watch knows: it passes when the test says so, on any machine."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: self.now))

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.system
@pytest.mark.parametrize("stuck", [lambda: time.sleep(1000), spin])
def test_hang_inline_is_a_timeout_that_keeps_its_checkpoint(stuck, limited):
    task, alarms = limited(silent_minutes=30), []

    def hang(step):
        if step == 19:
            alarms.append(signal.setitimer(signal.ITIMER_REAL, 0.1)[0])  # the half hour is over at once
            stuck()

    with before_steps(hang):
        record = run(task)
    assert 0 < alarms[0] <= 1800
    assert (record.status, [point.epoch for point in record.curve]) == ("timeout", [1])
    assert record.message.startswith("TimedOut: no sign of life")
    assert Checkpoints(task.folder).newest(task.id).position.epoch == 2
    again = run(replace(task, replaces=store.digest(record)))
    assert (again.status, again.environment.sessions) == ("ok", 2)


def test_hang_is_no_name_for_a_trial_that_is_slow_but_alive(limited, monkeypatch):
    clock, due = Clock(monkeypatch), []

    def set_alarm(kind, seconds):
        due.append(clock.now + (seconds or math.inf))  # 0 takes the alarm back

    def step(number):
        clock.passes(100)  # 45 steps: 4500 s in all
        assert clock.now < due[-1], "the alarm would have rung"

    monkeypatch.setattr(watch.signal, "setitimer", set_alarm)
    with before_steps(step):
        record = run(limited(silent_minutes=5))
    assert record.status == "ok", record.message
    assert due[0] == 300


def test_timeout_minutes_are_of_all_sessions_together(limited, monkeypatch):
    clock, task = Clock(monkeypatch), limited(minutes=20)
    with before_steps(lambda step: clock.passes(60)):
        record = run(task)
        assert (record.status, len(record.curve)) == ("timeout", 1)  # an epoch is 15 minutes
        assert record.message == "TimedOut: not finished after 20 minutes (timeout.minutes)"
        assert Checkpoints(task.folder).newest(task.id).session.elapsed == 15 * 60
        again = run(replace(task, replaces=store.digest(record)))  # the time is up
        assert again.status == "timeout"
        assert run(replace(limited(minutes=60), replaces=store.digest(again))).status == "ok"
