"""A new head or backbone to start from: a copy of the commented file in starter_files/."""

import keyword
import re
from pathlib import Path
from string import Template
from typing import Literal

from harness.errors import ExecutionError, StorageError, UnknownComponent
from harness.registry import BACKBONES, HEADS

ComponentKind = Literal["head", "backbone"]
COMPONENT_NAME = "[a-z][a-z0-9_]{0,39}"
NO_NAMES = {"true", "false", "null"}  # YAML reads no texts
FILES = Path(__file__).parent.parent / "starter_files"


def write(kind: ComponentKind, name: str) -> Path:
    """Write a file to start from into the current folder: heads/<name>.py or backbones/<name>.py.

    Returns: its path.
    Raises: ExecutionError when the name cannot be used, or is used already; StorageError.
    """
    _refuse_name(kind, name)
    title = "".join(part.capitalize() for part in name.split("_"))
    template = Template((FILES / f"{kind}.py.txt").read_text(encoding="utf-8"))
    text = template.substitute(name=name, title=title, cls=_class_name(kind, title))
    return saved(Path(f"{kind}s") / f"{name}.py", text)


def saved(place: Path, text: str) -> Path:
    """Write a new file, and its folder if that is missing. Returns its path.

    Raises: ExecutionError if it exists already; StorageError.
    """
    if place.exists():
        raise ExecutionError(f"{place} exists already; choose another name, or remove it")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as fault:
        raise StorageError.of(place, fault) from fault
    return place


def _class_name(kind: ComponentKind, title: str) -> str:
    """'MixtureHead' for 'Mixture', which is imported by the file; 'MyHead' for 'MyHead'."""
    return title.removesuffix(kind.capitalize()) + kind.capitalize()


def _refuse_name(kind: ComponentKind, name: str) -> None:
    registry = {"head": HEADS, "backbone": BACKBONES}[kind]
    if not re.fullmatch(COMPONENT_NAME, name) or keyword.iskeyword(name) or name in NO_NAMES:
        raise ExecutionError(
            f"'{name}' cannot be the name of a {kind}: expected a name of Python in lower-case letters, digits and _, "
            "at most 40, and no word of Python or YAML"
        )
    try:
        registry.get(name)
    except UnknownComponent:
        return
    raise ExecutionError(f"there is a {kind} '{name}' already: {registry.origin(name)}; choose another name")
