"""Shared by all tests: the folder of the corpora, a small suite of quick trials, the command line in this process.

Modules that tests import lie in tests/support (`pythonpath` in pyproject.toml). `HARNESS_TEST_ONEDNN` runs the tests as
on a machine with another oneDNN: tests/support/onednn/sitecustomize.py.
"""

import codecs
import gc
import locale
import math
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest
import torch
from onednn import sitecustomize as onednn

from harness.extensions import EXTENSIONS
from harness.machine.limits import cpus_available
from harness.records import store
from harness.trial import routes, stages

# No example of a property fails because the machine is busy.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")

ROOT = Path(__file__).parent.parent
_ONEDNN = str(Path(onednn.__file__).parent)
USERS = ("HARNESS_", "MLFLOW_", "RAY_", "TUNE_", "SLURM_", "HF_", "GIT_")  # beginnings of names of variables

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job that a shell runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What a terminal, a CI service or a proxy sets changes what commands print and whom they ask. typer reads it at import.
# `PYTHONWARNINGS` and `TYPER_USE_RICH` change what processes that tests start print.
for _name in (
    *("COLUMNS", "LINES", "TERM", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
    *("GITHUB_ACTIONS", "http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"),
    *("PYTHONWARNINGS", "TYPER_USE_RICH"),
):
    os.environ.pop(_name, None)

# What a user sets for the harness, MLflow, Ray, Slurm and Hugging Face, and what git sets in a hook, reaches no test.
# HARNESS_TEST_... is for the tests. HARNESS_DATA, the folder of the corpora, is for the fixture `real_data`.
if "HARNESS_DATA" in os.environ:
    os.environ["HARNESS_TEST_DATA"] = os.environ["HARNESS_DATA"]
for _name in [name for name in os.environ if name.startswith(USERS) and not name.startswith("HARNESS_TEST_")]:
    del os.environ[_name]

# In a locale without UTF-8 the tests would read and write files in its encoding. What the harness does there is tested
# by processes that set it again: tests/meta/test_user_state.py.
for _name in ("LANG", "LANGUAGE", "PYTHONUTF8", "PYTHONIOENCODING", *(n for n in os.environ if n.startswith("LC_"))):
    os.environ.pop(_name, None)
os.environ["LC_ALL"] = "C.UTF-8"
if codecs.lookup(locale.getencoding()).name != "utf-8":
    locale.setlocale(locale.LC_CTYPE, "C.UTF-8")

# A process that was started with that folder on PYTHONPATH (a worker of pytest-xdist) imitates the machine already.
_paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
if (_machine := os.environ.get("HARNESS_TEST_ONEDNN")) and _ONEDNN not in _paths:
    onednn.imitate(_machine)
    os.environ["PYTHONPATH"] = os.pathsep.join([_ONEDNN, *filter(None, _paths)])  # of processes that tests start


# The extensions that were deleted on purpose: tests/meta/without.py names them.
DELETED = [name for name in EXTENSIONS if name in os.environ.get("HARNESS_TEST_WITHOUT", "").split(",")]
WHOLE = [  # tests of all components, of all committed records, and of documents that name all modules and commands
    *(
        "cli/test_help.py",
        "docs/test_commands.py",
        "docs/test_design.py",
        "docs/test_pages.py",
        "heads/test_signatures.py",
    ),
    *("report/test_committed.py", "test_architecture.py", "test_readme.py"),
]
ELSEWHERE = {  # extension -> tests of it that are not in the folder of its name, but beside fixtures that they need
    "board": ["cli/test_difference.py", "cli/test_reproduce.py", "report/test_planted.py"],
    "conformance": ["submissions"],
    "diagnostics": ["cli/test_diagnos*.py", "cli/test_experiment.py", "experiments/*"],
    "integrity": ["security/test_hostile_bundles.py", "submissions"],
    "tracking": ["system/test_tracking_*.py"],
}
collect_ignore = [*DELETED, *(WHOLE if DELETED else ())]
collect_ignore_glob = [str(ROOT / "tests" / each) for name in DELETED for each in ELSEWHERE.get(name, ())]


def pytest_runtest_setup(item):
    for needs in item.iter_markers("needs"):
        for name in set(needs.args) & set(DELETED):
            pytest.skip(f"the extension '{name}' is not there")


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what `-m` does not name
def pytest_collection_modifyitems(items):
    """All tests of tests/system have the marker `system`."""
    for item in items:
        if item.path.is_relative_to(ROOT / "tests" / "system"):
            item.add_marker("system")


TINY_SUITE = """\
name: tiny
version: 1
corpora:
  - markov: {vocab_size: 12, num_tokens: 400, branching: 3}
backbones:
  - lstm: {d_model: 8, num_layers: 1, dropout: 0.1}
heads:
  - softmax
  - mos: {num_mixtures: [2, 3], dropout: 0.1}
train: {optimizer: adam, lr: 0.01, epochs: 2, batch_size: 4, seq_len: 7}
seeds: [1, 2]
measure: {exclusive: false}
table: {baseline: softmax}
"""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config) -> int:
    """The number of test processes for `-n auto`: one for each core that this process may use, at most four; with
    `-m system` twice as many, because such tests often wait for the processes that they start.
    """
    cores = min(cpus_available(), 4)
    return 2 * cores if config.option.markexpr == "system" else cores


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable():
    """A report as a worker of pytest-xdist sends it, with lone surrogates escaped: pytest-xdist cannot send them."""
    return _printable((yield))


