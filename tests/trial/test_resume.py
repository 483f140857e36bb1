"""An interrupted trial ends with the bits of an undisturbed one, for every head and backbone: RELIABILITY D1 to D3."""

import bisect
import itertools
import json
import math
import os
import random
import re
from functools import cache

import golden
import handmade
import numpy as np
import pytest
import torch
from commands import EVERY_BACKBONE, EVERY_HEAD, TEXT
from disturbed import MARKOV, suite_text
from handmade import interrupted_before
from torch.utils._pytree import keystr, tree_flatten_with_path
from trained import before_steps, killed_before_record, loaded, outcome, ran

from harness.machine.stop_request import Interrupted
from harness.plan.suite_file import CheckpointSpec, MeasureSpec
from harness.records import store
from harness.registry import BACKBONES, HEADS
from harness.training.checkpoint import Checkpoints
from harness.training.parts import OptimizerState
from harness.training.step import EagerStep, steps_of
from harness.trial import stages

pytestmark = pytest.mark.system

EVERY_STEP, ENDS = CheckpointSpec(epochs=1, minutes=1e-9), CheckpointSpec()
START = MeasureSpec(start=True)
STEPS = 15  # of an epoch: 400 tokens in 4 columns: 99 targets in segments of 7
WAYS, PARTS_OF_EPOCHS = golden.read("ways_of_training").values()


@pytest.fixture(autouse=True)
def _uncertified(monkeypatch):
    """No process is asked for certificates: they are no part of what is compared."""
    handmade.without_certifier(monkeypatch)


def trial(folder, head="softmax", backbone=EVERY_BACKBONE[0], overrides=(), corpus=MARKOV, **train):
    settings = {"optimizer": "adam", "lr": 0.01, "epochs": 3, "batch_size": 4, "seq_len": 7, **train}
    backbones, settings = f"backbones: [{backbone}]", f"train: {json.dumps(settings)}"
    text = suite_text(head, backbones=backbones, train=settings, corpus=corpus)
    return loaded(folder, text, *overrides).trials[0]


def disturbed(spec, runs, at, pace=EVERY_STEP, killed=False):
    """The record of a trial that is interrupted before each of the steps `at`, counted over the whole trial."""
    more, begun = {"checkpoint": pace, "measure": START}, 0
    for step in at:
        with interrupted_before(step - begun):
            ran(spec, runs, **more)
        begun = step if pace is EVERY_STEP else step // STEPS * STEPS  # what no checkpoint has is done again
    if killed:
        with killed_before_record():
            ran(spec, runs, **more)
    record = ran(spec, runs, **more)
    assert record.environment.sessions == 1 + killed + (len(at) if pace is EVERY_STEP else sum(s >= STEPS for s in at))
    return record


def stopped(spec, runs, at) -> dict:
    """The state of each part of training, but for times, of a trial that is interrupted before each of the steps."""
    for begun, step in itertools.pairwise([0, *at]):
        with interrupted_before(step - begun):
            ran(spec, runs, checkpoint=EVERY_STEP)
    leaves, _ = tree_flatten_with_path(Checkpoints(runs / spec.id).newest(spec.id).parts)
    names = {keystr(path): leaf for path, leaf in leaves}
    return {name: leaf for name, leaf in names.items() if "clocks" not in name and "seconds" not in name}


def first_difference(spec, folder, at) -> str:
    """After which step a trial that is resumed before each of the steps `at` differs from one that runs through, and
    where: in which tensors of which parts.
    """
    train = spec.train
    an_epoch = STEPS - (train.batching == "blocks")
    steps = sum(steps_of(epoch, train.epochs, an_epoch) for epoch in range(1, math.ceil(train.epochs) + 1))

    @cache
    def differing(step: int) -> list[str]:
        cuts = [cut for cut in at if cut < step]
        one, other = (stopped(spec, folder / f"{step}-{len(each)}", [*each, step]) for each in ([], cuts))
        return [name for name in sorted(one.keys() | other.keys()) if not same(one.get(name), other.get(name))]

    after = range(at[0] + 1, steps)
    first = bisect.bisect_left(after, True, key=lambda step: bool(differing(step)))  # what differs stays different
    return f"after step {after[first]}: {', '.join(differing(after[first]))}" if first < len(after) else "in no part"


