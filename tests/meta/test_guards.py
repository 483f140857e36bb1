"""The markers of guards and the marks of tests fit each other, and each fault of a marker is one."""

import ast

import guards
import pytest
from guards import ROOT, Guard

MARKED = guards.guards(ROOT)


def test_every_guard_has_a_test_and_every_mark_a_guard():
    names = [each.name for each in MARKED]
    assert len(set(names)) == len(names) > 100
    assert set(names) == guards.marked_tests(ROOT).keys()


@pytest.mark.system
def test_every_fault_is_python_and_changes_the_code():
    for each in MARKED:
        if each.file.endswith(".py"):
            before = ast.parse((ROOT / each.file).read_text(encoding="utf-8"))
            assert ast.dump(ast.parse(each.without)) != ast.dump(before), each.name


@pytest.mark.parametrize(
    ("code", "without"),
    [
        ("close(file)  # guard: a", "pass"),
        ("if x > 1 and y:  # guard: a\n    raise x", "if False:\n    raise x"),
        ("if x > 1 and y:  # guard: a always\n    raise x", "if True:\n    raise x"),
        ("if x > 1 and y:\n    raise x  # guard: a", "if x > 1 and y:\n    pass"),
        ("if (x > 1\n    and y\n):  # guard: a last\n    raise x", "if x > 1:\n    raise x"),
        ("# guard: a -> x\nif x > 1 and y:\n    raise x", "if x:\n    raise x"),
        ("found = x or y or z  # guard: a first", "found = y or z"),
        ("found = x + y  # guard: a last", "found = x"),
        ("found = x if y else z  # guard: a never", "found = x if False else z"),
        ("with alone(), quiet():  # guard: a\n    work()", "if True:\n    work()"),
        ("with alone(), quiet():  # guard: a alone(), ->\n    work()", "with quiet():\n    work()"),
        ("try:\n    x\n# guard: a\nexcept OSError as error:\n    y", "try:\n    x\nexcept () as error:\n    y"),
        ("# guard: a -> café(1)\n# guard: b\né.b(x)  # what it is for", "café(1)"),
        ("# guard: a x -> y\nf(\n    'é',\n    x,\n)", "f('é', y)"),
    ],
)
def test_a_guard_is_taken_away_as_its_statement_or_its_marker_says(code, without):
    _, _, text = next(guards._faults(code))
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(without))


@pytest.mark.parametrize(
    "mark",
    ["# guard: A", "# guard:", "# guard: a nonsense", "# guard: a z -> y", "# guard: a never", "# guard: a o -> y"],
)
def test_a_marker_that_cannot_be_obeyed_is_refused(mark):
    with pytest.raises(ValueError, match="line 1"):
        list(guards._faults(f"found = x or y  {mark}\n"))


def test_a_marker_of_a_page_changes_its_line():
    page = "<p>\n<meta 1; 2>{# guard: one 1 -> 3 #}{# guard: two 2 -> 4 #}\n"
    assert [(name, line, text[4:15]) for name, line, text in guards._page_faults(page)] == [
        ("one", 2, "<meta 3; 2>"),
        ("two", 2, "<meta 1; 4>"),
    ]


@pytest.mark.system
@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("assert value == 1", "noticed"),
        ("pass", "survived"),
        (r"assert value == 1, 'caf\udce9'", "noticed"),  # which pytest prints as no UTF-8
        (None, "no verdict (pytest's exit code 4)"),  # no such test
    ],
)
def test_a_guard_is_noticed_or_survives_and_is_put_back(body, verdict, tmp_path):
    (tmp_path / "harness").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "harness" / "__init__.py").touch()
    (tmp_path / "harness" / "guarded.py").write_text("value = 1  # guard: one 1 -> 2\n")
    test = '@pytest.mark.guards("one")\ndef test_it():\n    ' + body if body else ""
    (tmp_path / "tests" / "test_it.py").write_text(f"import pytest\nfrom harness.guarded import value\n\n\n{test}\n")
    (found,) = guards.guards(tmp_path)
    assert found == Guard("one", "harness/guarded.py", 1, found.without)
    assert found.without.rstrip() == "value = 2"
    tests = guards.marked_tests(tmp_path).get("one", ["tests/test_it.py::test_it"])
    assert guards.outcome(found, tests, tmp_path)[0] == verdict
    assert (tmp_path / "harness" / "guarded.py").read_text() == "value = 1  # guard: one 1 -> 2\n"
