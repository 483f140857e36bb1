"""Each protection that RELIABILITY names, taken away in turn: `make protections`, or tests/protections.py --only lock.

tests/protections.txt lists them: the name and the rows it serves, the file, the text of it that protects (-), what
stands there without the protection (+), and the tests that must then fail. All is done in copies of the checkout. A
protection survives when its tests pass without it; none may.
"""

import argparse
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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_name("protections.txt")
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "runs", "mlflow.db*")
PYTEST = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", "--timeout=60"]
SECONDS, ALL_SECONDS = 300, 1800  # for the tests of one protection; of all, with nothing taken away
OUTCOMES = {0: "survived", 1: "noticed"}  # pytest's exit codes; with any other the entry is wrong


@dataclass(frozen=True)
class Protection:
    """One entry of the list."""

    name: str
    file: str
    source: str
    replacement: str
    tests: tuple[str, ...]


def read(text: str) -> list[Protection]:
    """The entries, which empty lines separate."""
    return [_entry(block.splitlines()) for block in text.strip().split("\n\n")]


def _entry(lines: list[str]) -> Protection:
    heading, file, *rest = lines
    source, replacement = ("\n".join(line[1:] for line in rest if line[0] == sign) for sign in "-+")
    tests = tuple(line for line in rest if line[0] not in "-+")
    return Protection(heading.removeprefix("# "), file, source, replacement, tests)


def outcome(protection: Protection, copy: Path) -> tuple[str, str]:
    """What becomes of the tests without the protection, and the last line they print."""
    place = copy / protection.file
    before = place.read_text(encoding="utf-8")
    assert before.count(protection.source) == 1, protection.name
    place.write_text(before.replace(protection.source, protection.replacement), encoding="utf-8")
    try:
        code, told = passed(protection.tests, copy)
    finally:
        place.write_text(before, encoding="utf-8")
    return OUTCOMES.get(code, f"no verdict (pytest's exit code {code})"), told


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


def main() -> int:
    """0 when every protection is missed by its tests."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[""], help="those whose heading or file holds one of these")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    began = time.monotonic()
    chosen = [
        each
        for each in read(LIST.read_text(encoding="utf-8"))
        if any(word in f"{each.name} {each.file}" for word in arguments.only)
    ]
    with copies(arguments.jobs) as free, ThreadPoolExecutor(arguments.jobs) as pool:
        code, told = passed(dict.fromkeys(test for each in chosen for test in each.tests), free.queue[0], ALL_SECONDS)
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
    wrong = [f"{verdict.upper()}: {each.name} ({each.file})" for each, verdict in verdicts if verdict != "noticed"]
    print(f"{len(chosen)} protections, {len(wrong)} not noticed, {(time.monotonic() - began) / 60:.1f} minutes")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
