"""Hashes of Python source that change only when the code changes, and the modules that a module imports.

Comments, docstrings and formatting do not count: a source is parsed, and its syntax tree is hashed without positions.
The hash is the same under every version of Python that parses the source into the same tree (compared for 3.11, 3.12
and 3.13). Modules are found in the same way as by the import system, but no code is executed. Uses the standard library
only.
"""

import ast
import hashlib
import importlib.util
import inspect
import linecache
import pkgutil
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path

# The packages of components. Names in them are hashed without "harness.", so that their place in it may change.
COMPONENT_PACKAGES = ("harness.heads", "harness.backbones")
FORMATTING = {"kind", "type_comment", "type_ignores"}  # fields of a syntax tree that describe formatting
# errors for a file that is not Python source
UNREADABLE = (ImportError, OSError, SyntaxError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class Module:
    """A module and the hash of its code.

    Args:
        place: its file, for messages: 'heads/mos.py'.
        sha256: None if there is no Python source to read, as for a compiled extension.
        file: its path; None if it is not a file of its own, as within a zip file.
    """

    name: str
    place: str
    sha256: str | None
    file: Path | None


def sha256_of(tree: ast.Module) -> str:
    """Return the SHA-256, 64 hexadecimal digits, of a parsed source.

    It is equal for sources that differ only in comments, docstrings and formatting. Every statement that consists of a
    string only is treated as a docstring, because it has no effect.
    """
    return hashlib.sha256("\n".join(_words(tree)).encode()).hexdigest()


def sha256_of_file(file: Path) -> str | None:
    """Return the same for a file; None if it cannot be read or is not Python."""
    try:
        return sha256_of(ast.parse(file.read_bytes()))
    except UNREADABLE:
        return None


def sha256_of_class(cls: type) -> str | None:
    """Return the same for what defines a class of a session: the cell of a notebook, or the script; None if its text is
    not kept, as for a prompt.
    """
    methods = (each for each in vars(cls).values() if inspect.isfunction(each))
    file = next((method.__code__.co_filename for method in methods), "")
    lines = linecache.getlines(file)
    try:
        return sha256_of(ast.parse("".join(lines))) if lines else None
    except UNREADABLE:
        return None  # a cell with a command of IPython


def closure(module: str, packages: Collection[str]) -> list[Module]:
    """Return a module and all modules that it imports from some packages, directly or through others.

    Importing a module also runs the `__init__.py` of every package that contains it, so these are included. Imports
    within functions count. A module that is imported under a name that is computed at run time
    (importlib.import_module) is not found.

    Args:
        packages: their full names: 'plug', 'harness.heads'.
    Returns: the modules, sorted by name.
    """
    waiting, found = {module, *_parents(module)}, {}
    while waiting:
        name = waiting.pop()
        spec = _spec(name)
        if spec is None or spec.loader is None:  # a name within a module, or a folder without __init__.py
            continue
        tree = _tree(spec)
        found[name] = Module(name, _place(spec), None if tree is None else sha256_of(tree), _file(spec))
        imported = set(_imports(tree, spec)) if tree is not None and packages else set()
        waiting |= {each for each in imported if is_within(each, packages)} - found.keys()  # guard: imports-count
    return [found[name] for name in sorted(found)]


def is_within(module: str, packages: Collection[str]) -> bool:
    """Return whether a module is one of some packages or lies in one."""
    return any(name in packages for name in (module, *_parents(module)))


def hashed_name(module: str) -> str:
    """Return the name that is hashed for a module: 'heads.mos' for 'harness.heads.mos'."""
    return module.removeprefix("harness.") if is_within(module, COMPONENT_PACKAGES) else module


def _words(tree: ast.Module) -> list[str]:
    """Return a syntax tree as a list of words, one for each node, field and value. No recursion, so any depth is
    possible.

    A field that is None or empty is left out, because newer versions of Python add fields (type_params in 3.12).
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
                if value is not None and value != []:  # guard: later-python-field always
                    waiting += (value, _Word(name))
        elif isinstance(item, list):
            waiting += (_END, *reversed(item), _BEGIN)
        else:
            words.append(ascii(item))
    return words


class _Word(str):
    """A word that was added here and is not a value of the tree."""


_BEGIN, _END = _Word("["), _Word(")")


def _value(node: ast.AST, name: str) -> object:
    """Return a field of a node without the parts that describe formatting."""
    value = getattr(node, name, None)
    if name in FORMATTING:
        return None
    if (isinstance(node, ast.ImportFrom) and name == "module") or (isinstance(node, ast.alias) and name == "name"):
        return None if value is None else hashed_name(value)
    if name == "body" and isinstance(value, list):
        # guard: docstring-no-code -> return value
        return [each for each in value if not _is_text(each)] or [ast.Pass()] * bool(value)
    if isinstance(node, ast.JoinedStr):
        return [each for each in value if not _is_empty(each)]  # guard: empty-text-no-code -> return value
    return value


def _is_text(statement: ast.AST) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _is_empty(value: ast.expr) -> bool:
    """Return whether a value is the empty string that only Python 3.12 appends to the parts of f'{x:{width}}'."""
    return isinstance(value, ast.Constant) and value.value == ""


def _imports(tree: ast.Module, spec: ModuleSpec) -> Iterator[str]:
    """Yield every dotted name that a source may import, with the packages around it: a and a.b for `from a import
    b`. What is imported for type checkers only, under `if TYPE_CHECKING:`, is left out.
    """
    for node in _nodes(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = _absolute(node, spec)
            names = [origin, *(f"{origin}.{alias.name}" for alias in node.names)] if origin else []
        for name in names:
            yield from (name, *_parents(name))


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree without the bodies of `if TYPE_CHECKING:`."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)


def _absolute(node: ast.ImportFrom, spec: ModuleSpec) -> str | None:
    """Return the module that a 'from' statement imports from; None if its dots lead out of the package."""
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), spec.parent or None)
    except ImportError:
        return None


def _parents(name: str) -> list[str]:
    """'a.b.c' -> ['a', 'a.b']."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _spec(name: str) -> ModuleSpec | None:
    """Return the spec of a module like importlib.util.find_spec, but without importing the packages around it."""
    loaded, (parent, _, _) = sys.modules.get(name), name.rpartition(".")
    if getattr(loaded, "__spec__", None) is not None:
        return loaded.__spec__
    if parent:
        around = _spec(parent)
        return None if around is None else _within(name, around.submodule_search_locations or ())
    specs = (finder.find_spec(name, None) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next((spec for spec in specs if spec is not None), None)


def _within(name: str, folders: Iterable[str]) -> ModuleSpec | None:
    """Return the spec of a module in one of the folders of its package; for a folder without `__init__.py`, a spec of
    folders only.
    """
    bare = ModuleSpec(name, None, is_package=True)
    for importer in map(pkgutil.get_importer, folders):
        spec = importer.find_spec(name) if importer is not None else None
        if spec is not None and spec.loader is not None:
            return spec
        bare.submodule_search_locations += (spec.submodule_search_locations or ()) if spec is not None else ()
    return bare if bare.submodule_search_locations else None


def _tree(spec: ModuleSpec) -> ast.Module | None:
    try:
        source = spec.loader.get_source(spec.name) if hasattr(spec.loader, "get_source") else None
        return None if source is None else ast.parse(source)
    except UNREADABLE:
        return None


def _place(spec: ModuleSpec) -> str:
    """Return the file for messages: 'heads/mos.py', or 'heads/__init__.py' for a package."""
    own = "/__init__" if spec.submodule_search_locations is not None else ""
    return f"{hashed_name(spec.name).replace('.', '/')}{own}.py"


def _file(spec: ModuleSpec) -> Path | None:
    place = Path(spec.origin) if spec.has_location and spec.origin else None
    return place if place is not None and place.is_file() else None
