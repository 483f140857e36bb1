"""A machine whose memory is short: RELIABILITY A12."""

import re
import sys

import pytest
from ray._common.utils import get_system_memory
from ray._private.utils import get_used_memory

GIB = 2**30
ENDED = re.compile(r"memory was used up: ([\d.]+) of [\d.]+ GB, of which the worker held ([\d.]+)")


@pytest.mark.skipif(sys.platform != "linux", reason="Ray's memory monitor is Linux's")
def test_host_oom_costs_the_culprit_only(place):
    """One trial holds 256 MiB more with every step, 11 GiB in the end; Ray's memory monitor ends its
    worker at a threshold up to 6 GiB above what is used now. Its record is `oom` where it holds more
    than all other programs, and it has no record where they hold more: that depends on the machine.
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
    ended = ENDED.search(done.stdout)
    assert ended, done.stdout + done.stderr
    in_use, held = map(float, ended.groups())
    statuses = {head: record["status"] for head, record in there.by_head().items()}
    culprit = {"faulty kind=eat at=3": "oom"} if held > in_use / 2 else {}
    assert statuses == {"faulty kind=slow ms=30.0": "ok", **culprit}
