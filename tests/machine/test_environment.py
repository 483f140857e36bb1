"""What is known of the machine."""

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
