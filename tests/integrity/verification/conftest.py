"""Trials that were really trained, once for all tests, and copies of them to falsify."""

import shutil
from types import SimpleNamespace

import pytest

from harness import plan
from harness.execution import inline
from harness.execution.executors import Execution, Resources
from harness.records import sidecars, store
from harness.training.checkpoint import BEST
from harness.trial.task import Task

SUITE = """\
name: tiny
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 1, dropout: 0.1}}]
heads: [softmax, {mos: {num_mixtures: 2}}]
train: {optimizer: adam, lr: 0.01, epochs: 2, batch_size: 4, seq_len: 7}
seeds: [1, 2, 3]
"""


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A results folder with six finished trials."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.yaml").write_text(SUITE)
    suite = plan.load(folder / "tiny.yaml")
    runs = store.runs_folder(folder / "results", "tiny")
    about = {"suite": "tiny", "runs": runs, "data": folder / "data", "device": "cpu", "executor": "inline"}
    tasks = [Task(spec=spec, **about, contents=suite.contents_of(spec)) for spec in suite.trials]
    inline.execute(Execution(tasks=tasks, resources=Resources(cpus=1, gpus=0)), lambda event: None)
    return folder


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    """A copy as the current folder: its runs, the ids of the trials by head and seed; of the first one the record and
    the files beside it.
    """
    folder = shutil.copytree(trained, tmp_path / "here")
    monkeypatch.chdir(folder)
    runs = store.runs_folder(folder / "results", "tiny")
    ids = {(spec.head.name, spec.seed): spec.id for spec in plan.load(folder / "tiny.yaml").trials}
    one = ids["softmax", 1]
    beside = {"best": runs / one / BEST, "scores": runs / one / sidecars.TOKEN_NLL.file}
    return SimpleNamespace(folder=folder, runs=runs, ids=ids, one=one, record=store.load(runs, one), **beside)


@pytest.fixture
def forge(place):
    """A function: changes of metrics, of the spec, of other fields -> a record is changed and sealed anew. A metric
    that is None is taken out.
    """

    def write(trial: str | None = None, **changes) -> None:
        record = store.load(place.runs, trial or place.one)
        metrics = {**record.metrics, **changes.pop("metrics", {})}
        metrics = {name: value for name, value in metrics.items() if value is not None}
        spec = record.spec.model_copy(update=changes.pop("spec", {}))
        store.save(record.model_copy(update={**changes, "metrics": metrics, "spec": spec}), place.runs)

    return write


@pytest.fixture
def verify(harness):
    """`harness verify`: its exit code and output."""
    return lambda *arguments: harness("verify", *arguments)
