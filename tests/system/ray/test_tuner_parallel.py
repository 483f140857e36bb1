"""Data-parallel trials by Ray Train, two workers on CPUs: one run of Ray serves all tests."""

from types import SimpleNamespace

import pytest
import torch

from harness import plan
from harness.execution import inline
from harness.execution.executors import Execution, Resources
from harness.execution.ray import session, tuner
from harness.plan.specs import ComponentSpec
from harness.records import store
from harness.training.checkpoint import BEST, load_weights

ONE = Resources(cpus=1, gpus=0.0)
STEPS = 15  # an epoch: 400 tokens in 4 columns, 99 targets in segments of 7
SUITE = """\
name: tiny
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 2, dropout: 0.0}}]
heads: [softmax]
train: {optimizer: sgd, lr: 0.5, clip: 0.5, epochs: 3, batch_size: 4, seq_len: 7}
seeds: [1]
"""
PLUGIN = """\
import os, signal
from pathlib import Path
import torch
from harness.heads.softmax import Softmax

class Mortal(Softmax):
    "A softmax whose second worker is killed in its 20th step, once, or raises."
    def __init__(self, dims, embedding, *, fate: str = "none"):
        super().__init__(dims, embedding)
        self.fate, self.steps = fate, 0

    def forward(self, hidden):
        self.steps += self.training
        if self.steps == 20 and torch.distributed.is_initialized() and torch.distributed.get_rank() == 1:
            mark = Path(os.environ["HARNESS_TEST_MARK"])
            if self.fate == "killed" and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fate == "raises":
                raise ValueError("planted in the second worker")
        return super().forward(hidden)
"""


def loaded(place, workers: int) -> tuple:
    path = place / "parallel.yaml"
    path.write_text(SUITE)
    return plan.load(path, (f"train.data_parallel={workers}",)).trials


@pytest.fixture(scope="module")
def ran(place, tasks, plugin):
    """Under Ray with two workers each: a trial whose second worker is killed, the same one undisturbed, and one whose
    second worker raises; then one worker inline.
    """
    plugin("mortal", "Mortal", PLUGIN)
    first = loaded(place, 2)[0]
    heads = {fate: ComponentSpec(name="mortal", params={"fate": fate}) for fate in ("none", "killed", "raises")}
    named = enumerate(heads.items(), start=1)
    fated = {fate: first.model_copy(update={"id": f"{i:012x}", "head": head}) for i, (fate, head) in named}
    events, runs = [], place / "parallel"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_TEST_MARK", str(place / "killed"))
        patch.setattr(session, "cpus_available", lambda: 2)  # whatever this machine has: one such trial fits
        tuner.execute(Execution(tasks=tasks(fated.values(), "parallel", "ray"), resources=ONE), events.append)
    softmax = loaded(place, 1)[0]
    inline.execute(Execution(tasks=tasks([softmax], "alone", "inline"), resources=ONE), lambda event: None)
    pair = ((runs, fated["none"].id), (place / "alone", softmax.id))
    return SimpleNamespace(events=events, runs=runs, fated=fated, pair=pair)


def test_two_workers_give_the_curve_and_weights_of_one(ran):
    """For further models, without Ray: tests/gpu/test_data_parallel.py."""
    ours, theirs = (store.load(runs, trial) for runs, trial in ran.pair)
    assert (ours.status, ours.spec.train.data_parallel, ours.environment.executor) == ("ok", 2, "ray"), ours.message
    assert theirs.spec.train.data_parallel == 1
    for mine, other in zip(ours.curve, theirs.curve, strict=True):
        assert mine.train_loss == pytest.approx(other.train_loss, rel=2e-6)
        assert mine.valid_ppl == pytest.approx(other.valid_ppl, rel=1e-5)
    assert ours.curve[-1].train_loss < 0.99 * ours.curve[0].train_loss
    weights, expected = (load_weights(runs / trial / BEST, "cpu") for runs, trial in ran.pair)
    assert weights.keys() == expected.keys()
    for key, tensor in weights.items():
        torch.testing.assert_close(tensor, expected[key], rtol=0, atol=2e-5)


def test_a_killed_worker_is_followed_by_others_from_the_checkpoint_to_the_same_bits(ran, place):
    assert (place / "killed").exists()
    killed, undisturbed = (store.load(ran.runs, ran.fated[fate].id) for fate in ("killed", "none"))
    assert (killed.status, killed.environment.sessions, killed.environment.retries) == ("ok", 2, 1)
    assert undisturbed.environment.sessions == 1
    log = (ran.runs / killed.id / "trial.log").read_text()
    assert "goes on from its checkpoint: epoch 2, 0 steps done" in log
    assert killed.weights_sha256 == undisturbed.weights_sha256
    for mine, other in zip(killed.curve, undisturbed.curve, strict=True):
        assert (mine.train_loss, mine.valid_ppl) == (other.train_loss, other.valid_ppl)


def test_what_the_second_worker_raises_is_the_trials_record_and_is_not_tried_again(ran):
    record = store.load(ran.runs, ran.fated["raises"].id)
    assert (record.status, record.message) == ("error", "ValueError: planted in the second worker")
    assert [point.epoch for point in record.curve] == [1]
    log = (ran.runs / record.id / "trial.log").read_text()
    assert "worker 1 of 2:\nTraceback" in log
    assert log.count("training steps are eager: 2 workers, 2 rows each") == 1


def test_trials_of_two_workers_run_one_after_the_other_where_only_one_fits(ran):
    kinds = [(event.kind, event.spec.id) for event in ran.events if event.kind != "progress"]
    assert sorted(trial for kind, trial in kinds if kind == "finished") == sorted(
        spec.id for spec in ran.fated.values()
    )
    running = set()
    for kind, trial in kinds:
        running = running | {trial} if kind == "started" else running - {trial}
        assert len(running) <= 1


def test_progress_of_the_first_worker_is_heard(ran):
    of = [each for each in ran.events if each.spec.id == ran.fated["none"].id]
    own = [each.progress for each in of if each.kind == "progress"]
    assert [(p.epoch, p.epochs) for p in own if p.step == p.steps == STEPS] == [(1, 3), (2, 3), (3, 3)]


def test_nothing_is_left_beside_the_records(ran):
    trials = sorted(spec.id for spec in ran.fated.values())
    assert sorted(path.name for path in ran.runs.iterdir()) == [".locks", *trials]
    for trial in trials:
        names = {path.name for path in (ran.runs / trial).iterdir()}
        if trial == ran.fated["raises"].id:  # a failed trial keeps its checkpoints
            names -= {"best-000001.pt", "checkpoint-000002-00000000-000001.pt"}
        assert names <= {"best.pt", "record.json", "trial.log", "test_nll.npz"}
