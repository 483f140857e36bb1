"""Sentences of exceptions that several modules raise."""

import errno
import os
from pathlib import Path

import pytest

from harness.errors import StorageError


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free some space on its disk, or name another folder; then run the command again"),
        (errno.EROFS, "allow yourself to write there, or name another folder"),
        (errno.ENOTDIR, "move away the file that stands where its folder should be"),
        (errno.EIO, "name another folder, on a local disk"),
    ],
)
def test_what_cannot_be_written_says_what_to_do(number, remedy):
    reason = os.strerror(number)
    said = str(StorageError.of(Path("runs/record.json"), OSError(number, reason)))
    assert said == f"runs/record.json cannot be written ({reason}); {remedy}"
