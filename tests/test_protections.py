"""The list of protections fits the code: what it would take away is there, and so are the tests that would notice."""

import ast
from functools import cache

import protections
import pytest
from protections import LIST, ROOT, Protection

ENTRIES = protections.read(LIST.read_text(encoding="utf-8"))


@cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry.name for entry in ENTRIES])
def test_what_is_taken_away_is_there_once_and_its_tests_too(entry):
    assert (ROOT / entry.file).read_text(encoding="utf-8").count(entry.source) == 1
    assert entry.source != entry.replacement
    assert entry.tests
    for test in entry.tests:
        file, _, name = test.partition("::")
        assert not name or name.partition("[")[0] in functions_of(file), test


def test_every_entry_has_a_name_of_its_own():
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES) > 100


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("assert value == 1", "noticed"),
        ("pass", "survived"),
        ("import nowhere", "noticed"),
        (r"assert value == 1, 'caf\udce9'", "noticed"),  # which pytest prints as no UTF-8
    ],
    ids=["noticed", "survived", "raises", "odd bytes"],
)
def test_a_protection_is_noticed_or_survives_and_is_put_back(body, verdict, tmp_path):
    (tmp_path / "guarded.py").write_text("value = 1\n")
    (tmp_path / "test_it.py").write_text(f"from guarded import value\n\ndef test_it():\n    {body}\n")
    entry = Protection("guard", "guarded.py", "value = 1", "value = 2", ("test_it.py",))
    assert protections.outcome(entry, tmp_path)[0] == verdict
    assert (tmp_path / "guarded.py").read_text() == "value = 1\n"


def test_tests_that_cannot_be_collected_are_no_verdict(tmp_path):
    (tmp_path / "guarded.py").write_text("value = 1\n")
    entry = Protection("guard", "guarded.py", "value = 1", "value = 2", ("test_nowhere.py",))
    assert protections.outcome(entry, tmp_path)[0] == "no verdict (pytest's exit code 4)"
