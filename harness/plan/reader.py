"""Find a suite by its path or name, and read its file as plain data with the line and column of every key and value.

It is the only YAML in the project. The format is YAML 1.2, read by ruamel's round-trip loader: duplicate keys are
errors, 1e-3 is a number, `no` is a string, and tags construct no objects. Size, depth and the number of values are
limited while the text is read. Aliases are counted before they are expanded, so neither a large file nor nested aliases
can use much time or memory.
"""

import errno
import os
import re
from dataclasses import dataclass, field
from datetime import date
from itertools import takewhile
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node
from ruamel.yaml.scalarbool import ScalarBoolean

from harness import bundled
from harness.errors import SuiteError, nearest
from harness.extensions import is_there
from harness.machine.files import read_bounded

MAX_BYTES, MAX_DEPTH, MAX_NODES, MAX_KEYS = 256 * 1024, 20, 12_000, 200
Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Source:
    """A suite file, and the position (line and column, from 1) of each of its keys and values."""

    path: Path
    values: dict[Place, tuple[int, int]] = field(default_factory=dict)
    keys: dict[Place, tuple[int, int]] = field(default_factory=dict)
    overridden: dict[Place, str] = field(default_factory=dict)

    def problem(self, place: Place, message: str, *, at_key: bool = False) -> str:
        """Return 'file:line:column: path.to.key: message', or '--set key=value: ...'."""
        name = ".".join(map(str, place))
        override = self._overridden(place)
        if override is not None:
            return f"--set {override}: {name}: {message}"
        line, column = self.position(place, at_key=at_key)
        below = [text for set_, text in self.overridden.items() if place and set_[: len(place)] == place]
        cause = f" (with --set {below[0]})" if below else ""
        return f"{self.path}:{line}:{column}: {name + ': ' if name else ''}{message}{cause}"

    def position(self, place: Place, *, at_key: bool = False) -> tuple[int, int]:
        """Return line and column of a place, or of what contains it; (0, 0) of one that --set gave."""
        if self._overridden(place) is not None:
            return 0, 0
        found = self.keys.get(place) if at_key else None
        for end in range(len(place), -1, -1):
            found = found or self.values.get(place[:end])
        return found or (1, 1)

    def nearest_place(self, place: Place) -> Place:
        """Return the longest beginning of a place that exists in the file or a --set.

        The places in pydantic's errors may end with names of its schema, which are not keys.
        """
        made = {set_[:end] for set_ in self.overridden for end in range(1, len(set_) + 1)}
        while place and place not in self.values and place not in made:
            place = place[:-1]
        return place

    def _overridden(self, place: Place) -> str | None:
        """Return the --set of a place, of a part of it or of what contains it; None if there is none."""
        for end in range(len(place), 0, -1):
            if place[:end] in self.overridden:
                return self.overridden[place[:end]]
        below = (text for set_, text in self.overridden.items() if set_[: len(place)] == place)
        return next(below, None) if place and place not in self.values else None


class Problems:
    """What is wrong with a suite, collected so that one error shows all of it."""

    def __init__(self, source: Source):
        self.source = source
        self._positions: dict[str, tuple[int, int]] = {}  # a dict, since two checks may find the same

    def __len__(self) -> int:
        return len(self._positions)

    def add(self, place: Place, message: str, *, at_key: bool = False) -> None:
        problem = self.source.problem(place, message, at_key=at_key)
        self._positions[problem] = self.source.position(place, at_key=at_key)

    def update(self, others: "Problems") -> None:
        self._positions |= others._positions

    def raise_if_any(self, *, in_file_order: bool = False) -> None:
        """Raises: SuiteError with every problem, as they were found, or by line with --set first."""
        found = list(self._positions)
        if in_file_order:
            found.sort(key=self._positions.get)
        if found:
            raise SuiteError(found)


