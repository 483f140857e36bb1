"""What is known of the machine."""

from collections import namedtuple
from types import SimpleNamespace

import pytest

from harness.machine import environment


@pytest.mark.parametrize(
    ("shares", "cores", "busy"),
    [
        ([100.0, 50.0, 25.0, 0.0], {0, 2}, 1.25),  # those of our two cores
        ([100.0, 50.0], {5, 17}, 1.5),  # a container that counts its own cores from 0
    ],
)
def test_busy_cores_are_those_this_process_may_use(monkeypatch, shares, cores, busy):
    asked = []
    monkeypatch.setattr(environment.psutil, "cpu_percent", lambda seconds, percpu: asked.append(seconds) or shares)
    monkeypatch.setattr(environment.os, "sched_getaffinity", lambda pid: cores, raising=False)
    assert environment.busy_cores(0.5) == busy
    assert asked == [0.5]


def test_other_work_is_that_of_our_cores_without_our_own(monkeypatch):
    times = namedtuple("times", "user nice system idle iowait guest guest_nice")
    # seconds before and after, of core 0, which is ours, core 1, which is not, and core 2, which is ours
    before = [times(10, 1, 2, 100, 5, 3, 0)] * 3
    after = [times(16, 2, 3, 101, 6, 4, 0), times(99, 9, 9, 100, 5, 3, 0), times(12, 1, 2, 107, 6, 3, 0)]
    # core 0: 6 + 1 + 1 busy, the 1 of a guest is in user, too; core 2: 2 busy. 10 in all, of which 3 + 0.5 are ours
    mine = SimpleNamespace(user=20.0, system=4.0), SimpleNamespace(user=23.0, system=4.5)
    looks, clock = iter(zip((before, after), mine, strict=True)), iter((50.0, 54.0))
    now = {}

    def cores(percpu):
        now["cores"], now["mine"] = next(looks)
        return now["cores"]

    monkeypatch.setattr(environment.os, "sched_getaffinity", lambda pid: {0, 2}, raising=False)
    monkeypatch.setattr(environment.psutil, "cpu_times", cores)
    monkeypatch.setattr(environment.psutil, "Process", lambda: SimpleNamespace(cpu_times=lambda: now["mine"]))
    monkeypatch.setattr(environment.time, "monotonic", lambda: next(clock))
    assert environment.OtherWork().cores() == pytest.approx((10 - 3.5) / 4, abs=1e-9)
