"""Fixtures for a conftest.py to import: six tiny trials in a folder, how they are run, and records made by hand."""

from pathlib import Path

import handmade
import pytest

from harness import plan
from harness.records.record import CurvePoint, TrialRecord
from harness.trial.task import Task

SUITE = """\
name: tiny
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 1, dropout: 0.1}}]
heads: [softmax, {mos: {num_mixtures: [2, 3], dropout: 0.1}}]
train: {optimizer: adam, lr: 0.01, epochs: 2, batch_size: 4, seq_len: 7}
seeds: [1, 2]
table: {baseline: softmax}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder for the tests of a module."""
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def suite(place):
    """Six trials of two epochs and 15 batches each: softmax, mos of K = 2 and 3, under seeds 1 and 2."""
    path = place / "suites" / "tiny.yaml"
    path.parent.mkdir()
    path.write_text(SUITE)
    return plan.load(path)


@pytest.fixture(scope="module")
def tasks(place):
    """A function: trials, name of their runs' folder, executor -> their tasks on the CPU."""

    def make(specs, name: str, executor: str, **changes) -> list[Task]:
        about = {"runs": place / name, "data": place / "data", "device": "cpu", "executor": executor, **changes}
        return [Task(spec=spec, suite="tiny", **about) for spec in specs]

    return make


@pytest.fixture
def record_of():
    """A function: trial -> TrialRecord with round numbers."""

    def make(trial, status: str = "ok", message: str = "", **changes) -> TrialRecord:
        finished = {"finished": changes.pop("finished")} if "finished" in changes else {}
        environment = handmade.environment(**finished)
        measured = {"valid_ppl": 9.5, "test_ppl": 9.25, "params_total": 780, "params_head": 108, "best_epoch": 2}
        times = {"train_ms_per_batch": 2.5, "eval_ms_per_batch": 1.5}
        metrics = handmade.measured(trial.train, **measured, **times)
        curve = tuple(
            CurvePoint(epoch=epoch, train_loss=2.5 / epoch, valid_ppl=10.0 - epoch / 4, lr=0.01, seconds=0.5)
            for epoch in (1, 2)
        )
        ok = {"metrics": metrics, "curve": curve, "weights_sha256": "ab" * 32, "certificate": handmade.certificate()}
        values = ok if status == "ok" else {}
        values = {"metrics": {}, "curve": (), **values, **changes}
        return TrialRecord(suite="tiny", spec=trial, status=status, environment=environment, message=message, **values)

    return make