def read(path: Path) -> tuple[dict[str, Any], Source]:
    """Return the file as dicts, lists and scalars, and the positions of its keys and values.

    Raises: SuiteError when the file cannot be read, is too large, is not a YAML mapping, has a key twice, or exceeds
    the limits of depth and number of values.
    """
    text = _text(path)
    try:
        tree = _parser().load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise SuiteError([f"{path}:{mark.line + 1}:{mark.column + 1}: {_problem(error)}"]) from None
    except Exception as error:  # the parser may fail in any way on an arbitrary file
        raise SuiteError([f"{path}:1:1: not valid YAML: {str(error).partition(chr(10))[0]}"]) from None
    source = Source(path)
    if not isinstance(tree, CommentedMap):
        raise SuiteError([f"{path}:1:1: expected a mapping with the keys of a suite, found {_kind(tree)}"])
    source.values[()] = (1, 1)
    return _plain(tree, (), source), source


def value_of(text: str) -> Any:
    """Return a value of the command line, read as YAML: a number, string or [list].

    Raises ValueError if it is invalid.
    """
    try:
        return _plain(_parser().load(text), (), Source(Path("value")))
    except MarkedYAMLError as error:
        raise ValueError(f"'{text}' cannot be read: {_problem(error)}") from None
    except Exception as error:  # as in read()
        raise ValueError(f"'{text}' cannot be read: {str(error).partition(chr(10))[0]}") from None


def _problem(error: MarkedYAMLError) -> str:
    """What is wrong with a YAML text, and where the bracket or quote was opened that is not closed."""
    problem = (error.problem or error.context or "cannot be parsed").splitlines()[0]
    problem += "; indent with spaces" if r"'\t'" in problem else ""
    context, opened = error.context or "", error.context_mark
    kind = "bracket" if "flow" in context else "quote" if "quoted" in context else ""
    if not kind or opened is None:
        return problem
    return f"{problem}; the {kind} that opens in line {opened.line + 1}, column {opened.column + 1} is not closed"


def assignment(text: str) -> tuple[str, Any]:
    """Split 'key=value' of a --set, and read the value as YAML. Raises SuiteError if it is invalid."""
    key, equals, value = text.partition("=")
    try:
        if key and equals:
            return key, value_of(value)
        raise ValueError("expected key=value")
    except ValueError as error:
        raise SuiteError([f"--set {text}: {error}"]) from None


def _text(path: Path) -> str:
    try:
        return read_bounded(path, MAX_BYTES).decode("utf-8")
    except FileNotFoundError:
        raise SuiteError([f"{path}: no such file"]) from None
    except UnicodeDecodeError as cause:
        raise SuiteError([f"{path}: cannot be read as UTF-8 text (byte {cause.start + 1}); save it as UTF-8"]) from None
    except OSError as cause:
        if cause.errno == errno.EFBIG:
            raise SuiteError([f"{path}:1:1: larger than {MAX_BYTES // 1024} KiB, the limit for a suite file"]) from None
        raise SuiteError([f"{path}: cannot be read as UTF-8 text ({cause.strerror})"]) from None


class _BoundedComposer(Composer):
    """Stops at too many values or levels, and counts what aliases stand for before they are expanded."""

    count = 0

    def compose_document(self) -> Node:
        start = self.parser.peek_event()
        if start.version not in (None, (1, 2)):
            raise _refused("YAML 1.2 is expected, in which 'no' is a string and 010 is ten", start.start_mark)
        return super().compose_document()

    def compose_node(self, parent: Any, index: Any) -> Node:
        self.count += 1
        mark = self.parser.peek_event().start_mark
        if self.count > MAX_NODES:
            raise _refused(f"the file has more than {MAX_NODES} values", mark)
        if self.depth > MAX_DEPTH + 1:
            raise _refused(f"nested more than {MAX_DEPTH} deep", mark)
        return super().compose_node(parent, index)

    def get_single_node(self) -> Node | None:
        self.warn_double_anchors = False  # an anchor that is defined twice has the last value, by YAML 1.2
        root = super().get_single_node()
        _refuse_bombs(root)
        return root


def _parser() -> YAML:
    yaml = YAML(typ="rt")
    yaml.Composer = _BoundedComposer
    return yaml


def _refused(problem: str, mark: Any) -> MarkedYAMLError:
    return MarkedYAMLError(problem=problem, problem_mark=mark)


