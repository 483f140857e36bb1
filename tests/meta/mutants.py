"""Mutation testing of heads, kernels and oracles: `make mutants`, or `python tests/meta/mutants.py --only mos`.

Every file of heads/, those that evaluate mixtures, the parts of AWD-LSTM and the oracles are mutated, one small fault
at a time (mutations.py says which), and the tests that concern the file run against each mutant. A mutant that they do
not notice survives; none may, but for those that EQUIVALENT excuses. One process imports everything once and forks a
child for each mutant.
"""

import argparse
import contextlib
import gc
import importlib
import io
import math
import os
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType

import pytest
from equivalents import EQUIVALENT
from mutations import Mutant, mutants_of

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ["-p", "no:cacheprovider", "-p", "no:unraisableexception"]
PYTEST = ["-x", "-q", "-s", "--tb=line", "--assert=plain", *PLUGINS, "-o", "timeout=0"]
LEAN = ("mixture", "chunked", "rows", "products", "token_statistics", "forms", "choice")
AWD = [  # the parts of AWD-LSTM: file, module, tests
    ("backbones/awd_lstm.py", "backbones.awd_lstm", "tests/awd/test_awd_lstm.py"),
    ("harness/training/averaging.py", "training.averaging", "tests/awd/test_awd.py"),
    ("harness/training/dynamic_evaluation.py", "training.dynamic_evaluation", "tests/awd/test_dynamic_evaluation.py"),
]
OF_INSTANCES = {  # modules whose constants are made of a target's classes and functions, in the order of their imports
    "mixture": ["harness.kernels.planted"],
    "rows": ["harness.kernels.forms", "harness.kernels.agreement", "harness.kernels.choice"],
    "forms": ["harness.kernels.choice"],
}
OF_PLANS = "tests/plan/test_plans.py"  # suites pair each head with its controls
LONGEST = 1800  # seconds for the tests on the code as it is
SLOWER = 4  # a mutant may take so many times as long
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE)
OUTCOMES = {0: "survived", 1: "killed", 2: "killed", -signal.SIGALRM: "timed out"} | {-s: "killed" for s in CRASHES}


@dataclass(frozen=True)
class Target:
    """A file to mutate: 'heads/mos.py', imported as 'harness.heads.mos' and held by some of the tests."""

    name: str
    file: str
    module: str
    tests: list[str]
    head: str | None = None
    other_heads: frozenset[str] = frozenset()

    def concerns(self, item: pytest.Item) -> bool:
        """Whether a test is run: not when its parameters name other heads only."""
        named = set(_strings(list(item.callspec.params.values()) if hasattr(item, "callspec") else []))
        return self.head is None or self.head in named or not named & self.other_heads


def targets() -> list[Target]:
    """One for each head, by the files in heads/, what all of them stand on, then the oracles."""
    heads = sorted(path.stem for path in (ROOT / "heads").glob("*.py") if path.stem != "__init__")
    tests = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "heads").glob("test_*.py"))
    own = {head: f"tests/heads/test_{head}.py" for head in heads}
    shared = [*(test for test in tests if test not in own.values()), OF_PLANS]
    found = []
    for head in heads:
        chosen = [*(test for test in tests if test == own[head]), *shared]
        found.append(Target(head, f"heads/{head}.py", f"harness.heads.{head}", chosen, head, frozenset(heads) - {head}))
    lean = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/kernels").glob("test_lean_*.py"))
    lean += [f"tests/kernels/test_{name}.py" for name in ("products", "choice", "forms")]
    loops = ["tests/kernels/test_lean_property.py", "tests/heads/test_heads_equal_oracles.py"]
    equations = [loops[0], "tests/kernels/test_reference.py"]
    every = ["tests/test_distributions.py", *equations, "tests/heads/test_output_start.py", *tests]
    every = list(dict.fromkeys(every))
    return [
        *found,
        Target("distributions", "harness/distributions.py", "harness.distributions", every),
        Target("kernels", "harness/kernels/reference.py", "harness.kernels.reference", every),
        *(Target(name, f"harness/kernels/{name}.py", f"harness.kernels.{name}", lean) for name in LEAN),
        Target("oracles", "tests/support/oracles.py", "oracles", loops),
        *(Target(Path(file).stem, file, f"harness.{module}", [test]) for file, module, test in AWD),
    ]


class Rehearsal:
    """A pytest plugin that notes how long each test takes and which functions of the targets it calls."""

    def __init__(self, chosen: list[Target]):
        self.files = {str(ROOT / target.file): target.file for target in chosen}
        self.called: dict[str, set[str]] = {}
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        called = self.called[item.nodeid] = set()

        def profile(frame, event, arg):
            code = frame.f_code
            if event == "call" and code.co_filename in self.files:
                called.add(f"{self.files[code.co_filename]}:{code.co_qualname.replace('.<locals>', '')}")

        start = time.perf_counter()
        sys.setprofile(profile)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            self.seconds[item.nodeid] = time.perf_counter() - start

    def calling(self, target: Target, mutant: Mutant) -> list[list[str]]:
        """The node ids of the target's tests that call the mutated function, file by file: the quickest file first, and
        its quickest test.
        """
        place = f"{target.file}:{mutant.function}"
        files: dict[str, list[str]] = {file: [] for file in target.tests}
        for test in sorted(self.called, key=self.seconds.__getitem__):
            if (file := test.partition("::")[0]) in files and any(name.startswith(place) for name in self.called[test]):
                files[file].append(test)
        found = [tests for tests in files.values() if tests]
        return sorted(found, key=lambda tests: sum(map(self.seconds.__getitem__, tests)))


