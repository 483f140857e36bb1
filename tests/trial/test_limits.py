"""Limits of time and memory: RELIABILITY A10, A12."""

import math
import signal
import time
from functools import partial
from types import SimpleNamespace

import handmade
import psutil
import pytest
from disturbed import suite_text

from harness import plan
from harness.plan.suite_file import TimeoutSpec
from harness.records import store
from harness.training.checkpoint import Checkpoints
from harness.training.step import EagerStep
from harness.trial import watch
from harness.trial.run import run

GIB = 2**30


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(suite_text("softmax"))
    return plan.load(path).trials[0]


@pytest.fixture
def setting(tmp_path):
    return partial(handmade.task, runs=tmp_path / "runs")


def trained(spec, setting):
    return run(setting(spec=spec))


def slow_from_step(number, monkeypatch, work):
    """`work` is done in every step from this one on."""
    step, done = EagerStep.advance, []

    def advance(self, *arguments):
        done.append(1)
        if len(done) >= number:
            work()
        return step(self, *arguments)

    monkeypatch.setattr(EagerStep, "advance", advance)


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


@pytest.mark.parametrize("stuck", [lambda: time.sleep(1000), spin])
def test_hang_inline_is_a_timeout_that_keeps_its_checkpoint(stuck, spec, setting, monkeypatch):
    setting = partial(setting, timeout=TimeoutSpec(silent_minutes=30))
    alarms = []

    def hang():
        alarms.append(signal.setitimer(signal.ITIMER_REAL, 0.1)[0])  # the half hour is over at once
        stuck()

    with monkeypatch.context() as patch:
        slow_from_step(20, patch, hang)
        record = trained(spec, setting)
    assert 0 < alarms[0] <= 1800
    assert (record.status, [point.epoch for point in record.curve]) == ("timeout", [1])
    assert record.message.startswith("TimedOut: no sign of life")
    assert Checkpoints(setting.keywords["runs"] / spec.id).newest(spec.id).position.epoch == 2
    again = run(setting(spec=spec, replaces=store.digest(record)))
    assert (again.status, again.environment.sessions) == ("ok", 2)


def test_hang_is_no_name_for_a_trial_that_is_slow_but_alive(spec, setting, monkeypatch):
    clock, due = Clock(monkeypatch), []

    def set_alarm(kind, seconds):
        due.append(clock.now + (seconds or math.inf))  # 0 takes the alarm back

    def step():
        clock.passes(100)
        assert clock.now < due[-1], "the alarm would have rung"

    monkeypatch.setattr(watch.signal, "setitimer", set_alarm)
    slow_from_step(1, monkeypatch, step)  # 45 steps: 4500 s in all
    record = trained(spec, partial(setting, timeout=TimeoutSpec(silent_minutes=5)))
    assert record.status == "ok", record.message
    assert due[0] == 300


def test_timeout_minutes_are_of_all_sessions_together(spec, setting, monkeypatch):
    clock = Clock(monkeypatch)
    slow_from_step(1, monkeypatch, lambda: clock.passes(60))
    setting = partial(setting, timeout=TimeoutSpec(minutes=20))
    record = trained(spec, setting)
    assert (record.status, record.message) == ("timeout", "TimedOut: not finished after 20 minutes (timeout.minutes)")
    assert len(record.curve) == 1  # an epoch is 15 minutes
    assert Checkpoints(setting.keywords["runs"] / spec.id).newest(spec.id).session.elapsed == 15 * 60
    again = run(setting(spec=spec, replaces=store.digest(record)))  # the time is up
    assert again.status == "timeout"
    longer = partial(setting, timeout=TimeoutSpec(minutes=60))
    assert run(longer(spec=spec, replaces=store.digest(again))).status == "ok"


@pytest.mark.parametrize("minutes", [60.0, 1e-9])  # the second is over before it begins
def test_the_alarm_and_its_handler_are_put_back(minutes, spec, setting):
    before = signal.getsignal(signal.SIGALRM)
    record = trained(spec, partial(setting, timeout=TimeoutSpec(minutes=minutes, silent_minutes=60)))
    assert record.status == ("ok" if minutes == 60 else "timeout")
    assert signal.getsignal(signal.SIGALRM) is before


def test_a_trial_over_its_memory_limit_is_oom(spec, setting):
    record = trained(spec, partial(setting, memory_gib=0.01))
    assert record.status == "oom"
    assert record.message.startswith("MemoryError: the trial's process holds ")
    assert record.message.endswith("GiB, its limit is 0.01 GiB")


@pytest.mark.parametrize(("percent", "share", "status"), [(99.0, 1e-4, "oom"), (99.0, 0.9, "ok"), (50.0, 1e-4, "ok")])
def test_only_who_holds_more_than_its_share_of_a_short_memory_is_oom(
    percent, share, status, spec, setting, monkeypatch
):
    total = psutil.virtual_memory().total
    machine = type("Memory", (), {"percent": percent, "total": total})
    monkeypatch.setattr(watch.psutil, "virtual_memory", lambda: machine)
    record = trained(spec, partial(setting, memory_share=share))
    assert record.status == status
    assert ("the machine is short of memory" in record.message) == (status == "oom")


def test_limits_are_keys_of_the_suite_that_change_no_id(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(suite_text("softmax"))
    plain = plan.load(path)
    path.write_text(
        suite_text("softmax")
        + "timeout: {minutes: 60, silent_minutes: 5}\ncheckpoint: {epochs: 2, minutes: 1}\nresources: {memory_gib: 8}\n"
    )
    limited = plan.load(path, ("timeout.minutes=30",))
    assert (limited.timeout.minutes, limited.timeout.silent_minutes) == (30, 5)
    assert (limited.checkpoint.epochs, limited.checkpoint.minutes, limited.resources.memory_gib) == (2, 1, 8)
    assert limited.trials == plain.trials
    assert limited.overrides == ()
