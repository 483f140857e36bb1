"""Where a suite is: a command takes the path of its file, or its name."""

import os
from pathlib import Path

from harness import bundled
from harness.errors import SuiteError, nearest
from harness.plan.reader import read

RESULTS = Path("results")  # the results folder that commands use without --results
FOLDER = Path("suites")  # in the current directory
ENDING = ".yaml"


def suite_file(given: str | Path) -> Path:
    """Return the file of a suite, given by its path, or by its name: 'quickstart' is suites/quickstart.yaml, of the
    current folder or else of those that come with the harness.

    A file comes before a name, and the name of a file before the key `name` in one.

    Raises: SuiteError, with the most similar name, when there is neither.
    """
    path = Path(given)
    if not is_name(given):
        if not os.path.lexists(path):
            raise SuiteError([f"{path}: no such file{_similar(path.stem)}"])
        return path  # that it can be read is another question (harness/plan/reader.py)
    if path.exists() and not path.is_dir():
        return path
    for folder in folders():
        if (named := folder / f"{path.name}{ENDING}").is_file():
            return named
    for folder in folders():
        if (by_key := suites_in(folder).get(path.name)) is not None:
            return by_key
    raise SuiteError(
        [f"no suite '{path}': there is no file {path} and no {FOLDER / path}{ENDING}{_similar(path.name)}"]
    )


def folders() -> list[Path]:
    """Return the folders with suites that are taken by name: ./suites, and that of the harness if it is another one."""
    ours = bundled("suites")
    return [FOLDER, *([] if FOLDER.samefile(ours) else [ours])] if FOLDER.is_dir() else [ours]


def shown(path: Path) -> str:
    """Return a suite for commands and messages: its path, or the name of one that comes with the harness and is not in
    ./suites.
    """
    by_name = path.parent == bundled("suites") in folders() and not (FOLDER / path.name).exists()
    return path.stem if by_name else str(path)


def namesake(path: Path, name: str) -> Path | None:
    """Return another suite file that is called <name>.yaml, where this one is not: both would write the same table."""
    if path.stem == name:
        return None
    named = [folder / f"{name}{ENDING}" for folder in (path.parent, *folders())]
    others = [other for other in named if other.is_file() and other.read_bytes() != path.read_bytes()]
    return others[0] if others else None


def suite_name(given: str) -> str:
    """Return the name of a suite, given by its name or by the path of its file.

    Raises: SuiteError when it is a path of a file that cannot be read.
    """
    if is_name(given):
        return given
    return _name_in(suite_file(given))


def name_of(path: Path) -> str:
    """Return the name of the suite in a file: its key `name`, else the file's name without the ending.

    A file that cannot be read as YAML keeps the file's name, so that one broken file hides no other.
    """
    try:
        return _name_in(path)
    except SuiteError:
        return path.stem


def suites_in(folder: Path) -> dict[str, Path]:
    """Return the suites of a folder: name -> file, by name.

    Of several files with one name, it is the one that is called so; if none is, the first one.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder.glob(f"*{ENDING}")):
        name = name_of(path)
        if name not in found or path.stem == name:
            found[name] = path
    return dict(sorted(found.items()))


def is_name(given: str | Path) -> bool:
    """Return whether a text is a name of a suite, and not a path: without folder and without ending."""
    path = Path(given)
    return len(path.parts) == 1 and not path.suffix


def names() -> list[str]:
    """Return the names by which suites can be given."""
    files = [path for folder in folders() for path in folder.glob(f"*{ENDING}")]
    return sorted({path.stem for path in files} | {name_of(path) for path in files})


def results_option(results: Path) -> list[str]:
    """Return the option that names the results folder in a command; nothing for the default folder."""
    return [] if results == RESULTS else ["--results", str(results)]


def _name_in(path: Path) -> str:
    """Raises: SuiteError when the file cannot be read."""
    name = read(path)[0].get("name")
    return name if isinstance(name, str) and name else path.stem


def _similar(name: str) -> str:
    hint = "`harness list suites` shows those that there are, `harness new suite NAME` writes a new one"
    return f"{nearest(name, names())}; {hint}"
