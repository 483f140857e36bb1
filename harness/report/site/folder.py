"""Write the site into a folder of its own."""

from collections.abc import Mapping
from pathlib import Path

from harness.errors import ExecutionError
from harness.machine.files import write_atomically

MARK = ".harness-site"  # the file that says that a folder is a site, and may be replaced


def write(files: Mapping[str, bytes], out: Path) -> None:
    """Write the files of a site, and remove all that an earlier one has left.

    Args:
        out: a folder that is empty, does not exist, or is a site.
    Raises: ExecutionError when the folder holds something else; StorageError.
    """
    mark = out / MARK
    if out.exists() and not out.is_dir():
        raise ExecutionError(f"--out {out} is a file; name a folder for the site")
    if out.is_dir() and any(out.iterdir()) and not mark.is_file():
        raise ExecutionError(
            f"--out {out} holds files that are no site of ours, and would be removed; name an empty or a new folder"
        )
    write_atomically(mark, b"This folder is written by `harness site`: all that is in it may be replaced.\n")
    for name, content in files.items():
        place = out / name
        if not place.is_file() or place.read_bytes() != content:
            write_atomically(place, content)
    for place in out.rglob("*"):
        if place != mark and not place.is_dir() and place.relative_to(out).as_posix() not in files:
            place.unlink()
