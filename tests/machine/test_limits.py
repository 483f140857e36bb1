"""What a container leaves of the machine: cores and memory by control groups, on planted files of both versions."""

from types import SimpleNamespace

import pytest

from harness.machine import limits

GIB = 2**30
NONE = str(2**63 - 4096)  # how version 1 says that there is no limit
V2 = "0::/a/b\n"
V1 = "4:memory:/a/b\n1:cpu,cpuacct:/a/b\n0::/\n"
HOST = "4:memory:/docker/of/the/host\n1:cpu,cpuacct:/docker/of/the/host\n"  # whose folders a container does not see


@pytest.fixture
def plant(tmp_path, monkeypatch):
    """A function: the groups of this process and the files of groups -> a machine with 8 cores and 16 GiB, 12 free."""

    def planted(own, files):
        for name, content in files.items():
            (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "groups" / name).write_text(f"{content}\n")
        (tmp_path / "own").write_text(own)
        monkeypatch.setattr(limits, "GROUPS", tmp_path / "groups")
        monkeypatch.setattr(limits, "OWN_GROUPS", tmp_path / "own")
        monkeypatch.setattr(limits.os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
        machine = SimpleNamespace(total=16 * GIB, available=12 * GIB)
        monkeypatch.setattr(limits.psutil, "virtual_memory", lambda: machine)

    return planted


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        (V2, {}, 8),
        (V2, {"a/b/cpu.max": "max 100000"}, 8),
        (V2, {"a/b/cpu.max": "350000 100000"}, 3),  # 3.5 cores
        (V2, {"a/b/cpu.max": "50000 100000"}, 1),  # half a core
        (V2, {"a/cpu.max": "200000 100000", "a/b/cpu.max": "400000 100000"}, 2),  # the group above has less
        (V2, {"cpu.max": "400000 200000"}, 2),
        (V2, {"a/b/cpu.max": "9900000 100000"}, 8),  # more than there are
        (V1, {"cpu/a/b/cpu.cfs_quota_us": "-1", "cpu/a/b/cpu.cfs_period_us": "100000"}, 8),
        (V1, {"cpu/a/cpu.cfs_quota_us": "250000", "cpu/a/cpu.cfs_period_us": "50000"}, 5),
        (HOST, {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2),
    ],
)
def test_cores_are_those_of_the_quota(plant, own, files, cores):
    plant(own, files)
    assert limits.cpus_available() == cores


@pytest.mark.parametrize(
    ("own", "files", "total", "free"),
    [
        (V2, {"a/b/memory.max": "max", "a/b/memory.current": GIB}, 16, 12),
        (V2, {"a/b/memory.max": 4 * GIB, "a/b/memory.current": GIB}, 4, 3),
        (  # files that are only cached are free: 3 GiB used, of which 2 cached
            V2,
            {"a/memory.max": 4 * GIB, "a/memory.current": 3 * GIB, "a/memory.stat": f"anon 1\ninactive_file {2 * GIB}"},
            4,
            3,
        ),
        (V1, {"memory/a/b/memory.limit_in_bytes": NONE, "memory/a/b/memory.usage_in_bytes": GIB}, 16, 12),
        (
            HOST,
            {
                "memory/memory.limit_in_bytes": 2 * GIB,
                "memory/memory.usage_in_bytes": 2 * GIB,
                "memory/memory.stat": f"inactive_file 5\ntotal_inactive_file {GIB}",
            },
            2,
            1,
        ),
        (V2, {"a/b/memory.max": GIB, "a/b/memory.current": 2 * GIB}, 1, 0),
    ],
)
def test_memory_is_what_the_group_leaves(plant, own, files, total, free):
    plant(own, files)
    assert limits.memory() == (total * GIB, free * GIB)


def test_a_system_without_control_groups_has_its_own_cores(plant, monkeypatch, tmp_path):
    plant("", {})
    monkeypatch.setattr(limits, "OWN_GROUPS", tmp_path / "nothing")
    assert limits.cpus_available() == 8
    assert limits.memory().free == 12 * GIB