def same(one, other) -> bool:
    tensors = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    return torch.equal(one, other) if tensors else one == other


def assert_resumes(spec, folder, at, **more):
    whole = ran(spec, folder / "whole", measure=START)
    resumed = outcome(disturbed(spec, folder / "cut", at, **more))
    assert resumed == outcome(whole), first_difference(spec, folder / "why", at)
    return whole


@pytest.mark.parametrize("head", EVERY_HEAD)
def test_resume_bit_exact_for_every_head(head, tmp_path):
    assert_resumes(trial(tmp_path, head, epochs=2, corpus=TEXT), tmp_path, at=[1, 22])


def test_resume_around_the_share_of_training_at_which_weights_are_untied_is_bit_exact(tmp_path):
    decayed = {"optimizer": "adamw", "weight_decay": 0.1}
    spec = trial(tmp_path, "{untying: {share: 0.5}}", epochs=2, **decayed)  # 30 steps: untied from the sixteenth on
    assert_resumes(spec, tmp_path, at=[14, 15, 16, 17])


@pytest.mark.parametrize("backbone", EVERY_BACKBONE)
def test_resume_bit_exact_for_every_backbone(backbone, tmp_path):
    assert_resumes(trial(tmp_path, backbone=backbone, epochs=2), tmp_path, at=[5, 15, 29])


@pytest.mark.parametrize("name", WAYS)
def test_resume_bit_exact_for_every_way_of_training(name, tmp_path):
    spec = trial(tmp_path, **WAYS[name])
    steps = 14 if spec.train.batching == "blocks" else STEPS
    last = steps * (int(spec.train.epochs) - 1) + 1  # the second step of the last epoch
    whole = assert_resumes(spec, tmp_path, at=[3, 16, last - 12, last])
    schedule = "schedule" in WAYS[name]
    assert (len({point.lr for point in whole.curve}) > 1) == schedule  # it acts, in the last epoch at the latest


@pytest.mark.parametrize("name", PARTS_OF_EPOCHS)
def test_resume_in_and_after_a_part_of_an_epoch_is_bit_exact(name, tmp_path):
    train, at = PARTS_OF_EPOCHS[name]
    whole = assert_resumes(trial(tmp_path, **train), tmp_path, at=at, killed=True)
    assert [point.epoch for point in whole.curve] == ([0.4] if name == "a part alone" else [1, 1.4])
    assert "start_valid_ppl" in whole.metrics


def test_resume_bit_exact_from_the_ends_of_epochs(tmp_path):
    assert_resumes(trial(tmp_path), tmp_path, at=[5, 20, 44], pace=ENDS)


def test_a_trial_that_resumes_with_other_bits_says_after_which_step_and_in_which_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(OptimizerState, "load_state_dict", lambda self, state: None)
    with pytest.raises(AssertionError) as failed:
        assert_resumes(trial(tmp_path), tmp_path, at=[5])
    (found,) = re.findall(r"^after step 6: (.*)$", str(failed.value), flags=re.MULTILINE)
    parts = {name.partition("]")[0].strip("[']") for name in found.split(", ")}
    assert parts == {"model", "optimizer"}


def test_every_head_and_backbone_is_among_those_tested():
    assert {head.strip("{").partition(":")[0] for head in EVERY_HEAD} == {*HEADS.names()} - {"faulty"}
    assert {backbone.strip("{").partition(":")[0] for backbone in EVERY_BACKBONE} == {*BACKBONES.names()}


