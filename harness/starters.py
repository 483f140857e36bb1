"""New suites, heads and backbones to start from: copies of the commented files in starter_files/ (`harness new`)."""

import keyword
import re
from pathlib import Path
from string import Template
from typing import Literal

from harness.errors import ExecutionError, StorageError, UnknownComponent
from harness.plan.reader import FOLDER
from harness.plan.specs import GROUND_TRUTH, LEADERBOARD, SUITE_NAME
from harness.registry import BACKBONES, HEADS

Kind = Literal["suite", "head", "backbone"]
COMPONENT_NAME = "[a-z][a-z0-9_]{0,39}"
NO_NAMES = {"true", "false", "null"}  # YAML reads no texts

FILES = Path(__file__).parent / "starter_files"


def write(kind: Kind, name: str) -> Path:
    """Write a file to start from into the current folder: suites/<name>.yaml, heads/<name>.py or backbones/<name>.py.

    Returns: its path.
    Raises: ExecutionError when the name cannot be used, or is used already; StorageError.
    """
    if kind == "suite":
        _refuse_suite_name(name)
        place, template = FOLDER / f"{name}.yaml", FILES / "suite.yaml"
    else:
        _refuse_component_name(kind, name)
        place, template = Path(f"{kind}s") / f"{name}.py", FILES / f"{kind}.py.txt"
    if place.exists():
        raise ExecutionError(f"{place} exists already; choose another name, or remove the file")
    title = "".join(part.capitalize() for part in name.split("_"))
    words = {"name": name, "title": title, "cls": _class_name(kind, title)}
    text = Template(template.read_text(encoding="utf-8")).substitute(words)
    try:
        place.parent.mkdir(exist_ok=True)
        with place.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as fault:
        raise StorageError(f"{place} cannot be written: {fault.strerror}") from fault
    return place


def _class_name(kind: Kind, title: str) -> str:
    """'MixtureHead' for 'Mixture', which is imported by the file; 'MyHead' for 'MyHead'."""
    return title.removesuffix(kind.capitalize()) + kind.capitalize()


def _refuse_suite_name(name: str) -> None:
    if not re.fullmatch(SUITE_NAME, name) or name in (LEADERBOARD, GROUND_TRUTH):
        raise ExecutionError(
            f"'{name}' cannot be the name of a suite: expected lower-case letters, digits, _ and -, at most 64, and "
            f"not {LEADERBOARD} or {GROUND_TRUTH}"
        )


def _refuse_component_name(kind: Literal["head", "backbone"], name: str) -> None:
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