class Installed:
    """A pytest plugin that puts the mutated module in the original's place and chooses the tests: not those that are
    done.
    """

    def __init__(self, target: Target, module: ModuleType, done: Iterable[str] = ()):
        self.target, self.module, self.done = target, module, frozenset(done)
        self.is_not_importable = False  # a test file: pytest then does not find its tests, which is a usage error

    def pytest_sessionstart(self):
        """Before any test module is imported. What other modules imported of the original is exchanged there."""
        original = sys.modules.get(self.target.module, ModuleType(self.target.module))  # the oracles: not imported yet
        sys.modules[self.target.module] = self.module
        mutated = {id(old): getattr(self.module, name, old) for name, old in vars(original).items() if name[:2] != "__"}
        mutated = {old: new for old, new in mutated.items() if not isinstance(new, str | int | float | None)}
        mutated[id(original)] = self.module
        for module in [module for name, module in sys.modules.items() if name.startswith("harness")]:
            for name, value in list(vars(module).items()):
                if id(value) in mutated:
                    setattr(module, name, mutated[id(value)])
                elif isinstance(value, type) and any(id(base) in mutated for base in value.__bases__):
                    value.__bases__ = tuple(mutated.get(id(base), base) for base in value.__bases__)
            for defaults in _keyword_defaults(module):
                defaults.update({name: mutated.get(id(value), value) for name, value in defaults.items()})
        for name in OF_INSTANCES.get(self.target.name, ()):
            try:
                importlib.reload(importlib.import_module(name))
            except Exception:
                traceback.print_exc()
                pytest.exit(f"{name} cannot be imported with the mutant", returncode=1)

    def pytest_collectreport(self, report):
        self.is_not_importable |= report.failed

    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if self.target.concerns(item) and item.nodeid not in self.done]


def rehearse(chosen: list[Target]) -> Rehearsal:
    """Run all tests of the targets, un-mutated, in this process: it imports what the children are to share."""
    rehearsal, output = Rehearsal(chosen), io.StringIO()
    tests = list(dict.fromkeys(test for target in chosen for test in target.tests))
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = pytest.main([*PYTEST, *tests], plugins=[rehearsal])
    if code != 0:
        raise SystemExit(f"{output.getvalue()}\nthe tests do not pass on the code as it is (pytest's exit code {code})")
    for name, module in list(sys.modules.items()):  # tests and what supports them are imported anew, with the mutant
        if (getattr(module, "__file__", None) or "").startswith(f"{ROOT / 'tests'}/") and name != "__main__":
            del sys.modules[name]
    gc.collect()
    gc.freeze()
    return rehearsal


def in_child(target: Target, mutant: Mutant | None, calling: list[list[str]]) -> int:
    """Pytest's exit code with the mutant in place; 1 when its module cannot even be executed.

    The tests that call the mutated function are run file by file, because to collect all tests takes longer than most
    of them. All others are run if those pass.
    """
    path = ROOT / target.file
    module = ModuleType(target.module)
    module.__file__ = str(path)
    try:
        exec(mutant.code if mutant else compile(path.read_text(encoding="utf-8"), path, "exec"), module.__dict__)
    except Exception:
        traceback.print_exc()
        return 1
    for tests in calling:
        installed = Installed(target, module)
        code = pytest.main([*PYTEST, *tests], plugins=[installed])
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):  # none: all are of other heads
            return 1 if installed.is_not_importable else code
    done = (test for tests in calling for test in tests)
    code = pytest.main([*PYTEST, *target.tests], plugins=[Installed(target, module, done)])
    return 0 if calling and code == pytest.ExitCode.NO_TESTS_COLLECTED else code


def fork(work: Callable[[], int], seconds: int) -> tuple[int, io.IOBase]:
    """The id of a child that does the work and exits with its code, or is ended by SIGALRM; and its output."""
    output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by whoever waits for the child
    sys.stdout.flush()
    if child := os.fork():
        return child, output
    code = 70
    try:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        signal.alarm(seconds)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.mkdtemp()  # no other pytest tidies up there
        code = int(work())
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def unmutated(target: Target) -> int:
    """Seconds that the target's tests take on the code as it is. Raises SystemExit when they do not pass."""
    began = time.monotonic()
    _, output = fork(lambda: in_child(target, None, []), LONGEST)
    _, status = os.wait()
    with output:
        outcome(f"{target.file}: the code as it is", None, status, output)
    return math.ceil(time.monotonic() - began)


