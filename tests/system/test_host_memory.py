"""A machine whose memory is short: RELIABILITY A12."""

import sys

import pytest
from ray._common.utils import get_system_memory
from ray._private.utils import get_used_memory

GIB = 2**30


@pytest.mark.skipif(sys.platform != "linux", reason="Ray's memory monitor is Linux's")
def test_host_oom_costs_the_culprit_only(place):
    """Ray's memory monitor, which ends the whole fit with the worker it kills: its threshold lies up to 6 GiB
    above what is used now, and one trial holds 256 MiB more with every step, 11 GiB in the end.
    """
    there = place("faulty: {kind: eat, at: 3}", "faulty: {kind: slow, ms: 30}")
    total, used = get_system_memory(), get_used_memory()  # of the machine, or of the container
    if total - used < 4 * GIB:
        pytest.skip("needs 4 GiB of free memory")
    threshold = (used + min(6 * GIB, (total - used) // 2)) / total  # other programs of this machine grow, too
    settings = {"RAY_memory_usage_threshold": f"{threshold:.4f}", "RAY_memory_monitor_refresh_ms": "100"}
    done = there.run("--no-tracking", env=settings)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    statuses = {head: record["status"] for head, record in there.by_head().items()}
    assert statuses == {"faulty kind=eat at=3": "oom", "faulty kind=slow ms=30.0": "ok"}