def _printable(content):
    if isinstance(content, str):
        return content.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(content, dict):
        return {key: _printable(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return type(content)(map(_printable, content))
    return content


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """A cache folder of all test processes and their commands, with a probe of the machine's products. The
    fastest route is not measured: oneDNN is taken wherever its products are exact, so that the load of the machine does
    not decide which route the tests take.
    """
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # of all workers: what one has computed the others read
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(base / "user-cache"))
        patch.setenv("HARNESS_CACHE", str(base / "cache"))
        if not os.access(Path.home(), os.W_OK):  # Ray keeps its token there
            (base / "home").mkdir(exist_ok=True)
            patch.setenv("HOME", str(base / "home"))
        if "HARNESS_TEST_ONEDNN" not in os.environ:
            patch.setattr(routes, "_speedup", lambda: 2 * routes.WORTHWHILE)
        routes.load_probe()
        yield


@pytest.fixture(scope="module", autouse=True)
def _frozen():
    """What was made before a module's tests (imports, the tests themselves) is not looked through each time that the
    harness collects garbage.
    """
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    """What extensions keep is given back when the process ends, or they complain."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _no_seeds_for_missing_devices():
    """torch.manual_seed formats the whole stack three times for devices that this machine may get later: of a training
    step in a test that is as much as the step.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not torch.cuda.is_available():
            for module in (torch.cuda, torch.xpu, torch.mtia):
                patch.setattr(module, "manual_seed_all", lambda seed: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _quiet_machine():
    """Trials in this process find no other work beside them, at any load of the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "BUSY_CORES", math.inf)
        yield


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real corpora: HARNESS_DATA, or ../shared/data beside the checkout."""
    folder = Path(os.environ.get("HARNESS_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "ptb").is_dir():
        pytest.skip(f"the real corpora are not in {folder}; name their folder with HARNESS_DATA")
    return folder


@pytest.fixture
def tiny_suite(tmp_path) -> Path:
    """Six trials of a second or less each, in a folder of their own."""
    path = tmp_path / "suites" / "tiny.yaml"
    path.parent.mkdir()
    path.write_text(TINY_SUITE)
    return path


@pytest.fixture
def times_read(monkeypatch) -> Counter[Path]:
    """How many times each record is read in this test, by its folder."""
    counts, load = Counter(), store.load

    def counted(runs, trial_id):
        found = load(runs, trial_id)
        counts.update([store.folder(runs, trial_id)] if found is not None else [])
        return found

    monkeypatch.setattr(store, "load", counted)
    return counts


@pytest.fixture
def harness(monkeypatch, capsys):
    """A function: arguments -> exit code, standard output, standard error, and processor seconds of the command line in
    this process. A test that calls a command of an extension that was deleted is skipped there.
    """
    from harness import cli
    from harness.cli import commands

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)  # trials of tests are on the CPU
    gone = commands._ALL.keys() - commands.COMMANDS.keys()

    def call(*arguments) -> SimpleNamespace:
        if gone.intersection(arguments[:1]):
            pytest.skip(f"the command '{arguments[0]}' is of an extension that is not there")
        monkeypatch.setattr(sys, "argv", ["harness", *map(str, arguments)])
        before, began, code = signal.getsignal(signal.SIGTERM), time.process_time(), 0
        try:
            cli.main()
        except SystemExit as left:
            code = left.code or 0
        finally:
            signal.signal(signal.SIGTERM, before)
        seconds, captured = time.process_time() - began, capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err, seconds=seconds)

    return call


@pytest.fixture
def cheating(monkeypatch):
    """tests/support/hostile/cheating.py, its head `cheating` and its backbones known to this process."""
    from hostile import cheating as module

    from harness.registry import BACKBONES, HEADS

    HEADS.names(), BACKBONES.names()  # all others are known before these
    monkeypatch.setitem(HEADS._classes, "cheating", module.Cheating)
    monkeypatch.setitem(BACKBONES._classes, "looking_ahead", module.LookingAhead)
    monkeypatch.setitem(BACKBONES._classes, "telling", module.Telling)
    monkeypatch.setitem(BACKBONES._classes, "mixing_rows", module.MixingRows)
    monkeypatch.setitem(BACKBONES._classes, "shared_memory", module.SharedMemory)
    monkeypatch.setitem(BACKBONES._classes, "left_known", module.LeftKnown)
    return module


@pytest.fixture
def careless(monkeypatch):
    """tests/support/hostile/careless.py, its heads and backbones known to this process."""
    from hostile import careless as module

    from harness.registry import BACKBONES, HEADS

    for registry, classes in ((HEADS, module.HEADS), (BACKBONES, module.BACKBONES)):
        registry.names()  # all others are known before these
        for name, cls in classes.items():
            monkeypatch.setitem(registry._classes, name, cls)
    return module
