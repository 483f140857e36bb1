"""Write the site into a folder of its own."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.errors import ExecutionError
from harness.machine.files import write_atomically

MARK = ".harness-site"  # the file that says that a folder is a site, and lists its files
_ABOUT = "This folder is written by `harness site`: the files below may be replaced or removed.\n"


def write(files: Mapping[str, bytes], out: Path) -> None:
    """Write the files of a site, and remove those of an earlier one that are no longer made.

    Files that the site did not write are kept: `.git` and `CNAME` of a host of static files.
    Args:
        out: a folder that is empty, does not exist, or is a site.
    Raises: ExecutionError when the folder holds something else; StorageError.
    """
    mark = out / MARK
    if out.exists() and not out.is_dir():
        raise ExecutionError(f"--out {out} is a file; name a folder for the site")
    if out.is_dir() and any(out.iterdir()) and not mark.is_file():
        raise ExecutionError(
            f"--out {out} holds files that are no site of ours, and might be replaced; name an empty or a new folder"
        )
    before = _listed(mark)
    _list(mark, {*before, *files})  # an interrupted write leaves no file that is not listed
    for name, content in files.items():
        place = out / name
        if not place.is_file() or place.read_bytes() != content:
            write_atomically(place, content)
    for name in before - files.keys():
        place = out / name
        if place.is_file() and place.resolve().is_relative_to(out.resolve()):  # a list may be of a third party
            place.unlink()
    _list(mark, files)


def _listed(mark: Path) -> set[str]:
    return set(mark.read_text(encoding="utf-8").splitlines()[1:]) if mark.is_file() else set()


def _list(mark: Path, names: Iterable[str]) -> None:
    write_atomically(mark, "".join([_ABOUT, *(f"{name}\n" for name in sorted(names))]).encode())
