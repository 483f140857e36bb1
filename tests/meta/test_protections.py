"""The list of protections fits the code: each entry finds one place in it, and its tests exist."""

import places
import protections
import pytest
from protections import LIST, ROOT, Protection

ENTRIES = protections.read(LIST.read_text(encoding="utf-8"))


def test_every_entry_finds_one_place_and_its_tests_exist():
    wrong = {entry.name: said for entry in ENTRIES if (said := protections.problems(entry, ROOT))}
    assert wrong == {}


def test_every_entry_has_a_name_of_its_own():
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES) > 100


def test_the_check_prints_every_entry_that_does_not_fit_and_leaves_with_1(capsys):
    lost = Protection(
        "lost", "no_such_function", "no_such_name()", "raise", ("test_every_entry_has_a_name_of_its_own",)
    )
    renamed = Protection("renamed", "old_name", "temporary.replace(place)", "pass", ("test_renamed",))
    untested = Protection("untested", "atomically", "os.fsync(file.fileno())", "pass", ("test_nowhere",))
    assert protections.check([ENTRIES[0], lost, renamed, untested]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "lost",
        "    no_such_function: expected one place with this text, found 0",
        "renamed",
        "    old_name: expected one place with this text, found 0",
        "    the text is in harness.machine.files:atomically",
        "    test_renamed: expected one test of this name, found 0 ()",
        "untested",
        "    test_nowhere: expected one test of this name, found 0 ()",
        "4 protections, 3 do not fit the code",
    ]
    assert protections.check(ENTRIES[:1]) == 0


CODE = """\
import os

LIMIT = 2


class Store:
    def save(self, name):
        if name in ("a", 'b'):  # a comment
            return os.path.join(
                "folder", name,
            )
        return None


def save(name):
    return None
"""


@pytest.fixture
def code(tmp_path):
    """A checkout of two modules of the same code, but for a class that the second one lacks."""
    for name, text in {"here": CODE, "there": "LIMIT = 3\n\n\ndef save(name):\n    return name\n"}.items():
        (tmp_path / "harness" / name).mkdir(parents=True)
        (tmp_path / "harness" / name / "files.py").write_text(text)
    (tmp_path / "harness" / "page.html").write_text("<p>\n  a { b }\n</p>\n")
    return tmp_path


@pytest.mark.parametrize(
    ("where", "text", "found"),
    [
        ("Store.save", "return None", "return None"),
        ("save", "return None", "return None"),
        ("save", "return name", "return name"),
        ("Store", 'if name in ("a", "b"):', "if name in (\"a\", 'b'):"),
        (
            "Store.save",
            'return os.path.join("folder", name)',
            'return os.path.join(\n                "folder", name,\n            )',
        ),
        ("Store.save", '"folder", name', '"folder", name'),
        ("LIMIT", "2", "2"),
        ("here.files:", "import os", "import os"),
        ("there.files:save", "return name", "return name"),
        ("harness/page.html", "a { b }", "a { b }"),
    ],
)
def test_a_place_is_found_by_its_function_and_its_tokens(code, where, text, found):
    (place,) = places.find(code, where, text)
    content = (code / place.file).read_text()
    assert content[place.start : place.end] == found


@pytest.mark.parametrize(
    ("where", "text", "number"),
    [
        ("save", "return", 2),
        ("files:save", "return", 2),
        ("Store.save", "return 1", 0),
        ("nowhere", "return None", 0),
        ("save", "os.path", 0),
        ("iles:save", "return name", 0),
    ],
)
def test_what_is_not_there_or_several_times_is_not_chosen(code, where, text, number):
    assert len(places.find(code, where, text)) == number


def test_a_replacement_is_indented_as_what_it_replaces(code):
    source = "if name in ('a', 'b'):\n    return os.path.join('folder', name)"
    (place,) = places.find(code, "Store.save", source)
    text = place.replaced((code / place.file).read_text(), source, "if name:\n    return name")
    assert "    def save(self, name):\n        if name:\n            return name\n        return None\n" in text
    (place,) = places.find(code, "Store.save", '("a", "b")')
    assert 'if name in ("c",):  # a comment' in place.replaced(CODE, '("a", "b")', '("c",)')


def test_a_test_is_named_by_its_function_alone_or_with_its_file(tmp_path):
    (tmp_path / "tests" / "deep").mkdir(parents=True)
    (tmp_path / "tests" / "test_one.py").write_text("def test_a():\n    pass\n\n\ndef test_b():\n    pass\n")
    (tmp_path / "tests" / "deep" / "test_two.py").write_text("def test_b():\n    pass\n")
    named = ["test_a", "test_a[case]", "test_two.py::test_b", "test_two.py"]
    expected = ["tests/test_one.py::test_a", "tests/test_one.py::test_a[case]"]
    expected += ["tests/deep/test_two.py::test_b", "tests/deep/test_two.py"]
    assert protections.nodes(named, tmp_path) == expected
    assert len(protections.files_of("test_b", tmp_path)) == 2


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
    entry = guarded(tmp_path, f"from guarded import value\n\n\ndef test_it():\n    {body}\n")
    assert protections.outcome(entry, tmp_path)[0] == verdict
    assert (tmp_path / "harness" / "guarded.py").read_text() == "value = 1\n"


def test_tests_that_cannot_be_collected_are_no_verdict(tmp_path):
    entry = guarded(tmp_path, "import nowhere\n\n\ndef test_it():\n    pass\n")
    assert protections.outcome(entry, tmp_path)[0] == "no verdict (pytest's exit code 4)"


def guarded(folder, test: str) -> Protection:
    """A checkout with a module of one value, and the entry that changes it."""
    (folder / "harness").mkdir()
    (folder / "tests").mkdir()
    (folder / "harness" / "__init__.py").touch()
    (folder / "harness" / "guarded.py").write_text("value = 1\n")
    (folder / "tests" / "test_it.py").write_text(test.replace("from guarded", "from harness.guarded"))
    return Protection("guard", "value", "value = 1", "value = 2", ("test_it",))
