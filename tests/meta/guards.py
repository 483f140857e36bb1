"""Each guard that the code marks, taken away in turn, and the tests that must then fail.

    make guards                                all of them; some 30 minutes on 2 cores
    python tests/meta/guards.py --only lock    those whose name or file holds the word

`# guard: name` stands behind a statement of harness/, heads/ or backbones/ that protects from something,
or on a line of its own above it. It is taken away as its kind of statement allows: a condition of `if` or `while` is
False, `except` catches nothing, what `with` enters is not entered, any other statement is not there. Where that is not
the fault to fear, the marker says which is. A word: `always` and `never` (of the condition of an `if`, also within an
expression), `first` and `last` (that operand of `and`, `or`, `+` ... is not there). Or code: `-> new` stands where the
piece above stood, `old -> new` changes a part of the statement, though not of its body, and `old ->` takes it out. In a
page a marker is `{# guard: name old -> new #}`.

`@pytest.mark.guards("name", ...)` stands on the tests that must fail without it, one at least; `case="adamw"` names one
case of the test. All is done in copies of the checkout. A guard survives when its tests pass without it; none may.
"""

import argparse
import ast
import io
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("harness", "heads", "backbones")  # of the checkout, in which markers are looked for
MARK = re.compile(r"# guard: (?P<name>[a-z0-9-]+)(?P<fault> .+)?$")
PAGE_MARK = re.compile(r"\{# guard: (?P<name>[a-z0-9-]+) (?P<fault>.+?) #\}")
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "runs", "mlflow.db*")
PYTEST = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", "--timeout=200", "--timeout-method=thread"]
SECONDS, ALL_SECONDS = 300, 1800  # for the tests of one guard; of all, with nothing taken away
OUTCOMES = {0: "survived", 1: "noticed"}  # pytest's exit codes; with any other the marks are wrong


@dataclass(frozen=True)
class Guard:
    """A marker, and the content of its file without what it guards."""

    name: str
    file: str
    line: int
    without: str


def guards(root: Path) -> list[Guard]:
    """All that are marked below `root`. Raises ValueError for a marker that cannot be obeyed."""
    found = []
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*")):
        if path.suffix in (".py", ".html") and "# guard:" in (text := path.read_text(encoding="utf-8")):
            file = path.relative_to(root).as_posix()
            faults = _faults(text) if path.suffix == ".py" else _page_faults(text)
            found += [Guard(name, file, line, without) for name, line, without in faults]
    return found


