"""A suite file to plain data, with the line and column of every key and value. The only YAML in the project.

YAML 1.2 by ruamel's round-trip loader: duplicate keys are errors, 1e-3 is a number, `no` is a word. Size, depth and
node count are bounded before anything is expanded, so an alias bomb is refused, not built.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from harness.errors import SuiteError

MAX_BYTES, MAX_DEPTH, MAX_NODES = 256 * 1024, 20, 50_000
Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Source:
    """A suite file and where in it each key and value stands (1-based line, column)."""

    path: Path
    values: dict[Place, tuple[int, int]] = field(default_factory=dict)
    keys: dict[Place, tuple[int, int]] = field(default_factory=dict)
    overridden: dict[Place, str] = field(default_factory=dict)

    def problem(self, place: Place, message: str, *, at_key: bool = False) -> str:
        """'file:line:column: path.to.it: message', or '--set key=value: ...' for what the command line said."""
        for end in range(len(place), 0, -1):
            if place[:end] in self.overridden:
                return f"--set {self.overridden[place[:end]]}: {'.'.join(map(str, place))}: {message}"
        position = self.keys.get(place) if at_key else None
        for end in range(len(place), -1, -1):
            position = position or self.values.get(place[:end])
        line, column = position or (1, 1)
        name = ".".join(map(str, place))
        return f"{self.path}:{line}:{column}: {name + ': ' if name else ''}{message}"


def read(path: Path) -> tuple[dict[str, Any], Source]:
    """The file as plain dicts, lists and scalars, and where everything stands.

    Raises: SuiteError when the file cannot be read, is too large, is no YAML mapping, repeats a key, or nests or
    expands beyond the bounds.
    """
    text = _text(path)
    try:
        tree = YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = (error.problem or error.context or "cannot be parsed").splitlines()[0]
        raise SuiteError([f"{path}:{mark.line + 1}:{mark.column + 1}: {problem}"]) from None
    except (YAMLError, ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0]
        raise SuiteError([f"{path}:1:1: no valid YAML: {reason}"]) from None
    source = Source(path)
    if not isinstance(tree, CommentedMap):
        raise SuiteError([f"{path}:1:1: expected a mapping with the keys of a suite, found {_kind(tree)}"])
    source.values[()] = (1, 1)
    budget = iter(range(MAX_NODES))
    return _plain(tree, (), source, budget), source


def value_of(text: str) -> Any:
    """A value given on the command line, read as YAML: numbers, words, [lists]. Raises ValueError when it is none."""
    try:
        return _plain(YAML(typ="rt").load(text), (), Source(Path("--set")), iter(range(MAX_NODES)))
    except (YAMLError, SuiteError, RecursionError) as error:
        raise ValueError(f"cannot be read: {str(error).splitlines()[0]}") from None


def assignment(text: str) -> tuple[str, Any]:
    """'key=value' of a --set, the value read as YAML. Raises SuiteError when it is none."""
    key, equals, value = text.partition("=")
    try:
        if key and equals:
            return key, value_of(value)
        raise ValueError("expected key=value")
    except ValueError as error:
        raise SuiteError([f"--set {text}: {error}"]) from None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise SuiteError([f"{path}:1:1: larger than {MAX_BYTES // 1024} KiB; a suite is a page of YAML"])
        return content.decode("utf-8")
    except FileNotFoundError:
        raise SuiteError([f"{path}: no such file"]) from None
    except (OSError, UnicodeDecodeError) as cause:
        raise SuiteError([f"{path}: cannot be read as UTF-8 text ({cause})"]) from None


def _plain(node: Any, place: Place, source: Source, budget: Iterator[int]) -> Any:
    if next(budget, None) is None:
        raise SuiteError([source.problem(place, f"expands to more than {MAX_NODES} values")])
    if len(place) > MAX_DEPTH:
        raise SuiteError([source.problem(place, f"nested more than {MAX_DEPTH} deep")])
    if isinstance(node, CommentedMap):
        plain = {}
        for key, child in node.items():
            if not isinstance(key, str):
                raise SuiteError([source.problem(place, f"keys must be words, got {key!r}")])
            source.keys[(*place, key)] = _position(node.lc.data.get(key), 0)
            source.values[(*place, key)] = _position(node.lc.data.get(key), 2)
            plain[str(key)] = _plain(child, (*place, str(key)), source, budget)
        return plain
    if isinstance(node, CommentedSeq):
        for index in range(len(node)):
            source.values[(*place, index)] = _position(node.lc.data.get(index) if node.lc.data else None, 0)
        return [_plain(child, (*place, index), source, budget) for index, child in enumerate(node)]
    return _scalar(node)


def _scalar(node: Any) -> Any:
    """ruamel's own number and string classes to Python's."""
    if node is None or isinstance(node, bool):
        return node
    for kind in (int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node.isoformat() if isinstance(node, date) else str(node)


def _position(marks: list[int] | None, offset: int) -> tuple[int, int] | None:
    return (marks[offset] + 1, marks[offset + 1] + 1) if marks and len(marks) > offset + 1 else None


def _kind(tree: Any) -> str:
    return "nothing" if tree is None else "a list" if isinstance(tree, list) else "a single value"
