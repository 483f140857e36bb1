"""The mutation tester itself: which faults it plants, and that it reports what weak tests let pass."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import mutants
import mutations
import pytest

ROOT = Path(__file__).parents[2]
META = ROOT / "tests" / "meta"
PLANTED = '''\
"""A head's stand-in."""


def scaled(x, factor=2):
    """x times a factor, plus one. Not mutated: 1 + 1."""
    while x > 9:
        x -= 5
    return x * factor + 1
'''
UNTOUCHED = '''\
"""A docstring: 1 + 1."""
from a import b
__all__ = [a, b]
x: a[1] = b
x = f"{a + 1}"
x = "a" + "b"
def f(x: int | None) -> dict[str, int]: pass
@register(1)
class A(B):
    def __init__(self):
        super().__init__()
if TYPE_CHECKING:
    from a import b
assert x == 1, x + 1
raise ValueError(f"{a + 1}", b - 1)
'''
WEAK = """\
import harness.heads.planted


def test_at_zero():
    assert harness.heads.planted.scaled(0) == 1
"""
STRONG = """\
import pytest
from harness.heads.planted import scaled


@pytest.mark.parametrize(("head", "x", "expected"), [
    ("planted", 3, 7), ("planted", 0, 1), ("planted", 9, 19), ("planted", 10, 11), ("planted", 17, 15)
])
def test_values(head, x, expected):
    assert scaled(x) == expected
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a + b", ["a + b -> a", "a + b -> b", "a + b -> a - b"]),
        ("x = 2 * 1", ["2 * 1 -> 1", "2 * 1 -> 2 / 1", "2 -> 3", "2 -> -2", "1 -> 2", "1 -> 0"]),  # 2 * 1 is 2
        ("x = a < b", ["a < b -> a <= b", "a < b -> a >= b"]),
        ("x = a and b", ["a and b -> a", "a and b -> b", "a and b -> a or b"]),
        ("import torch\ny = torch.tanh(x)", ["torch.tanh(x) -> x"]),
        ("y = f(x, dim=d)", ["f(x, dim=d) -> x", "f(x, dim=d) -> f(x)"]),
        ("f(x)", ["f(x) -> pass"]),
        ("a += b", ["a += b -> pass", "a += b -> a = b", "a += b -> a -= b"]),
        ("if a: b = c", ["a -> True", "a -> False"]),
        ("for i in range(n): pass", [f"range(n) -> range({new})" for new in ("n + 1", "n - 1", "1, n")]),
        ("x = a[i]", ["i -> i - 1"]),
        ("x = a[b:c]", ["b:c -> b + 1:c", "b:c -> b - 1:c", "b:c -> b:c + 1", "b:c -> b:c - 1"]),
    ],
)
def test_every_kind_of_fault_once(source, expected):
    assert [str(mutant) for mutant in mutations.mutants_of(source)] == expected


def test_what_is_not_mutated():
    assert mutations.mutants_of(UNTOUCHED) == []


def test_a_mutant_says_where_it_is_and_runs():
    source = "def f(x):\n    def g(y):\n        return (y + 1) * 2\n    return g(x)\n"
    mutant = next(m for m in mutations.mutants_of(source) if str(m) == "y + 1 -> y")
    assert (mutant.line, mutant.column, mutant.function) == (3, 17, "f.g")
    assert mutant.within == {"(y + 1) * 2", "y + 1"}
    names = {}
    exec(mutant.code, names)
    assert names["f"](5) == 10


def run(folder: Path, test: str, *excused: str, seconds: int = 10, within: str = "") -> subprocess.CompletedProcess:
    """The script in a checkout of its own that holds one 'head' and one test of it; each mutant has so many seconds."""
    (folder / "heads").mkdir()
    (folder / "harness").mkdir()
    shutil.copy(ROOT / "harness" / "__init__.py", folder / "harness")  # it finds heads/ beside it
    (folder / "tests" / "heads").mkdir(parents=True)
    (folder / "heads" / "__init__.py").touch()
    (folder / "heads" / "planted.py").write_text(PLANTED)
    (folder / "tests" / "heads" / "test_planted.py").write_text(test)
    (folder / "tests" / "meta").mkdir()
    (folder / "tests" / "plan").mkdir()
    (folder / mutants.OF_PLANS).touch()  # every head's tests include it
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copy(META / "mutations.py", folder / "tests" / "meta")
    entries = [f'Equivalent("scaled", "{text}", "for the test"),' for text in excused]
    excuses = (META / "equivalents.py").read_text().replace("EQUIVALENT = [", "\n".join(["EQUIVALENT = [", *entries]))
    (folder / "tests" / "meta" / "equivalents.py").write_text(excuses)
    shutil.copy(META / "mutants.py", folder / "tests" / "meta")
    command = [sys.executable, "tests/meta/mutants.py", "--only", "planted", "--seconds", str(seconds), "--jobs", "4"]
    command += ["--within", within] if within else []
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def row(done: subprocess.CompletedProcess) -> list[int]:
    """Mutants, killed, timed out, equivalent, survived."""
    return [int(cell) for cell in re.search("^heads/planted.py (.*)$", done.stdout, re.MULTILINE)[1].split()]


def test_what_a_weak_test_does_not_notice_is_reported_but_for_what_is_held_equivalent(tmp_path):
    """An expression that is held equivalent must have survivors."""
    # scaled(0) == 1 holds whatever the factor is, and never enters the loop.
    done = run(tmp_path, WEAK, "x * factor", "x + factor")
    assert done.returncode == 1
    assert "heads/planted.py:4:22: 2 -> 3   in scaled" in done.stdout
    assert "heads/planted.py:6:11: x > 9 -> x >= 9   in scaled" in done.stdout
    assert "x * factor -> " not in done.stdout
    assert "x * factor + 1 -> x * factor   in scaled" not in done.stdout
    assert "EQUIVALENT excuses nothing by: x + factor   in scaled" in done.stdout
    mutants, killed, timed_out, equivalent, survived = row(done)
    assert equivalent == 2  # x * factor -> x and -> x / factor; -> factor is killed
    assert mutants == killed + timed_out + equivalent + survived
    assert done.stdout.count(" -> ") == survived


def test_strong_tests_leave_no_survivors_and_an_endless_loop_is_ended(tmp_path):
    # Endless: x -= 5 as pass, as x += 5, and with -5. On a busy machine a mutant that is merely slow is ended, too.
    done = run(tmp_path, STRONG, seconds=2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no survivors" in done.stdout
    mutants, killed, timed_out, *others = row(done)
    assert (mutants, killed + timed_out, others) == (24, 24, [0, 0])
    assert timed_out >= 3  # more on a busy machine


def test_only_functions_that_were_named_are_mutated(tmp_path):
    done = run(tmp_path, WEAK, within="other")
    assert done.returncode == 0, done.stdout + done.stderr
    assert row(done)[0] == 0


def test_tests_that_fail_on_the_code_as_it_is_are_an_error(tmp_path):
    done = run(tmp_path, WEAK.replace("== 1", "== 2"))
    assert done.returncode == 1
    assert "the tests do not pass on the code as it is" in done.stderr
