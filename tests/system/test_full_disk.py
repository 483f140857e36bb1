"""A disk that is full: RELIABILITY B1."""

import subprocess

import pytest
from disturbed import LSTM, Place, suite_text


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 400 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("no right to mount a file system")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("executor", ["inline", "ray"])
def test_enospc_on_a_real_disk_is_a_sentence_and_code_1_and_the_rerun_completes(executor, small_disk, tmp_path):
    backbone = LSTM.replace("d_model: 8", "d_model: 48")
    place = Place(tmp_path / "place", suite_text("softmax", "mos: {num_mixtures: 2}", backbones=backbone))
    options = ("--executor", executor, "--no-tracking", "--results", small_disk)
    place.runs = small_disk / "runs" / "tiny"
    done = place.run(*options)
    assert done.returncode == 1, done.stderr
    assert "No space left on device" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not list(place.runs.glob("*/.*.tmp"))
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    undisturbed = Place(tmp_path / "elsewhere", place.suite.read_text()).here()
    assert place.here() == undisturbed
    assert place.leftovers() == []


def test_a_disk_without_a_byte_left_is_code_1(small_disk, tmp_path):
    (small_disk / "of others").write_bytes(b"0" * 400 * 1024)
    place = Place(tmp_path / "place", suite_text("softmax"))
    done = place.run("--executor", "inline", "--no-tracking", "--results", small_disk)
    assert done.returncode == 1, done.stdout + done.stderr