def _refuse_bombs(root: Node | None) -> None:
    """Count the values that aliases would expand to. Raises an error for too many, too deep, or recursive ones."""
    todo, count = [(root, 0, frozenset())], 0
    while todo:
        node, depth, ancestors = todo.pop()
        count += 1
        if node is None or not isinstance(node.value, list):
            continue
        if id(node) in ancestors:
            raise _refused("an alias that contains itself", node.start_mark)
        if depth > MAX_DEPTH:
            raise _refused(f"nested more than {MAX_DEPTH} deep", node.start_mark)
        if count > MAX_NODES:
            raise _refused(f"expands to more than {MAX_NODES} values", node.start_mark)
        if isinstance(node, MappingNode) and len(node.value) > MAX_KEYS:
            raise _refused(f"a mapping of more than {MAX_KEYS} keys", node.start_mark)
        children = [part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,))]
        todo += [(child, depth + 1, ancestors | {id(node)}) for child in children]


def _plain(node: Any, place: Place, source: Source) -> Any:
    if isinstance(node, CommentedMap):
        plain = {}
        for key, child in node.items():
            if not isinstance(key, str):
                raise SuiteError([source.problem(place, f"keys must be strings, got {key!r}")])
            marks = (node.lc.data or {}).get(key)
            source.keys[(*place, key)] = _position(marks, 0)
            source.values[(*place, key)] = _position(marks, 2)
            plain[str(key)] = _plain(child, (*place, str(key)), source)
        return plain
    if isinstance(node, CommentedSeq):
        for index in range(len(node)):
            source.values[(*place, index)] = _position((node.lc.data or {}).get(index), 0)
        return [_plain(child, (*place, index), source) for index, child in enumerate(node)]
    return _scalar(node, place, source)


def _scalar(node: Any, place: Place, source: Source) -> Any:
    """Convert ruamel's number and string classes to Python's."""
    if node is None or isinstance(node, bool | ScalarBoolean):
        return node if node is None else bool(node)
    if isinstance(node, int) and abs(node) >= 2**64:
        raise SuiteError([source.problem(place, "a number of more than 64 bits")])
    for kind in (int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node.isoformat() if isinstance(node, date) else str(node)


def _position(marks: list[int] | None, offset: int) -> tuple[int, int] | None:
    return (marks[offset] + 1, marks[offset + 1] + 1) if marks and len(marks) > offset + 1 else None


def _kind(tree: Any) -> str:
    return "nothing" if tree is None else "a list" if isinstance(tree, list) else "a single value"


RESULTS = Path("results")  # the results folder that commands use without --results
FOLDER = Path("suites")  # in the current directory
ENDING = ".yaml"
BRIEF = "In brief:"  # begins the line of a comment that says in half a line what a suite is


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
    """Return how commands name a suite: its path; its name if it comes with the harness and not from ./suites."""
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


def introduction(path: Path) -> tuple[str, str, float | None, str]:
    """Return what a suite file says of itself without being read as a suite: the first sentence of the comment at its
    top, what the comment says after 'Cost:', its `core_minutes`, and its line 'In brief:'; '' and None for what it does
    not say.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        content = file.read(MAX_BYTES)
    comment = takewhile(lambda line: line.startswith("#"), content.split("\n"))
    lines = [line.removeprefix("#").strip() for line in comment if "yaml-language-server" not in line]
    brief = next((line for line in lines if line.startswith(BRIEF)), "")
    text = " ".join(line for line in lines if not line.startswith(BRIEF))
    first = re.match(r".*?(?:(?<!et al)(?=\.(?: |$))|\?(?= |$))", text)
    cost = re.search(r"\bCost: (.*?)( Command: |$)", text)
    minutes = re.search(r"^core_minutes: *([\d.]+)", content, re.MULTILINE)
    about, costs = first[0] if first else text, cost[1] if cost else ""
    return about, costs, float(minutes[1]) if minutes else None, brief.removeprefix(BRIEF).strip()


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
    hint = "`harness list suites` shows those that there are"
    hint += ", `harness new suite NAME` writes a new one" if is_there("harness.starters") else ""
    similar = nearest(name, names())
    return f"{similar} {hint}" if similar else f"; {hint}"
