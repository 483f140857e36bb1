"""Each protection that RELIABILITY names, taken away in turn, and the tests that must then fail.

    make protections                                all of them; some 20 minutes on 2 cores
    python tests/meta/protections.py --only lock    those whose name or function holds the word
    python tests/meta/protections.py --check        takes nothing away: prints the entries that do not fit the code

tests/meta/protections.txt lists them: the name and the rows it serves, the function that protects, the text of it that
does so (-), what stands there without the protection (+), and the tests that must then fail. All is done in copies of
the checkout. A protection survives when its tests pass without it; none may.

No entry names the file of the code, so that code can be moved: `places.find` says how the function and the text are
found. A test is the name of its function, with that of its file before it where several have it, or a file alone.
"""

import argparse
import ast
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import places

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("protections.txt")
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "runs", "mlflow.db*")
PYTEST = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", "--timeout=60", "--timeout-method=thread"]
SECONDS, ALL_SECONDS = 300, 1800  # for the tests of one protection; of all, with nothing taken away
OUTCOMES = {0: "survived", 1: "noticed"}  # pytest's exit codes; with any other the entry is wrong


@dataclass(frozen=True)
class Protection:
    """One entry of the list."""

    name: str
    where: str
    source: str
    replacement: str
    tests: tuple[str, ...]


def read(text: str) -> list[Protection]:
    """The entries, which empty lines separate."""
    return [_entry(block.splitlines()) for block in text.strip().split("\n\n")]


def _entry(lines: list[str]) -> Protection:
    heading, where, *rest = lines
    source, replacement = ("\n".join(line[1:] for line in rest if line[0] == sign) for sign in "-+")
    tests = tuple(line for line in rest if line[0] not in "-+")
    return Protection(heading.removeprefix("# "), where, source, replacement, tests)


def outcome(protection: Protection, copy: Path) -> tuple[str, str]:
    """What becomes of the tests without the protection, and the last line they print."""
    (place,) = places.find(copy, protection.where, protection.source)
    file = copy / place.file
    before = file.read_text(encoding="utf-8")
    file.write_text(place.replaced(before, protection.source, protection.replacement), encoding="utf-8")
    try:
        code, told = passed(nodes(protection.tests, copy), copy)
    finally:
        file.write_text(before, encoding="utf-8")
    return OUTCOMES.get(code, f"no verdict (pytest's exit code {code})"), told


def problems(protection: Protection, root: Path) -> list[str]:
    """Why the entry does not fit the code: its text is not found exactly once, or a test of it is not."""
    found = places.find(root, protection.where, protection.source)
    said = []
    if len(found) != 1:
        said.append(f"{protection.where}: expected one place with this text, found {len(found)}")
        anywhere = [place for place in found or places.find(root, "", protection.source) if place.file.endswith(".py")]
        said += [f"the text is in {places.name_of(root, place)}" for place in anywhere[:5]]
    if protection.source == protection.replacement:
        said.append("the replacement equals the text")
    if not protection.tests:
        said.append("no test is named")
    for test in protection.tests:
        if len(files := files_of(test, root)) != 1:
            said.append(f"{test}: expected one test of this name, found {len(files)} ({', '.join(files)})")
    return said


def nodes(tests: Iterable[str], root: Path) -> list[str]:
    """What pytest is to be given for tests of the list."""
    found = []
    for test in tests:
        (file,) = files_of(test, root)
        found.append(file if test.endswith(".py") else f"{file}::{test.rpartition('::')[2]}")
    return found


def files_of(test: str, root: Path) -> list[str]:
    """Where a test of the list is: `test_name`, `test_name[case]`, `test_file.py::test_name`, or a `test_file.py`."""
    file, _, name = ("", "", test) if "::" not in test and not test.endswith(".py") else test.partition("::")
    return [
        path.relative_to(root).as_posix()
        for path in sorted((root / "tests").rglob(file or "test_*.py"))
        if not name or name.partition("[")[0] in _functions(path, path.stat().st_mtime_ns)
    ]


@cache
def _functions(path: Path, changed: int) -> frozenset[str]:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return frozenset(node.name for node in body if isinstance(node, ast.FunctionDef))


def passed(tests: Iterable[str], copy: Path, seconds: int = SECONDS) -> tuple[int, str]:
    """Pytest's exit code, and the last line it printed."""
    command = [sys.executable, "-B", "-m", "pytest", *PYTEST, *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    process = subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        text=True,
        errors="replace",
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=-2,
    )
    try:
        told, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return 1, f"not within {seconds} s"
    return process.returncode, (told.strip().splitlines() or [""])[-1]


@contextmanager
def copies(number: int) -> Iterator[queue.Queue]:
    """Copies of the checkout, to be taken and put back."""
    free: queue.Queue = queue.Queue()
    with tempfile.TemporaryDirectory() as folder:
        for each in range(number):
            free.put(Path(shutil.copytree(ROOT, Path(folder) / str(each) / "checkout", ignore=LEFT_OUT)))
        yield free


def check(chosen: list[Protection]) -> int:
    """Print every entry that does not fit the code; 0 when there is none."""
    wrong = {each.name: said for each in chosen if (said := problems(each, ROOT))}
    cases = {test: each.name for each in chosen if each.name not in wrong for test in each.tests if "[" in test}
    if cases:
        code, told = passed([*nodes(cases, ROOT), "--collect-only"], ROOT)
        wrong |= {"cases of tests": [told, "expected cases that pytest collects"]} if code else {}
    for name, said in wrong.items():
        print("\n    ".join([name, *said]))
    print(f"{len(chosen)} protections, {len(wrong)} do not fit the code")
    return 1 if wrong else 0


def main() -> int:
    """0 when every protection is missed by its tests."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[""], help="those whose name or function holds one of these")
    parser.add_argument("--check", action="store_true", help="only print the entries that do not fit the code")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    began = time.monotonic()
    chosen = [
        each
        for each in read(LIST.read_text(encoding="utf-8"))
        if any(word in f"{each.name} {each.where}" for word in arguments.only)
    ]
    if arguments.check:
        return check(chosen)
    with copies(arguments.jobs) as free, ThreadPoolExecutor(arguments.jobs) as pool:
        tests = nodes(dict.fromkeys(test for each in chosen for test in each.tests), free.queue[0])
        code, told = passed(tests, free.queue[0], ALL_SECONDS)
        if code != 0:
            print(f"the tests do not pass with all protections in place: {told}")
            return 1

        def judged(protection: Protection) -> tuple[Protection, str]:
            copy, started = free.get(), time.monotonic()
            try:
                verdict, told = outcome(protection, copy)
            finally:
                free.put(copy)
            print(f"{verdict:<9} {time.monotonic() - started:4.0f} s  {protection.name}: {told}", flush=True)
            return protection, verdict

        verdicts = list(pool.map(judged, chosen))
    wrong = [f"{verdict.upper()}: {each.name} ({each.where})" for each, verdict in verdicts if verdict != "noticed"]
    print(f"{len(chosen)} protections, {len(wrong)} not noticed, {(time.monotonic() - began) / 60:.1f} minutes")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