def test_a_plug_in_that_draws_from_python_and_numpy_resumes_too(tmp_path, monkeypatch):
    forward = HEADS.get("softmax").forward

    def noisy(self, hidden):
        if self.training:
            hidden.layers[-1].mul_(1 + random.random() + np.random.rand())
        return forward(self, hidden)

    monkeypatch.setattr(HEADS.get("softmax"), "forward", noisy)
    assert_resumes(trial(tmp_path), tmp_path, at=[5, 20, 44])


def test_what_changed_between_sessions_is_reported(tmp_path, monkeypatch):
    spec = trial(tmp_path)
    monkeypatch.setattr("harness.machine.environment.commit", lambda: "aaa")
    with interrupted_before(20):
        ran(spec, tmp_path)
    monkeypatch.setattr("harness.machine.environment.commit", lambda: "bbb")
    record = ran(spec, tmp_path)
    assert (record.environment.commit, record.environment.changed) == ("bbb", ("commit aaa until epoch 2",))
    assert store.load(tmp_path, spec.id) == record


def test_between_checkpoint_and_record_the_record_is_made_of_the_checkpoint_alone(tmp_path):
    spec = trial(tmp_path)
    with killed_before_record():
        ran(spec, tmp_path / "cut")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EagerStep, "advance", None)  # not one step more
        cut = ran(spec, tmp_path / "cut")
    assert outcome(cut) == outcome(ran(spec, tmp_path / "whole"))
    assert cut.metrics["train_ms_per_batch"] > 0


@pytest.mark.parametrize("why", ["of another trial", "fresh"])
def test_a_trial_begins_anew_with_checkpoints_that_are_not_its_own_and_where_it_is_to(why, tmp_path):
    one = trial(tmp_path)
    spec = one if why == "fresh" else trial(tmp_path, lr=0.02)
    with killed_before_record():
        ran(one, tmp_path)
    assert Checkpoints(tmp_path / one.id).newest(one.id) is not None
    (tmp_path / one.id).rename(tmp_path / spec.id)
    found = ran(spec, tmp_path, fresh=why == "fresh")
    assert found.environment.sessions == 1
    assert outcome(found) == outcome(ran(spec, tmp_path / "whole"))


@pytest.mark.needs("gpu")
def test_a_step_that_is_replayed_resumes_within_an_epoch(tmp_path, monkeypatch):
    from harness.gpu.cuda_graph import GraphStep, graphed

    # as a CUDA graph does, but for the recording: the replay of work is the work
    def replayed(step, segment, parts, *, log):
        made = graphed(step, segment, parts, log=log, record=lambda work: work)
        assert isinstance(made, GraphStep)
        return made

    calls, call = [], GraphStep.__call__

    def interrupted(self, segment):
        calls.append(1)
        if len(calls) in (6, 25):
            raise Interrupted
        call(self, segment)

    spec = trial(tmp_path)
    whole = ran(spec, tmp_path / "whole")
    monkeypatch.setattr(stages, "graphed", replayed)
    monkeypatch.setattr(GraphStep, "__call__", interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            ran(spec, tmp_path / "cut", checkpoint=EVERY_STEP)
    cut = ran(spec, tmp_path / "cut", checkpoint=EVERY_STEP)
    assert outcome(cut) == outcome(whole)
    assert cut.environment.cuda_graph


@pytest.mark.parametrize(
    ("asked", "enabled", "warns"), [("false", False, False), ("warn", True, True), ("true", True, False)]
)
def test_deterministic_flags_are_set_for_the_trial_and_put_back(asked, enabled, warns, tmp_path, monkeypatch):
    seen = set()

    def look(step):
        seen.add((torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()))

    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    spec = trial(tmp_path, overrides=[f"train.deterministic={asked}"])
    assert spec.id == trial(tmp_path).id
    with before_steps(look):
        record = ran(spec, tmp_path)
    assert (record.status, record.spec.train.deterministic) == ("ok", asked)
    assert seen == {(enabled, warns)}
    assert not torch.are_deterministic_algorithms_enabled()
    assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == (":4096:8" if enabled else None)
