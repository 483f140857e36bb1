"""Where a suite is: a command takes the path of its file, or its name."""

import os
from pathlib import Path

from harness.errors import SuiteError
from harness.plan.reader import read
from harness.registry import nearest

FOLDER = Path("suites")  # in the current directory
ENDING = ".yaml"


def suite_file(given: str | Path) -> Path:
    """Return the file of a suite, given by its path, or by its name: 'quickstart' is suites/quickstart.yaml.

    A file comes before a name.

    Raises: SuiteError, with the most similar name, when there is neither.
    """
    path = Path(given)
    if not is_name(given):
        if not os.path.lexists(path):
            raise SuiteError([f"{path}: no such file{_similar(path.stem)}"])
        return path  # that it can be read is another question (harness/plan/reader.py)
    if path.exists() and not path.is_dir():
        return path
    named = FOLDER / f"{path.name}{ENDING}"
    if not named.is_file():
        raise SuiteError([f"no suite '{path}': there is no file {path} and no {named}{_similar(path.name)}"])
    return named


def suite_name(given: str) -> str:
    """Return the name of a suite, given by its name or by the path of its file.

    Raises: SuiteError when it is a path of a file that cannot be read.
    """
    if is_name(given):
        return given
    path = suite_file(given)
    data, _ = read(path)
    return str(data.get("name") or path.stem)


def is_name(given: str | Path) -> bool:
    """Return whether a text is a name of a suite, and not a path: without folder and without ending."""
    path = Path(given)
    return len(path.parts) == 1 and not path.suffix


def names() -> list[str]:
    """Return the names by which the suites in ./suites can be given."""
    return sorted(path.stem for path in FOLDER.glob(f"*{ENDING}"))


def _similar(name: str) -> str:
    return nearest(name, names())
