"""Hashes of Python source that change with the code and with nothing else, and the modules that a module imports.

Comments, docstrings and formatting do not count: a source is parsed, and its tree is hashed without positions, in a
form that is the same under every Python that parses it alike (3.11, 3.12 and 3.13 were compared). Modules are found and
read as the import system would find them, but nothing is executed. Standard library only.
"""

import ast
import hashlib
import importlib.util
import pkgutil
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path

FORMATTING = {"kind", "type_comment", "type_ignores"}  # fields of a tree that say how something is written
UNREADABLE = (ImportError, OSError, SyntaxError, ValueError, RecursionError)  # of a source that is none


@dataclass(frozen=True, slots=True)
class Module:
    """A module and the hash of its code.

    Args:
        place: its file as a reader would name it: 'heads/mos.py'.
        sha256: None where there is no Python source to read, as of a compiled extension.
        file: None where it is none, as within a zip file.
    """

    name: str
    place: str
    sha256: str | None
    file: Path | None


def sha256_of(tree: ast.Module) -> str:
    """64 hexadecimal digits of a parsed source: equal for sources that differ in comments, docstrings and formatting
    only. Every statement that is just a text counts as a docstring: it does nothing.
    """
    return hashlib.sha256("\n".join(_words(tree)).encode()).hexdigest()


def sha256_of_file(file: Path) -> str | None:
    """The same of a file; None where it cannot be read or is no Python."""
    try:
        return sha256_of(ast.parse(file.read_bytes()))
    except UNREADABLE:
        return None


def closure(module: str, packages: Collection[str]) -> list[Module]:
    """A module, what it imports of some top-level packages, what these import of them, and so on; sorted by name.

    Importing a module runs the `__init__.py` of every package around it, so these belong to it. Imports within
    functions count. What is imported under a name that is only known when the code runs (importlib.import_module) is
    not found.
    """
    waiting, found = {module, *_parents(module)}, {}
    while waiting:
        name = waiting.pop()
        spec = _spec(name)
        if spec is None or spec.loader is None:  # a name within a module; a folder without a file
            continue
        tree = _tree(spec)
        found[name] = Module(name, _place(spec), None if tree is None else sha256_of(tree), _file(spec))
        imported = set(_imports(tree, spec)) if tree is not None and packages else set()
        waiting |= {each for each in imported if each.partition(".")[0] in packages} - found.keys()
    return [found[name] for name in sorted(found)]


def _words(tree: ast.Module) -> list[str]:
    """A tree as words, one for each node, field and value; without recursion, so any depth will do.

    A field that is None or empty is left out: versions of Python have new ones (type_params in 3.12).
    """
    words, waiting = [], [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, _Word):
            words.append(item)
        elif isinstance(item, ast.AST):
            words.append(f"({type(item).__name__}")
            waiting.append(_END)
            for name in reversed(item._fields):
                value = _value(item, name)
                if value is not None and value != []:
                    waiting += (value, _Word(name))
        elif isinstance(item, list):
            waiting += (_END, *reversed(item), _BEGIN)
        else:
            words.append(ascii(item))
    return words


class _Word(str):
    """A word of ours among the values of a tree."""


_BEGIN, _END = _Word("["), _Word(")")


def _value(node: ast.AST, name: str) -> object:
    """A field of a node without what says how the source is written."""
    value = getattr(node, name, None)
    if name in FORMATTING:
        return None
    if name == "body" and isinstance(value, list):
        return [each for each in value if not _is_text(each)] or [ast.Pass()] * bool(value)
    if isinstance(node, ast.JoinedStr):
        return [each for each in value if not _is_empty(each)]
    return value


def _is_text(statement: ast.AST) -> bool:
    """'"A docstring."'"""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _is_empty(value: ast.expr) -> bool:
    """What Python 3.12 puts behind f'{x:{width}}', and others do not."""
    return isinstance(value, ast.Constant) and value.value == ""


def _imports(tree: ast.Module, spec: ModuleSpec) -> Iterator[str]:
    """Every dotted name that a source may import, with the packages around it: of `from a import b` a and a.b."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = _absolute(node, spec)
            names = [origin, *(f"{origin}.{alias.name}" for alias in node.names)] if origin else []
        for name in names:
            yield from (name, *_parents(name))


def _absolute(node: ast.ImportFrom, spec: ModuleSpec) -> str | None:
    """Where a 'from' imports from; None where its dots lead out of the package."""
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), spec.parent or None)
    except ImportError:
        return None


def _parents(name: str) -> list[str]:
    """'a.b.c' -> ['a', 'a.b']."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _spec(name: str) -> ModuleSpec | None:
    """Where a module lies, as importlib.util.find_spec says, which would import the packages around it."""
    loaded, (parent, _, _) = sys.modules.get(name), name.rpartition(".")
    if getattr(loaded, "__spec__", None) is not None:
        return loaded.__spec__
    if parent:
        around = _spec(parent)
        return None if around is None else _within(name, around.submodule_search_locations or ())
    specs = (finder.find_spec(name, None) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next((spec for spec in specs if spec is not None), None)


def _within(name: str, folders: Iterable[str]) -> ModuleSpec | None:
    """A module in one of the folders of the package around it; one of folders alone where it is a folder without
    `__init__.py`.
    """
    bare = ModuleSpec(name, None, is_package=True)
    for importer in map(pkgutil.get_importer, folders):
        spec = importer.find_spec(name) if importer is not None else None
        if spec is not None and spec.loader is not None:
            return spec
        bare.submodule_search_locations += (spec.submodule_search_locations or ()) if spec is not None else ()
    return bare if bare.submodule_search_locations else None


def _tree(spec: ModuleSpec) -> ast.Module | None:
    """A module's source, parsed; None where it is not Python, or cannot be read."""
    try:
        source = spec.loader.get_source(spec.name) if hasattr(spec.loader, "get_source") else None
        return None if source is None else ast.parse(source)
    except UNREADABLE:
        return None


def _place(spec: ModuleSpec) -> str:
    """'heads/mos.py'; 'heads/__init__.py' of a package."""
    own = "/__init__" if spec.submodule_search_locations is not None else ""
    return f"{spec.name.replace('.', '/')}{own}.py"


def _file(spec: ModuleSpec) -> Path | None:
    place = Path(spec.origin) if spec.has_location and spec.origin else None
    return place if place is not None and place.is_file() else None
