"""A stranger's head in a folder of its own, trained once on a tiny suite that is released, and copies to falsify."""

import importlib.util
import shutil
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import plan
from harness.exchange.copying import export_records
from harness.execution import inline
from harness.execution.executors import Execution, Resources
from harness.records import choices, store
from harness.registry import HEADS
from harness.submissions import archive, checking, inside, released
from harness.trial.task import Task

SUITE = """\
name: board
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 1, dropout: 0.1}}]
heads: [softmax]
train: {optimizer: adam, lr: 0.01, epochs: 2, batch_size: 4, seq_len: 7}
tune: {epochs: 1, space: {train.lr: [0.003, 0.01, 0.03]}}
seeds: [1, 2, 3]
measure: {exclusive: false}
table: {baseline: softmax}
"""
HEAD = '''\
"""A softmax with a temperature for each word."""

import torch
from torch import nn

from harness.distributions import Logits
from harness.protocols import Hidden
from harness.registry import HEADS


@HEADS.register("mine")
class Mine(nn.Module):
    """log p = log_softmax(exp(a) * (W h + b)), with a scale a for each word."""

    def __init__(self, dims, embedding, *, start: float = 0.1):
        super().__init__()
        self.output = nn.Linear(dims.layer_dims[-1], dims.vocab_size)
        self.scale = nn.Parameter(torch.full((dims.vocab_size,), start))

    def forward(self, hidden: Hidden) -> Logits:
        return Logits(self.scale.exp() * self.output(hidden.layers[-1]))
'''
CARD = """\
name: Scaled softmax
sentence: Each word has a temperature.
authors: [Ada Example]
licence: MIT
"""
SPEC = "{mine: {start: 0.2}}"


def registered(place: Path) -> None:
    """Import a file as a module of harness.heads, as the registry does for ./heads."""
    HEADS.names()
    module = f"harness.heads.{place.stem}"
    spec = importlib.util.spec_from_file_location(module, place)
    sys.modules[module] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[module])


def trained(folder: Path, suite: plan.Suite, head: str) -> None:
    """Train the trials of the head that was appended, tuning first, as `harness run --only` does."""
    runs = store.runs_folder(folder / "results", suite.name)
    about = {"suite": suite.name, "runs": runs, "data": folder / "data", "device": "cpu", "executor": "inline"}
    for tuning in (True, False):
        records = choices.read(suite, folder / "results", pytest.fail)
        records = choices.keep(records, records.suite.rows)
        rows = inside.planned_rows(records.suite)
        specs = [spec for row in rows for spec in (row.tuning_trials if tuning else row.trials)]
        tasks = [Task(spec=each, **about, contents=suite.contents_of(each), tuning=tuning) for each in specs]
        inline.execute(Execution(tasks=tasks, resources=Resources(cpus=1, gpus=0)), lambda event: None)


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """A project with a suite, the file heads/mine.py, a card, and the trained trials of the head `mine`."""
    folder = tmp_path_factory.mktemp("board")
    (folder / "suites").mkdir()
    (folder / "heads").mkdir()
    (folder / "suites" / "board.yaml").write_text(SUITE)
    (folder / "heads" / "mine.py").write_text(HEAD)
    (folder / "card.yaml").write_text(CARD)
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        registered(folder / "heads" / "mine.py")
        trained(folder, plan.load(folder / "suites" / "board.yaml", (f"heads+={SPEC}",)), SPEC)
    assert Path.cwd() == before
    yield folder
    for registry in (HEADS._classes, HEADS._modules):
        registry.pop("mine", None)
    sys.modules.pop("harness.heads.mine", None)


@pytest.fixture
def here(board, tmp_path, monkeypatch):
    """A copy of the project as the current folder, whose suite is a released one."""
    folder = shutil.copytree(board, tmp_path / "here")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(released, "suite_file", lambda name: folder / "suites" / f"{name}.yaml")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return folder


@pytest.fixture
def sent(here, harness):
    """The file that `harness submit` writes of it."""
    done = harness("submit", "board", "--head", SPEC)
    assert done.code == 0, done.err
    (place,) = (here / "submissions" / "board").glob("*.zip")
    return place


def in_this_process(job, seconds):
    """The checks that execute the source, without limits: the source is known here."""
    return inside.JOBS[job.kind](job)


@pytest.fixture
def check(here):
    """A function: a submission -> its checks by name, without a process of its own."""

    def checks(place: Path, *, training: bool = False, **options) -> SimpleNamespace:
        how = checking.Options(data=here / "data", training=training, run=in_this_process, **options)
        found = checking.checked(place, how)
        return SimpleNamespace(by_name={each.name: each for each in found.checks}, all=found)

    return checks


@pytest.fixture
def again(here, sent):
    """A function: a change of the folder of records, another source, a change of the card -> another submission."""

    def write(change=None, *, source=None, card=None) -> Path:
        with zipfile.ZipFile(sent) as file:
            parts = {name: file.read(name) for name in file.namelist()}
        results = here / "forged"
        shutil.rmtree(results, ignore_errors=True)
        shutil.copytree(here / "results", results)
        runs = store.runs_folder(results, "board")
        if change is not None:
            change(runs)
        (here / "forged.zip").unlink(missing_ok=True)
        export_records(results, here / "forged.zip")
        parts[archive.RECORDS] = (here / "forged.zip").read_bytes()
        if source is not None:
            parts[archive.SOURCE] = source.encode()
        if card is not None:
            parts[archive.CARD] = card(parts[archive.CARD].decode()).encode()
        place = here / "submissions" / "board" / "forged.zip"
        archive.write(place, parts)
        return place

    return write


@pytest.fixture
def board_module():
    """This module, whose functions a test needs."""
    return SimpleNamespace(trained=trained)
