"""Finds a piece of code by the name of its function and its text, not by its file or its lines.

Two texts are the same if their tokens are: indentation, line breaks, comments, quotes and trailing commas do not count.
So code can be moved to another module or formatted anew, and is found all the same.
"""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDERS = ("harness", "heads", "backbones", "benchmarks")  # of the checkout, in which code is looked for
LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER)
CLOSING = {")", "]", "}"}


@dataclass(frozen=True)
class Place:
    """Characters `start` to `end` of a file of the checkout."""

    file: str
    start: int
    end: int

    def replaced(self, text: str, source: str, replacement: str) -> str:
        """The file's text with `replacement` there, each line of which is indented as it is relative to `source`."""
        begin = text.rfind("\n", 0, self.start) + 1
        line = text[begin : self.start]
        before = " " * (len(line) - len(line.lstrip()) - _indentation(source))
        if not line.strip():
            new = "\n".join(before + each if each else each for each in replacement.split("\n"))
            return text[:begin] + new + text[self.end :]
        return text[: self.start] + replacement.strip().replace("\n", "\n" + before) + text[self.end :]


@dataclass(frozen=True)
class Token:
    """What counts of a token, the line it stands in, and the characters of the text that it takes."""

    content: str
    line: int
    start: int
    end: int


def find(root: Path, where: str, text: str) -> list[Place]:
    """All places below `root` at which `text` stands in what `where` names.

    Args:
        root: the checkout.
        where: a function, method, class or module-level variable: `atomically`, `Checkpoints.save`; where several have
            that name, with the module's: `files:atomically`, `machine.files:atomically`. Without a name, the module:
            `files:`. A file that is not Python: the end of its path, `page/page.html`.
        text: code, whole statements or a part of one.
    """
    if "/" in where:
        paths = [path for path in _files(root, "*") if f"/{path}".endswith(f"/{where}")]
        return [place for path in paths for place in _literal(root, path, text)]
    module, _, name = where.rpartition(":")
    wanted = [token.content for token in tokens(text)]
    found = set()
    for path in _files(root, "*.py"):
        if module and not f".{path.removesuffix('.py').replace('/', '.')}".endswith(f".{module}"):
            continue
        content = (root / path).read_text(encoding="utf-8")
        if name.rpartition(".")[2] not in content:
            continue
        for first, last in _lines(content, name):
            inside = [token for token in tokens(content) if first <= token.line <= last]
            contents = [token.content for token in inside]
            for index in range(len(inside) - len(wanted) + 1):
                if contents[index] == wanted[0] and contents[index : index + len(wanted)] == wanted:
                    found.add(Place(path, inside[index].start, inside[index + len(wanted) - 1].end))
    return sorted(found, key=lambda place: (place.file, place.start))


def name_of(root: Path, place: Place) -> str:
    """The innermost function, class or module-level variable that holds a place of a Python file, or its module."""
    content = (root / place.file).read_text(encoding="utf-8")
    first, last = (content.count("\n", 0, position) + 1 for position in (place.start, place.end))
    names = [name for name, lines in _scopes(content).items() for top, end in lines if top <= first and last <= end]
    module = place.file.removesuffix(".py").replace("/", ".")
    return f"{module}:{max(names, key=lambda name: name.count('.'), default='')}"


@cache
def tokens(text: str) -> list[Token]:
    """The tokens that count, without a comma before a closing bracket. `text` need not be complete."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: list[Token] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in LAYOUT:
                continue
            if token.string in CLOSING and found and found[-1].content == ",":
                found.pop()
            (row, column), (last_row, last_column) = token.start, token.end
            content = _same_quotes(token.string) if token.type == tokenize.STRING else token.string
            found.append(Token(content, row, starts[row - 1] + column, starts[last_row - 1] + last_column))
    except tokenize.TokenError:  # a part of a statement: the text ends within brackets
        pass
    return found


def _same_quotes(string: str) -> str:
    try:
        return repr(ast.literal_eval(string))
    except (SyntaxError, ValueError):  # an f-string
        return string


def _indentation(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _files(root: Path, pattern: str) -> list[str]:
    paths = [path for folder in FOLDERS for path in (root / folder).rglob(pattern) if path.is_file()]
    return sorted(path.relative_to(root).as_posix() for path in paths if path.suffix != ".pyc")


def _literal(root: Path, path: str, text: str) -> Iterator[Place]:
    """Where the text stands in a file that is not Python, its indentation apart."""
    content, text = (root / path).read_text(encoding="utf-8"), text.strip()
    start = content.find(text)
    while start >= 0:
        yield Place(path, start, start + len(text))
        start = content.find(text, start + 1)


@cache
def _scopes(content: str) -> dict[str, list[tuple[int, int]]]:
    """Qualified name of a function, class or module-level variable -> the first and last lines of what has the name."""
    found: dict[str, list[tuple[int, int]]] = {}

    def note(node: ast.AST, before: str) -> None:
        for child in ast.iter_child_nodes(node):
            names, inside = [], before
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names, inside = [before + child.name], f"{before}{child.name}."
            elif isinstance(child, ast.Assign | ast.AnnAssign) and not before:
                targets = child.targets if isinstance(child, ast.Assign) else [child.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            first = min([child.lineno, *(each.lineno for each in getattr(child, "decorator_list", []))]) if names else 0
            for name in names:
                found.setdefault(name, []).append((first, child.end_lineno))
            note(child, inside)

    note(ast.parse(content), "")
    return found


def _lines(content: str, name: str) -> list[tuple[int, int]]:
    return _scopes(content).get(name, []) if name else [(1, content.count("\n") + 1)]
