"""Six tiny trials, and records made by hand: no trial is run for a test of tracking."""

import shutil

import handmade
import pytest

from harness import plan
from harness.records.record import CurvePoint, TrialRecord

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
def suite(tmp_path_factory):
    """Six trials: softmax, mos of K = 2 and 3, under seeds 1 and 2."""
    path = tmp_path_factory.mktemp("suites") / "tiny.yaml"
    path.write_text(SUITE)
    return plan.load(path)


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
        values = {"metrics": metrics, "curve": curve, "weights_sha256": "ab" * 32} if status == "ok" else {}
        values = {"metrics": {}, "curve": (), **values, **changes}
        return TrialRecord(suite="tiny", spec=trial, status=status, environment=environment, message=message, **values)

    return make


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A results folder with an empty store; making one takes seconds, copying it none."""
    from harness.tracking.tracker import Tracker

    results = tmp_path_factory.mktemp("empty")
    Tracker(results)
    return results


@pytest.fixture
def results(empty, tmp_path):
    return shutil.copytree(empty, tmp_path / "results")
