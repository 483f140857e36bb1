"""Shared by all tests: modules (_SHARED below), the corpora's folder, a small suite of quick trials.

`HARNESS_TEST_ONEDNN` runs the tests as on a machine with another oneDNN: tests/onednn/sitecustomize.py.
"""

import importlib.util
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest
import torch

from harness.kernels import probe

# No example of a property fails because the machine is busy.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")

ROOT = Path(__file__).parent.parent
_SHARED = ("oracles", "handmade", "commands", "disturbed", "fuzz", "shown", "protections", "bundles")
_FILES = {name: ROOT / "tests" / f"{name}.py" for name in _SHARED}
_FILES["onednn"] = ROOT / "tests" / "onednn" / "sitecustomize.py"

# tests/ must not be on sys.path: its folders `heads` and `backbones` would be found instead of the packages.
for _name, _file in _FILES.items():
    _spec = importlib.util.spec_from_file_location(_name, _file)
    sys.modules[_name] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[_name])

# What a terminal, a CI service or a proxy sets changes what commands print and whom they ask. typer reads it at import.
for _name in (
    *("COLUMNS", "LINES", "TERM", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
    *("GITHUB_ACTIONS", "http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"),
):
    os.environ.pop(_name, None)

if _machine := os.environ.get("HARNESS_TEST_ONEDNN"):
    sys.modules["onednn"].imitate(_machine)
    _paths = [str(_FILES["onednn"].parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(_paths)  # of processes that tests start

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


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """The probe of this machine's products is made once for all tests, and kept for them alone. Tests that compare bits
    need one route in all processes; a home folder that cannot be written would have each process choose by its clock.
    """
    folder = tmp_path_factory.mktemp("user-cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.setattr(probe, "CACHE", folder / "output-head-harness" / "probes")
        yield


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch, tmp_path_factory):
    """What a developer's shell sets must not reach a test, and no test's token files the developer's cache."""
    for name in ("HARNESS_DATA", "HARNESS_RESULTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real corpora: HARNESS_DATA, or ../shared/data beside the checkout."""
    folder = Path(os.environ.get("HARNESS_DATA", ROOT.parent / "shared" / "data"))
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
def harness(monkeypatch, capsys):
    """A function: arguments -> exit code, standard output, standard error, and processor seconds of the command line in
    this process.
    """
    from harness import cli

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)  # trials of tests are on the CPU

    def call(*arguments) -> SimpleNamespace:
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
    """tests/hostile/cheating.py, its head `cheating` and its backbone `looking_ahead` known to this process."""
    from harness.registry import BACKBONES, HEADS

    place = ROOT / "tests" / "hostile" / "cheating.py"
    spec = importlib.util.spec_from_file_location("cheating", place)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "cheating", module)  # a signature's annotations are looked up there
    HEADS.names(), BACKBONES.names()  # all others are known before these
    spec.loader.exec_module(module)
    monkeypatch.setitem(HEADS._classes, "cheating", module.Cheating)
    monkeypatch.setitem(BACKBONES._classes, "looking_ahead", module.LookingAhead)
    return module
