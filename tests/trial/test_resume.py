"""An interrupted trial ends with the bits of an undisturbed one, for every head and backbone: RELIABILITY D1 to D3."""

from functools import partial

import handmade
import pytest
import torch
from commands import EVERY_BACKBONE, EVERY_HEAD

from harness import plan
from harness.machine.stop_request import Interrupted
from harness.plan.suite_file import CheckpointSpec
from harness.records import store
from harness.registry import BACKBONES, HEADS
from harness.training.checkpoint import Checkpoints
from harness.training.cuda_graph import GraphStep, graphed
from harness.training.step import EagerStep
from harness.trial import stages
from harness.trial.run import run

EVERY_STEP = CheckpointSpec(epochs=1, minutes=1e-9)
ENDS = CheckpointSpec()
STEPS, EPOCHS = 15, 3  # 400 tokens in 4 columns: 99 targets in segments of 7


def setting(runs, pace=EVERY_STEP):
    return partial(handmade.task, runs=runs, checkpoint=pace)


def disturbed(spec, folder, monkeypatch, at, pace=EVERY_STEP):
    """The record of a trial that is interrupted before each of the steps `at`, counted over the whole trial."""
    step, done, left = EagerStep.advance, [], list(at)

    def advance(self, *arguments):
        if left and len(done) == left[0]:
            left.pop(0)
            raise Interrupted
        done.append(1)
        return step(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(EagerStep, "advance", advance)
        for _ in at:
            with pytest.raises(KeyboardInterrupt):
                run(setting(folder, pace)(spec=spec))
            if pace is ENDS:  # what was done since the last checkpoint is done again
                done[:] = done[: len(done) // STEPS * STEPS]
        return run(setting(folder, pace)(spec=spec))


def same(one, other):
    """All that must not depend on how a trial was run."""
    assert (one.status, other.status) == ("ok", "ok"), (one.message, other.message)
    assert one.weights_sha256 == other.weights_sha256
    for name in ("valid_ppl", "test_ppl", "last_valid_ppl", "last_test_ppl", "best_epoch", "scored_test_tokens"):
        assert one.metrics[name] == other.metrics[name]
    assert [(p.epoch, p.train_loss, p.valid_ppl, p.lr) for p in one.curve] == [
        (p.epoch, p.train_loss, p.valid_ppl, p.lr) for p in other.curve
    ]


def suite(tmp_path, text, *overrides):
    path = tmp_path / "suites" / "tiny.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return plan.load(path, overrides)


def text(heads, backbones, train="{optimizer: adam, lr: 0.01, epochs: 3, batch_size: 4, seq_len: 7}"):
    return (
        "name: tiny\nversion: 1\ncorpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]\n"
        f"backbones: {backbones}\nheads: {heads}\ntrain: {train}\nseeds: [1]\n"
    )


LSTM, SOFTMAX = EVERY_BACKBONE[0], "[softmax]"
ADAM = "{optimizer: adam, lr: 0.01, epochs: 3, batch_size: 4, seq_len: 7}"
OPTIMISERS = {
    "sgd": "{optimizer: sgd, lr: 1.0, momentum: 0.9, clip: 0.25, epochs: 3, batch_size: 4, seq_len: 7}",
    "plateau": "{optimizer: adam, lr: 0.5, schedule: {plateau: {factor: 0.5}}, epochs: 5, batch_size: 4, seq_len: 7}",
    "momentum reset": "{optimizer: sgd, lr: 1.0, momentum: 0.9, reset_momentum: true, epochs: 3, batch_size: 4, "
    "seq_len: 7}",
    "previous": "{optimizer: adam, lr: 0.3, schedule: {plateau: {factor: 0.5, threshold: 2.0, reference: previous}}, "
    "epochs: 5, batch_size: 4, seq_len: 7}",
    "step": "{optimizer: sgd, lr: 1.0, schedule: {step: {after: 1, factor: 0.5}}, epochs: 3, batch_size: 4, "
    "seq_len: 7}",
    "cosine": "{optimizer: sgd, lr: 1.0, schedule: {warmup: {steps: 20, decay: cosine}}, epochs: 3, batch_size: 4, "
    "seq_len: 7}",
    "adamw of transformers": "{optimizer: adamw_huggingface, lr: 0.01, weight_decay: 0.1, epochs: 3, batch_size: 4, "
    "seq_len: 7}",
    "adamw": "{optimizer: adamw, lr: 0.01, weight_decay: 0.1, epochs: 3, batch_size: 4, seq_len: 7}",
    "shuffled": "{optimizer: adam, lr: 0.01, shuffle: true, epochs: 3, batch_size: 4, seq_len: 7}",
    "bf16": "{optimizer: adam, lr: 0.01, precision: bf16, epochs: 3, batch_size: 4, seq_len: 7}",
}


@pytest.mark.parametrize("head", EVERY_HEAD)
def test_resume_bit_exact_for_every_head(head, tmp_path, monkeypatch):
    (spec,) = suite(tmp_path, text(f"[{head}]", f"[{LSTM}]")).trials
    whole = run(setting(tmp_path / "whole", ENDS)(spec=spec))
    same(whole, disturbed(spec, tmp_path / "cut", monkeypatch, at=[1, 22, 38]))


@pytest.mark.guards("position-state", "step-state")
@pytest.mark.parametrize("backbone", EVERY_BACKBONE)
def test_resume_bit_exact_for_every_backbone(backbone, tmp_path, monkeypatch):
    (spec,) = suite(tmp_path, text(SOFTMAX, f"[{backbone}]")).trials
    whole = run(setting(tmp_path / "whole", ENDS)(spec=spec))
    same(whole, disturbed(spec, tmp_path / "cut", monkeypatch, at=[5, 15, 44]))


@pytest.mark.guards("shuffle-seed", case="shuffled")
@pytest.mark.guards("learning-rate-state", "schedule-state", case="plateau")
@pytest.mark.guards("optimizer-state", case="adamw")
@pytest.mark.parametrize("name", OPTIMISERS)
def test_resume_bit_exact_for_every_way_of_training(name, tmp_path, monkeypatch):
    (spec,) = suite(tmp_path, text(SOFTMAX, f"[{LSTM}]", OPTIMISERS[name])).trials
    whole = run(setting(tmp_path / "whole", ENDS)(spec=spec))
    last = 15 * (int(spec.train.epochs) - 1) + 1  # the second step of the last epoch
    same(whole, disturbed(spec, tmp_path / "cut", monkeypatch, at=[3, 16, last - 15, last]))
    changes = name in ("plateau", "previous", "step", "cosine")
    assert (len({point.lr for point in whole.curve}) > 1) == changes  # a schedule acts, in the last epoch at the latest


@pytest.mark.guards("scores-state")
def test_resume_bit_exact_from_the_ends_of_epochs(tmp_path, monkeypatch):
    (spec,) = suite(tmp_path, text(SOFTMAX, f"[{LSTM}]")).trials
    whole = run(setting(tmp_path / "whole", ENDS)(spec=spec))
    cut = disturbed(spec, tmp_path / "cut", monkeypatch, at=[5, 20, 44], pace=ENDS)
    same(whole, cut)
    assert cut.environment.sessions == 3  # the first was interrupted before its first checkpoint


@pytest.mark.guards("curve-state")
def test_resume_no_duplicate_steps_in_the_curve(tmp_path, monkeypatch):
    (spec,) = suite(tmp_path, text(SOFTMAX, f"[{LSTM}]")).trials
    record = disturbed(spec, tmp_path / "cut", monkeypatch, at=[5, 20, 35, 44])
    assert [point.epoch for point in record.curve] == [1, 2, 3]
    assert record.environment.sessions == 5


def test_every_head_and_backbone_is_among_those_tested():
    assert {head.strip("{").partition(":")[0] for head in EVERY_HEAD} == {*HEADS.names()} - {"faulty"}
    assert {backbone.strip("{").partition(":")[0] for backbone in EVERY_BACKBONE} == {*BACKBONES.names()}


def test_same_seed_same_bits_in_two_runs(tmp_path):
    (spec,) = suite(tmp_path, text("[{mos: {num_mixtures: 2, dropout: 0.2}}]", f"[{LSTM}]")).trials
    one, two = (run(setting(tmp_path / name, ENDS)(spec=spec)) for name in "ab")
    same(one, two)


@pytest.mark.guards("generators-state", "python-random-state", "numpy-random-state", "python-seed", "numpy-seed")
def test_a_plug_in_that_draws_from_python_and_numpy_resumes_too(tmp_path, monkeypatch):
    import random

    import numpy as np

    forward = HEADS.get("softmax").forward

    def noisy(self, hidden):
        if self.training:
            hidden.layers[-1].mul_(1 + random.random() + np.random.rand())
        return forward(self, hidden)

    monkeypatch.setattr(HEADS.get("softmax"), "forward", noisy)
    (spec,) = suite(tmp_path, text(SOFTMAX, f"[{LSTM}]")).trials
    whole = run(setting(tmp_path / "whole", ENDS)(spec=spec))
    same(whole, disturbed(spec, tmp_path / "cut", monkeypatch, at=[5, 20, 44]))


@pytest.mark.guards("changes-between-sessions")
def test_what_changed_between_sessions_is_reported(tmp_path, monkeypatch):
    (spec,) = suite(tmp_path, text(SOFTMAX, f"[{LSTM}]")).trials
    monkeypatch.setattr("harness.machine.environment.commit", lambda: "aaa")
    step, done = EagerStep.advance, []

    def advance(self, *arguments):
        if len(done) == 20:
            raise Interrupted
        done.append(1)
        return step(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(EagerStep, "advance", advance)
        with pytest.raises(KeyboardInterrupt):
            run(setting(tmp_path, ENDS)(spec=spec))
    monkeypatch.setattr("harness.machine.environment.commit", lambda: "bbb")
    record = run(setting(tmp_path, ENDS)(spec=spec))
    assert record.environment.commit == "bbb"
    assert record.environment.changed == ("commit aaa until epoch 2",)
    assert store.load(tmp_path, spec.id) == record


@pytest.mark.guards("resume", "checkpoint-after-last-epoch", "clocks-state", "scores-state")
def test_between_checkpoint_and_record_the_record_is_made_of_the_checkpoint_alone(tmp_path, monkeypatch):
    (spec,) = suite(tmp_path, text(SOFTMAX, f"[{LSTM}]")).trials
    whole = run(setting(tmp_path / "whole", ENDS)(spec=spec))

    def killed(record, runs):
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(store, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            run(setting(tmp_path / "cut", ENDS)(spec=spec))
    with monkeypatch.context() as patch:
        patch.setattr(EagerStep, "advance", None)  # not one step more
        cut = run(setting(tmp_path / "cut", ENDS)(spec=spec))
    same(whole, cut)
    assert cut.metrics["train_ms_per_batch"] > 0


@pytest.mark.guards("checkpoint-of-this-trial")
def test_stale_reuse_checkpoints_of_another_trial_are_not_used(tmp_path, monkeypatch):
    one = suite(tmp_path, text(SOFTMAX, f"[{LSTM}]")).trials[0]
    other = suite(tmp_path, text(SOFTMAX, f"[{LSTM}]"), "train.lr=0.02").trials[0]
    with monkeypatch.context() as patch:
        patch.setattr(store, "save", lambda record, runs: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(setting(tmp_path / "runs", ENDS)(spec=one))
    (tmp_path / "runs" / one.id).rename(tmp_path / "runs" / other.id)
    whole = run(setting(tmp_path / "whole", ENDS)(spec=other))
    found = run(setting(tmp_path / "runs", ENDS)(spec=other))
    same(whole, found)
    assert found.environment.sessions == 1


@pytest.mark.guards("fresh-without-checkpoint")
def test_fresh_begins_anew_whatever_checkpoints_there_are(tmp_path, monkeypatch):
    (spec,) = suite(tmp_path, text(SOFTMAX, f"[{LSTM}]")).trials
    with monkeypatch.context() as patch:
        patch.setattr(store, "save", lambda record, runs: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(setting(tmp_path, ENDS)(spec=spec))
    assert Checkpoints(tmp_path / spec.id).newest(spec.id) is not None
    anew = partial(handmade.task, runs=tmp_path, fresh=True)
    assert run(anew(spec=spec)).environment.sessions == 1


def test_a_step_that_is_replayed_resumes_within_an_epoch(tmp_path, monkeypatch):
    # as a CUDA graph does, but for the recording: the replay of work is the work
    def replayed(step, segment, parts, *, log):
        made = graphed(step, segment, parts, log=log, record=lambda work: work)
        assert isinstance(made, GraphStep)
        return made

    (spec,) = suite(tmp_path, text(SOFTMAX, f"[{LSTM}]")).trials
    whole = run(setting(tmp_path / "whole", ENDS)(spec=spec))
    monkeypatch.setattr(stages, "graphed", replayed)
    calls, call = [], GraphStep.__call__

    def interrupted(self, segment):
        calls.append(1)
        if len(calls) in (6, 25):
            raise Interrupted
        call(self, segment)

    monkeypatch.setattr(GraphStep, "__call__", interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(setting(tmp_path / "cut")(spec=spec))
    cut = run(setting(tmp_path / "cut")(spec=spec))
    same(whole, cut)
    assert cut.environment.cuda_graph


@pytest.mark.guards("torch-deterministic", "cublas-deterministic")
@pytest.mark.parametrize(
    ("asked", "enabled", "warns"), [("false", False, False), ("warn", True, True), ("true", True, False)]
)
def test_deterministic_flags_are_set_for_the_trial_and_put_back(asked, enabled, warns, tmp_path, monkeypatch):
    seen, step = set(), EagerStep.advance

    def advance(self, *arguments):
        seen.add((torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()))
        return step(self, *arguments)

    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr(EagerStep, "advance", advance)
    loaded = suite(tmp_path, text(SOFTMAX, f"[{LSTM}]"), f"train.deterministic={asked}")
    plain = suite(tmp_path, text(SOFTMAX, f"[{LSTM}]"))
    assert loaded.trials[0].id == plain.trials[0].id
    record = run(setting(tmp_path, ENDS)(spec=loaded.trials[0]))
    assert record.status == "ok"
    assert record.spec.train.deterministic == asked
    assert seen == {(enabled, warns)}
    assert not torch.are_deterministic_algorithms_enabled()
    import os

    assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == (":4096:8" if enabled else None)
