"""What a file system lacks: planted in the functions of the operating system."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from harness.machine.file_systems import Lacks, lacks
from harness.machine.files import unsynced, write_atomically


@pytest.fixture
def plant(monkeypatch):
    """A function: what fails and with which error, of 'sync' (of folders), 'lock' and 'replace'."""

    def planted(what, number):
        def failing(*arguments, **named):
            raise OSError(number, os.strerror(number))

        if what == "sync":
            real = os.fsync
            monkeypatch.setattr(os, "fsync", lambda file: failing() if os.path.isdir(f"/dev/fd/{file}") else real(file))
        elif what == "replace":
            monkeypatch.setattr(Path, "replace", failing)
        elif number:
            monkeypatch.setattr(fcntl, "flock", failing)
        else:  # locks that say yes to everybody
            monkeypatch.setattr(fcntl, "flock", lambda *arguments: None)

    return planted


@pytest.mark.parametrize(
    ("what", "number", "needed", "wanted"),
    [
        ("sync", errno.EINVAL, "", "a folder cannot be synced (Invalid argument)"),
        ("sync", errno.ENOTSUP, "", "a folder cannot be synced (Operation not supported)"),
        ("lock", errno.ENOLCK, "it has no locks (No locks available)", ""),
        ("lock", errno.ENOTSUP, "it has no locks (Operation not supported)", ""),
        ("lock", 0, "its locks keep nobody out", ""),
        ("replace", errno.EEXIST, "no file can be replaced (File exists)", ""),
    ],
)
def test_what_a_file_system_lacks(plant, tmp_path, what, number, needed, wanted):
    plant(what, number)
    assert lacks(tmp_path / "not" / "there") == Lacks(needed, wanted)
    assert list(tmp_path.iterdir()) == []


def test_a_local_disk_lacks_nothing(tmp_path):
    assert lacks(tmp_path) == Lacks()


def test_a_file_is_written_where_folders_cannot_be_synced_but_a_failing_disk_is_an_error(plant, tmp_path):
    plant("sync", errno.EINVAL)
    write_atomically(tmp_path / "a", b"content")
    assert (tmp_path / "a").read_bytes() == b"content"
    plant("sync", errno.EIO)
    with pytest.raises(OSError, match=r"cannot be written \(Input/output error\)"):
        write_atomically(tmp_path / "b", b"content")


def test_files_that_end_with_the_process_wait_for_no_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with unsynced():
        write_atomically(tmp_path / "a", b"1")
    assert (synced, (tmp_path / "a").read_bytes()) == ([], b"1")
    write_atomically(tmp_path / "a", b"2")
    assert len(synced) == 2  # the file and its folder