def outcomes(target: Target, mutants: list, rehearsal: Rehearsal, jobs: int, seconds: int) -> Iterator[tuple]:
    """(mutant, outcome), as the children end."""
    waiting, running = list(reversed(mutants)), {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                mutant = waiting.pop()
                calling = rehearsal.calling(target, mutant)
                child, output = fork(lambda mutant=mutant, calling=calling: in_child(target, mutant, calling), seconds)
                running[child] = mutant, output
            child, status = os.wait()
            mutant, output = running.pop(child)
            with output:
                yield mutant, outcome(f"{target.file}: {mutant}", mutant, status, output)
    finally:
        for child in running:
            os.kill(child, signal.SIGKILL)


def outcome(what: str, mutant: Mutant | None, status: int, output: io.IOBase) -> str:
    """A key of the report. Raises SystemExit for what no mutant explains: no tests, a fault of pytest or of ours."""
    code = os.waitstatus_to_exitcode(status)
    if code not in OUTCOMES or (mutant is None and code != 0):
        output.seek(0)
        raise SystemExit(f"{output.read().decode(errors='replace')}\n{what}: unexpected exit code {code}")
    return OUTCOMES[code]


def try_all(
    target: Target, mutants: list[Mutant], rehearsal: Rehearsal, jobs: int, seconds: int
) -> tuple[Counter, list[Mutant], set]:
    """Counts by outcome, the survivors, and the entries of EQUIVALENT that excused others."""
    counts, survivors, used = Counter(), [], set()
    seconds = max(seconds, SLOWER * unmutated(target))
    for mutant, fate in outcomes(target, mutants, rehearsal, jobs, seconds):
        excuses = {e for e in EQUIVALENT if fate == "survived" and e.excuses(mutant)}
        counts["equivalent" if excuses else fate] += 1
        used |= excuses
        if fate == "survived" and not excuses:
            survivors.append(mutant)
            print(f"survived: {target.file}:{mutant.line}:{mutant.column}: {mutant}", file=sys.stderr, flush=True)
    return counts, sorted(survivors, key=mutants.index), used


def report(chosen: list[Target], jobs: int, seconds: int, within: list[str]) -> int:
    """Print a row per file, then every survivor; the exit code. `within`: only functions whose names begin so."""
    start, total, survivors, used, functions = time.monotonic(), Counter(), [], set(), set()
    rehearsal = rehearse(chosen)
    row = "{:28} {:>8} {:>8} {:>10} {:>11} {:>9}".format
    columns = ("killed", "timed out", "equivalent", "survived")
    print(row("file", "mutants", *columns))
    for target in chosen:
        path = ROOT / target.file
        mutants = mutants_of(path.read_text(encoding="utf-8"), str(path))
        mutants = [mutant for mutant in mutants if not within or mutant.function.startswith(tuple(within))]
        counts, found, needed = try_all(target, mutants, rehearsal, jobs, seconds)
        print(row(target.file, counts.total(), *(counts[column] for column in columns)), flush=True)
        total, used, functions = total + counts, used | needed, functions | {mutant.function for mutant in mutants}
        survivors += [f"{target.file}:{m.line}:{m.column}: {m}   in {m.function or 'the module'}" for m in found]
    print(row("total", total.total(), *(total[column] for column in columns)))
    print(f"equivalent, by hand: {total['equivalent']}; {time.monotonic() - start:.0f} s")
    concerned = functions if len(chosen) == len(targets()) else functions - {""}  # '' is the top of every module
    stale = [e for e in EQUIVALENT if e not in used and e.function in concerned]
    survivors += [f"EQUIVALENT excuses nothing by: {e.text}   in {e.function}" for e in stale]
    print("\n".join(survivors) or "no survivors")
    return 1 if survivors else 0


def prepare(storage: str) -> None:
    """Settings of this process and its children: one thread each, no files but in `storage`."""
    os.chdir(ROOT)
    sys.path[0] = str(ROOT)  # was tests/meta; the packages of this checkout are to be mutated
    sys.dont_write_bytecode = True
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")  # threads do not survive forks
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = tempfile.tempdir = storage
    from hypothesis import Phase, settings

    phases = [Phase.explicit, Phase.generate]
    settings.register_profile("mutants", database=None, derandomize=True, deadline=None, phases=phases)
    settings.load_profile("mutants")


def main() -> int:
    known = {target.name: target for target in targets()}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=known, default=list(known), help="what to mutate")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="children at a time")
    parser.add_argument(
        "--seconds", type=int, default=60, help="least time limit of a mutant; running into it kills it"
    )
    parser.add_argument("--within", nargs="+", default=[], help="only functions whose qualified names begin with these")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as storage:
        prepare(storage)
        return report([known[name] for name in options.only], options.jobs, options.seconds, options.within)


def _keyword_defaults(module: ModuleType) -> Iterator[dict]:
    """Those of its functions and of its classes' methods."""
    for owner in [module, *(value for value in vars(module).values() if isinstance(value, type))]:
        for function in vars(owner).values():
            if isinstance(function, FunctionType) and function.__kwdefaults__:
                yield function.__kwdefaults__


def _strings(value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


if __name__ == "__main__":
    sys.exit(main())
