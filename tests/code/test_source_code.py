"""Hashes of Python source: what counts and what does not, whichever Python parses it; the modules that one imports."""

import ast
import importlib
import sys
from textwrap import dedent

import pytest

from harness.code.source_code import closure, sha256_of, sha256_of_file

SOURCE = '''\
"""A module."""

import math
from typing import Generic, TypeVar

T = TypeVar("T")


class Box(Generic[T]):
    """A class."""

    width: int = 3

    def area(self, scale: float = 1.5, *others, named: bytes = b"\\0", **more) -> float:
        """A function."""
        total = [x for x in (self.width, *others) if x > 0]  # a comment
        match more:
            case {"pi": value}:
                return value
        return math.pi * scale if named else f"{total!r:>{self.width}}{scale:.2f} é {{}}"


async def nothing():
    """Only a docstring."""


label, flag, none, far = lambda body: body, True, None, 1_000.0e3 + 2j
'''
# Of SOURCE, on every Python that the project supports: 3.11, 3.12 and 3.13 gave it.
PINNED = "5567e9ac0e232972c89151c9d469965c72e8ac07f96295ddd3997796b0d66bf0"


def digest(source: str) -> str:
    return sha256_of(ast.parse(dedent(source)))


def test_the_hash_is_the_same_under_every_supported_python():
    assert digest(SOURCE) == PINNED


@pytest.mark.guards("docstring-no-code")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  # a comment", ""),
        ('"""A module."""\n', ""),
        ('"""A class."""', '"""Another text."""'),
        ('        """A function."""\n', ""),
        ('    """Only a docstring."""', "    pass"),
        ("1_000.0e3", "1000000.0"),
        ('TypeVar("T")', "TypeVar('T',)"),
        ("(self.width, *others)", "(\n            self.width,\n            *others,\n        )"),
        ("\n\n\n", "\n"),
        ("é {{}}", "\\xe9 {{}}"),
    ],
)
def test_comments_docstrings_and_formatting_do_not_count(before, after):
    assert before in SOURCE
    assert digest(SOURCE.replace(before, after)) == digest(SOURCE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x > 0", "x >= 0"),
        ("1.5", "1.25"),
        ("scale if named", "0 * scale if named"),
        (":.2f}", ":.3f}"),
        ("width: int = 3", "width: int = 3.0"),
        ("True, None", "1, None"),
        ("named: bytes", "nomen: bytes"),
        ("import math", "import cmath as math"),
        ('b"\\0"', '"\\0"'),
        ("return value", "return"),
        ("async def", "def"),
    ],
)
def test_code_counts(before, after):
    assert before in SOURCE
    assert digest(SOURCE.replace(before, after)) != digest(SOURCE)


@pytest.mark.guards("later-python-field")
def test_a_field_that_a_later_python_adds_does_not_count_while_it_is_empty():
    tree = ast.parse("def f():\n    return 1")
    later = type("FunctionDef", (ast.FunctionDef,), {"_fields": (*ast.FunctionDef._fields, "type_params")})
    fields = dict(ast.iter_fields(tree.body[0]))
    empty, full = later(**fields | {"type_params": []}), later(**fields | {"type_params": [ast.Name("T")]})
    hashes = [sha256_of(ast.Module([body], [])) for body in (tree.body[0], empty, full)]
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.guards("empty-text-no-code")
def test_the_empty_text_that_python_3_12_puts_behind_a_nested_format_does_not_count():
    tree = ast.parse("f'{x:{width}}'")
    before = sha256_of(tree)
    tree.body[0].value.values[0].format_spec.values.append(ast.Constant(""))
    assert sha256_of(tree) == before


def test_code_of_any_depth_is_hashed():
    node = ast.Constant(1)
    for _ in range(5000):
        node = ast.UnaryOp(ast.USub(), node)
    assert sha256_of(ast.Module([ast.Expr(node)], [])) != digest("-1")


@pytest.mark.parametrize("content", [b"def (", b"x = 1\0", b"# coding: nowhere\nx = 1", b"\xff = 1"])
def test_a_file_that_is_no_python_has_no_hash(content, tmp_path):
    (tmp_path / "broken.py").write_bytes(content)
    assert sha256_of_file(tmp_path / "broken.py") is None
    assert sha256_of_file(tmp_path / "nowhere.py") is None


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A function: files -> these, importable, and forgotten after the test."""

    def write(**files):
        for name, content in files.items():
            place = tmp_path / f"{name.replace('__in__', '__init__').replace('_of_', '/')}.py"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content)
        importlib.invalidate_caches()
        return tmp_path

    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def names(module: str, *packages: str) -> list[str]:
    return [each.name for each in closure(module, packages)]


PLUG = {
    "plugged_of___in__": "import plugged.constants",
    "plugged_of_constants": "",
    "plugged_of_head": "from .maths import bend\nfrom . import constants, bend\nimport math, other\n",
    "plugged_of_maths": "def bend():\n    from plugged.deep.far import value\n    return value\n",
    "plugged_of_deep_of_far": "from ...plugged import nothing\nfrom ..constants import *\nvalue = 1",
    "plugged_of_unused": "",
    "other": "import plugged.unused",
}


@pytest.mark.guards("imports-count")
def test_the_closure_is_what_a_module_imports_of_its_packages_and_what_that_imports(packages):
    packages(**PLUG)
    assert names("plugged.head", "plugged") == [
        *("plugged", "plugged.constants", "plugged.deep.far", "plugged.head", "plugged.maths")
    ]
    assert {"other", "plugged.unused"} <= set(names("plugged.head", "plugged", "other"))
    assert names("plugged.head") == ["plugged", "plugged.head"]


def test_the_places_of_a_closure_are_named_as_a_reader_would(packages):
    packages(**PLUG)
    found = {each.name: each for each in closure("plugged.head", {"plugged"})}
    assert found["plugged.maths"].place == "plugged/maths.py"
    assert found["plugged"].place == "plugged/__init__.py"
    assert found["plugged.maths"].file.read_text() == PLUG["plugged_of_maths"]


def test_nothing_is_executed_for_a_closure(packages):
    packages(trap_of_head="import trap.worse", trap_of_worse="raise SystemExit('executed')", trap_of___in__="1 / 0")
    assert names("trap.head", "trap") == ["trap", "trap.head", "trap.worse"]
    assert "trap" not in sys.modules


def test_modules_that_import_each_other_end(packages):
    packages(round_of_a="import round.b", round_of_b="import round.a")
    assert names("round.a", "round") == ["round.a", "round.b"]


def test_a_module_without_python_source_has_no_hash(packages):
    folder = packages(bare_of_head="import bare.fast")
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    (folder / "bare" / f"fast{suffix}").write_bytes(b"\x7fELF")
    importlib.invalidate_caches()
    assert {each.name: each.sha256 is None for each in closure("bare.head", {"bare"})} == {
        "bare.head": False,
        "bare.fast": True,
    }


def test_what_cannot_be_found_is_in_no_closure():
    assert closure("nowhere.at.all", {"nowhere"}) == []


def test_what_is_imported_for_type_checkers_only_is_no_part(packages):
    checked = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import typed.shapes\nelse:\n    import typed.sizes\n"
    )
    packages(typed_of___in__="", typed_of_head=checked, typed_of_shapes="", typed_of_sizes="")
    assert names("typed.head", "typed") == ["typed", "typed.head", "typed.sizes"]
