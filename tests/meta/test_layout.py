"""No test replaces a module by one that it makes up, and modules that tests import have names of their own."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SOURCES = sorted(TESTS.rglob("*.py"))
MUTATES = TESTS / "meta" / "mutants.py"  # puts a mutated module in the place of the original, which is its purpose


def made_up(source: str) -> list[int]:
    """The lines that put something else than None into sys.modules."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign):
            put = [(target.value, node.value) for target in node.targets if isinstance(target, ast.Subscript)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".setitem") and len(node.args) == 3:
            put = [(node.args[0], node.args[2])]
        else:
            continue
        lines += [node.lineno for where, value in put if "sys.modules" in ast.unparse(where) and not _none(value)]
    return lines


def _none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def test_no_test_makes_a_module_up():
    found = {str(path): made_up(path.read_text(encoding="utf-8")) for path in SOURCES if path != MUTATES}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("sys.modules['mlflow'] = fake", [1]),
        ("\nmodule = sys.modules['a'] = new('a')", [2]),
        ("monkeypatch.setitem(sys.modules, 'ray', SimpleNamespace())", [1]),
        ("monkeypatch.setitem(sys.modules, 'ray', None)", []),
        ("sys.modules['ray'] = None", []),
        ("monkeypatch.setitem(HEADS._classes, 'a', A)", []),
    ],
)
def test_a_module_that_is_made_up_is_found(source, lines):
    assert made_up(source) == lines


def test_no_two_helper_modules_have_one_name():
    names = [path.stem for folder in ("support", "meta") for path in (TESTS / folder).glob("*.py")]
    assert sorted(set(names)) == sorted(names)
