"""Files: written whole or not at all, read only where they are files and no larger than expected."""

import os

import pytest

from harness.machine.files import kept, read_bounded, write_atomically


@pytest.mark.guards("failed-write-removed")
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


@pytest.mark.guards("file-size")
def test_a_file_of_the_bound_is_read_and_one_byte_more_refused(tmp_path):
    place = tmp_path / "file"
    for content in (b"", b"x" * 1000):
        place.write_bytes(content)
        assert read_bounded(place, 1000) == content
    place.write_bytes(b"x" * 1001)
    with pytest.raises(OSError, match="larger than 1,000 bytes"):
        read_bounded(place, 1000)


@pytest.mark.guards("file-as-long-as-it-says")
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
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_text("in the place of the folder")
    assert [kept("numbers", "a", lambda: [5.0]) for _ in range(2)] == [[5.0], [5.0]]