def marked_tests(root: Path) -> dict[str, list[str]]:
    """The node ids of the tests by the names of the guards that they must miss."""
    found = defaultdict(list)
    for path in sorted((root / "tests").rglob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for mark in getattr(node, "decorator_list", []):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.guards":
                    case = "".join(f"[{each.value.value}]" for each in mark.keywords)
                    for name in mark.args:
                        found[name.value].append(f"{path.relative_to(root).as_posix()}::{node.name}{case}")
    return dict(found)


def outcome(guard: Guard, tests: list[str], copy: Path) -> tuple[str, str]:
    """What becomes of the tests without the guard, and the last line they print."""
    file = copy / guard.file
    before = file.read_text(encoding="utf-8")
    file.write_text(guard.without, encoding="utf-8")
    try:
        code, told = passed(tests, copy)
    finally:
        file.write_text(before, encoding="utf-8")
    return OUTCOMES.get(code, f"no verdict (pytest's exit code {code})"), told


def passed(tests: list[str], copy: Path, seconds: int = SECONDS) -> tuple[int, str]:
    """Pytest's exit code, and the last line it printed."""
    process = subprocess.Popen(
        [sys.executable, "-B", "-m", "pytest", *PYTEST, *tests],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        text=True,
        errors="replace",
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        told, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return 1, f"not within {seconds} s"
    return process.returncode, (told.strip().splitlines() or [""])[-1]


def _faults(text: str) -> Iterator[tuple[str, int, str]]:
    """(name, line, the text without what is guarded) of each marker of a Python file."""
    bare = re.sub("# guard:.*", lambda mark: " " * len(mark[0]), text)
    tree, lines = ast.parse(bare), text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and "# guard:" in token.string:
            line = token.start[0]
            if (mark := MARK.search(token.string)) is None:
                raise ValueError(f"line {line}: no marker of a guard: {token.string}")
            last = line
            while lines[last - 1].lstrip().startswith("#"):  # on a line of its own: what follows is meant
                last += 1
            start, end, new = _fault(bare, _statement(tree, last), (mark["fault"] or "").strip())
            content = bare.encode()
            yield mark["name"], line, (content[:start] + new.encode() + content[end:]).decode()


def _page_faults(text: str) -> Iterator[tuple[str, int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        for mark in PAGE_MARK.finditer(line):
            old, _, new = (each.strip() for each in mark["fault"].partition("->"))
            yield mark["name"], number, text.replace(line, line.replace(mark[0], "").replace(old, new))


def _statement(tree: ast.Module, line: int) -> ast.stmt | ast.excepthandler:
    """The smallest statement that has the line before its body."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.excepthandler)]
    return min(
        (node for node in nodes if node.lineno <= line <= _last(node)), key=lambda node: _last(node) - node.lineno
    )


def _last(node: ast.AST) -> int:
    """The last line of a statement before its body."""
    return max(node.lineno, node.body[0].lineno - 1) if getattr(node, "body", None) else node.end_lineno


def _fault(text: str, node: ast.AST, fault: str) -> tuple[int, int, str]:
    """The first and last byte of what is replaced, and by what."""
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(first: ast.AST, last: ast.AST) -> tuple[int, int]:
        return starts[first.lineno - 1] + first.col_offset, starts[last.end_lineno - 1] + last.end_col_offset

    old, arrow, new = (each.strip() for each in fault.partition("->"))
    if fault and not arrow:
        piece, new = _of_word(text, node, fault)
        return *span(piece, piece), new
    if old:
        start, end = span(node, node)
        statement = text.encode()[start : min(end, starts[_last(node)])]
        before, found, _ = statement.partition(old.encode())
        if not found or statement.count(found) > 1:
            raise ValueError(f"line {node.lineno}: the statement does not hold this once: {old}")
        return start + len(before), start + len(before) + len(found), new
    if isinstance(node, ast.If | ast.While):
        return *span(node.test, node.test), new or "False"
    if isinstance(node, ast.ExceptHandler):
        return *span(node.type, node.type), new or "()"
    if isinstance(node, ast.With):
        return *span(node, node.items[-1].optional_vars or node.items[-1].context_expr), new or "if True"
    return *span(node, node), new or "pass"


def _of_word(text: str, node: ast.AST, word: str) -> tuple[ast.AST, str]:
    """The piece of the statement that the word is about, and what stands there with the fault."""
    for piece in ast.walk(node):
        if word in ("always", "never") and isinstance(piece, ast.If | ast.IfExp):
            return piece.test, str(word == "always")
        if word in ("first", "last") and isinstance(piece, ast.BoolOp | ast.BinOp):
            operands = piece.values if isinstance(piece, ast.BoolOp) else [piece.left, piece.right]
            kept = operands[1:] if word == "first" else operands[:-1]
            between = " or " if isinstance(getattr(piece, "op", None), ast.Or) else " and "
            return piece, between.join(ast.get_source_segment(text, each) for each in kept)
    raise ValueError(f"line {node.lineno}: no fault of its statement: {word}")


def main() -> int:
    """0 when every guard is missed by its tests."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[""], help="those whose name or file holds one of these")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    began, wrong, free = time.monotonic(), [], queue.Queue()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        for each in range(arguments.jobs):
            copy = Path(shutil.copytree(ROOT, Path(folder) / str(each) / "checkout", ignore=LEFT_OUT))
            free.put(copy)
        tests = marked_tests(copy)
        chosen = [each for each in guards(copy) if any(word in f"{each.name} {each.file}" for word in arguments.only)]
        wanted = list(dict.fromkeys(test for each in chosen for test in tests[each.name]))
        code, told = passed(wanted, copy, ALL_SECONDS)
        if code != 0:
            print(f"the tests do not pass with all guards in place: {told}")
            return 1

        def judged(guard: Guard) -> None:
            copy, started = free.get(), time.monotonic()
            try:
                verdict, told = outcome(guard, tests[guard.name], copy)
            finally:
                free.put(copy)
            print(f"{verdict:<9} {time.monotonic() - started:4.0f} s  {guard.name}: {told}", flush=True)
            if verdict != "noticed":
                wrong.append(f"{verdict.upper()}: {guard.name} ({guard.file}:{guard.line})")

        list(pool.map(judged, chosen))
    print(f"{len(chosen)} guards, {len(wrong)} not noticed, {(time.monotonic() - began) / 60:.1f} minutes")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
