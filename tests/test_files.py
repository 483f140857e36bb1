import os

import pytest

from harness.files import write_atomically


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
