"""Hashes of the code of a trial's corpus, backbone and head, and which of them give the same numbers.

A hash is of the module that defines a component, and of the modules of its package (heads/, backbones/, that of a
plug-in) whose classes and functions it uses; of a class of a notebook, of its cell. Comments, docstrings, annotations
and formatting change no hash. It is of the source when it is first asked for in a process.

`known.json` lists, for each component of the package, the hashes that are known to give the same numbers on fixed
inputs. `make golden` writes it: an edit that leaves the numbers as they are outdates no record.
"""

import ast
import hashlib
import importlib
import inspect
import json
import linecache
import sys
from functools import cache
from pathlib import Path

from harness.errors import HarnessError
from harness.plan.specs import TrialSpec
from harness.records.record import UNKNOWN, Fingerprints, TrialRecord
from harness.registry import BACKBONES, CORPORA, HEADS

KINDS = {"head": HEADS, "backbone": BACKBONES, "corpus": CORPORA}
SHOWN = 12  # digits of a hash that are shown
LISTED = 16  # digits of a hash in known.json
KNOWN = Path(__file__).with_name("known.json")
NO_CODE = {"annotation", "returns", "kind", "type_comment", "type_ignores"}  # fields of a syntax tree


def of_trial(spec: TrialSpec) -> Fingerprints:
    """Return the hashes of the installed code of a trial; 'unknown' for a component that is not installed."""
    return Fingerprints(**{kind: of(kind, getattr(spec, kind).name) for kind in KINDS})


def of(kind: str, name: str) -> str:
    """Return the hash of a component, given its kind ('head', 'backbone' or 'corpus') and its name."""
    try:
        return _of_class(KINDS[kind].get(name))
    except HarnessError:
        return UNKNOWN


def changed(record: TrialRecord) -> tuple[str, ...]:
    """Return those of 'head', 'backbone' and 'corpus' whose installed code may give other numbers than a record's.

    A component whose code is unknown, in the record or in this installation, counts as unchanged.
    """
    found = []
    for kind in KINDS if record.code is not None else ():
        name = getattr(record.spec, kind).name
        of_before = record.code.harness is not None and not _listed(kind, name)  # users' were hashed otherwise then
        if not of_before and not alike(kind, name, getattr(record.code, kind), of(kind, name)):
            found.append(kind)
    return tuple(found)


def alike(kind: str, name: str, one: str, other: str) -> bool:
    """Return whether two hashes of a component give the same numbers, as far as is known."""
    listed = {one[:LISTED], other[:LISTED]} <= set(_listed(kind, name))
    return one == other or UNKNOWN in (one, other) or listed


def is_outdated(record: TrialRecord) -> bool:
    """Return whether a record has the status ok, and the code of one of its components has changed since."""
    return record.status == "ok" and bool(changed(record))


def place(kind: str, name: str) -> str:
    """'heads/mos.py': where a component is defined, for messages."""
    try:
        module = KINDS[kind].module(name)
    except HarnessError:
        return UNKNOWN
    beside = module.removeprefix("harness.") if kind != "corpus" else module  # heads/ lies beside harness/ in a clone
    return f"{beside.replace('.', '/')}.py"


def of_module(module: str) -> str:
    """Return the hash of a module and of those modules of its package that it uses."""
    importlib.import_module(module)
    return _of_texts([inspect.getsource(sys.modules[name]) for name in _modules(module)])


@cache
def _known() -> dict[str, list[str]]:
    return json.loads(KNOWN.read_text(encoding="utf-8"))


def is_listed(kind: str, name: str) -> bool:
    """Return whether a component is one of the package."""
    return bool(_listed(kind, name))


def _listed(kind: str, name: str) -> list[str]:
    return _known().get(f"{kind} {name}", [])


@cache
def _of_class(cls: type) -> str:
    if cls.__module__ == "__main__":
        methods = (each for each in vars(cls).values() if inspect.isfunction(each))
        cell = next((each.__code__.co_filename for each in methods), "")
        text = "".join(linecache.getlines(cell))
        return _of_texts([text]) if text else UNKNOWN  # the text of a prompt is not kept
    try:
        return of_module(cls.__module__)
    except (OSError, TypeError):
        return UNKNOWN  # a compiled extension


def _modules(module: str) -> list[str]:
    """A module, and those modules of its package whose modules, classes or functions it uses."""
    if module.startswith("harness.corpora."):
        return [module]
    depth = 2 if module.startswith("harness.") else 1  # harness.heads, harness.diagnostics; the package of a plug-in
    package = ".".join(module.split(".")[:depth])
    found, waiting = set(), [module]
    while waiting:
        name = waiting.pop()
        if name in found or not f"{name}.".startswith(f"{package}."):
            continue
        found.add(name)
        for value in vars(sys.modules[name]).values():
            waiting.append(value.__name__ if inspect.ismodule(value) else str(getattr(value, "__module__", "")))
    return sorted(found)


def _of_texts(texts: list[str]) -> str:
    try:
        words = [word for text in texts for word in _words(ast.parse(text))]
    except (SyntaxError, ValueError):
        return UNKNOWN  # a cell with a command of IPython
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def _words(tree: ast.Module) -> list[str]:
    """Return a syntax tree as a list of words, one for each node, field and value; no recursion, so any depth is
    possible. It is the same under every version of Python that parses a source into the same tree: fields that are None
    or empty are left out, because newer versions add fields.
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
    """A word that was added here and is not a value of the tree."""


_BEGIN, _END = _Word("["), _Word(")")


def _value(node: ast.AST, name: str) -> object:
    """Return a field of a node without what computes nothing."""
    value = getattr(node, name, None)
    if name in NO_CODE:
        return None
    if name == "body" and isinstance(value, list):
        return [each for each in value if not _is_text(each)] or [ast.Pass()] * bool(value)
    if isinstance(node, ast.JoinedStr):  # only Python 3.12 appends an empty text to the parts of f'{x:{width}}'
        return [each for each in value if not (isinstance(each, ast.Constant) and each.value == "")]
    return value


def _is_text(statement: ast.AST) -> bool:
    """Whether a statement is a string, as a docstring is; it has no effect."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
