"""What is known of the machine and its processes; files are written whole or not at all, and only files are read."""

import os
import subprocess
import sys
import time
from collections import namedtuple
from types import SimpleNamespace

import pytest
from disturbed import wait_for
from filelock import FileLock

from harness.machine import environment, files, processes
from harness.machine.files import kept, read_bounded, write_atomically


@pytest.mark.parametrize(("ours", "busy"), [({0, 2}, 10), ({5, 17}, 114)])  # a container counts its cores from 0
def test_other_work_is_that_of_our_cores_without_our_own(ours, busy, monkeypatch):
    times = namedtuple("times", "user nice system idle iowait guest guest_nice")
    own = namedtuple("own", "user system children_user children_system")
    # seconds before and after, of core 0, which is ours, core 1, which is not, and core 2, which is ours
    before = [times(10, 1, 2, 100, 5, 3, 0)] * 3
    after = [times(16, 2, 3, 101, 6, 4, 0), times(99, 9, 9, 100, 5, 3, 0), times(12, 1, 2, 107, 6, 3, 0)]
    # core 0: 6 + 1 + 1 busy, the 1 of a guest is in user, too; core 1: 104; core 2: 2. Of all this 3 + 0.5 are ours:
    # 1.5 + 0.25 of this process, 0.25 of a process that it started and that has ended, 1 + 0.5 of one that still runs
    mine = [own(20.0, 4.0, 1.0, 0.0), own(7.0, 1.0, 0.0, 0.0)], [own(21.5, 4.25, 1.25, 0.0), own(8.0, 1.5, 0.0, 0.0)]
    looks, clock = iter(zip((before, after), mine, strict=True)), iter((50.0, 54.0))
    now = {}

    def cores(percpu):
        now["cores"], now["mine"] = next(looks)
        return now["cores"]

    def process():
        each = [SimpleNamespace(cpu_times=lambda used=used: used) for used in now["mine"]]
        each[0].children = lambda recursive: each[1:] if recursive else []
        return each[0]

    monkeypatch.setattr(environment.os, "sched_getaffinity", lambda pid: ours, raising=False)
    monkeypatch.setattr(environment.psutil, "cpu_times", cores)
    monkeypatch.setattr(environment.psutil, "Process", process)
    monkeypatch.setattr(environment.time, "monotonic", lambda: next(clock))
    assert environment.OtherWork().cores() == pytest.approx((busy - 3.5) / 4, abs=1e-9)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_write_that_fails_midway_leaves_the_old_content_and_no_temporary_file(tmp_path, monkeypatch, failing):
    place = tmp_path / "record.json"
    write_atomically(place, b"old")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*{"fsync": (os, "fsync", full), "replace": ("pathlib.Path.replace", full)}[failing])
    with pytest.raises(OSError, match="No space left"):
        write_atomically(place, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]
    assert place.read_bytes() == b"old"


def test_write_atomically_replaces_the_content_and_makes_the_folders(tmp_path):
    place = tmp_path / "a" / "b" / "table.md"
    write_atomically(place, b"a longer first text")
    write_atomically(place, b"short")
    assert place.read_bytes() == b"short"
    assert [path.name for path in place.parent.iterdir()] == ["table.md"]


def test_a_file_of_the_bound_is_read_and_one_byte_more_refused(tmp_path):
    place = tmp_path / "file"
    for content in (b"", b"x" * 1000):
        place.write_bytes(content)
        assert read_bounded(place, 1000) == content
    place.write_bytes(b"x" * 1001)
    with pytest.raises(OSError, match="larger than 1,000 bytes"):
        read_bounded(place, 1000)


@pytest.mark.parametrize("place", ["/proc/self/environ", "/proc/self/status"])
def test_what_is_longer_than_it_says_is_refused(place):
    with pytest.raises(OSError, match="its content has another length than its size"):
        read_bounded(place, 10**6)


def test_a_refusal_leaves_no_descriptor_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for place in (tmp_path, "/dev/zero", "/proc/self/environ"):
        with pytest.raises(OSError, match=r"regular file|size"):
            read_bounded(place, 1000)
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_is_kept_is_computed_once_for_each_key(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    made = iter([[1.0], [2.0], None, [3.0]])
    assert [kept("numbers", key, lambda: next(made)) for key in "aaba"] == [[1.0], [1.0], [2.0], [1.0]]
    assert [kept("numbers", "c", lambda: next(made)) for _ in range(2)] == [None, [3.0]]  # None is not kept
    for place in (tmp_path / "numbers").iterdir():
        place.write_text("damaged")
    assert kept("numbers", "a", lambda: [4.0]) == [4.0]
    assert kept("numbers", "a", lambda: [6.0, 7.0], lambda found: found[1]) == 7.0  # of another form than is read
    assert kept("numbers", "a", lambda: [8.0], again=True) == kept("numbers", "a", lambda: [9.0]) == [8.0]
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_text("in the place of the folder")
    assert [kept("numbers", "a", lambda: [5.0]) for _ in range(2)] == [[5.0], [5.0]]


def test_what_is_kept_is_read_without_waiting_for_another_process_that_computes(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    monkeypatch.setattr(files, "MAX_WAIT", -1)  # a lock that is held is waited for without end
    assert kept("numbers", "a", lambda: [1.0]) == [1.0]
    with FileLock(tmp_path / "numbers" / ".lock"):
        assert kept("numbers", "a", lambda: [2.0]) == [1.0]


def test_a_process_id_that_was_given_to_another_process_is_a_dead_writer():
    host, pid, started = processes.current_process().rsplit(" ", 2)
    assert not processes.has_ended(f"{host} {pid} {started}")
    assert processes.has_ended(f"{host} {pid} {float(started) - 60}")


def test_a_writer_that_is_dead_and_not_waited_for_is_gone():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    host = processes.current_process().split()[0]
    writer = f"{host} {child.pid} {time.time():.2f}"
    assert not processes.has_ended(writer)
    child.kill()
    assert wait_for(lambda: processes.has_ended(writer))
    child.communicate()


@pytest.mark.parametrize("writer", ["elsewhere 1 5.00", "no writer"])
def test_processes_of_other_hosts_and_texts_of_other_forms_count_as_running(writer):
    assert not processes.has_ended(writer)
