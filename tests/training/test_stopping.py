"""Training that is asked to stop: after which step it ends, what is saved, and that it ends with the same bits."""

import random
from itertools import count

import handmade
import pytest
import torch
from small import tokens

from harness.corpora.corpus import Corpus
from harness.machine.stop_request import Interrupted, StopRequest
from harness.model import build
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.registry import HEADS
from harness.training import loop
from harness.training.checkpoint import Checkpoints
from harness.training.loop import Training
from harness.training.step import EagerStep

V, STEPS, EPOCHS = 7, 4, 3  # 83 tokens in 4 columns of 20: 19 targets in segments of 5, 5, 5 and 4
LSTM = ComponentSpec(name="lstm", params={"d_model": 6, "num_layers": 1, "dropout": 0.3})
TRIAL = "0" * 12  # of handmade.Host


CORPUS = Corpus(vocab_size=V, train=tokens(83), valid=tokens(61, 1), test=tokens(29, 2))
BATCHES = 2  # of a validation: 60 targets in 10 columns of 6: segments of 5 and 1


class Average:
    """Weights that are validated in the place of those that are trained."""

    def __init__(self, model, train):
        self.weights = list(model.parameters())
        self.average = [each.detach().clone() for each in self.weights]

    @torch.no_grad()
    def update(self):
        for average, weight in zip(self.average, self.weights, strict=True):
            average.lerp_(weight, 0.5)

    @torch.no_grad()
    def swap(self):
        for average, weight in zip(self.average, self.weights, strict=True):
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)

    def state_dict(self):
        return {"average": self.average}

    def load_state_dict(self, state):
        for average, saved in zip(self.average, state["average"], strict=True):
            average.copy_(saved)


@pytest.fixture(autouse=True)
def drawing(monkeypatch):
    """A head that draws from Python's generator in training and in evaluation, and an average of weights."""
    forward = HEADS.get("softmax").forward

    def noisy(self, hidden):
        hidden.layers[-1].mul_(1 + random.random())
        return forward(self, hidden)

    monkeypatch.setattr(HEADS.get("softmax"), "forward", noisy)
    monkeypatch.setattr(loop, "make_averaging", Average)


def training(folder, **more) -> Training:
    random.seed(0)
    model = build(LSTM, ComponentSpec(name="softmax"), vocab_size=V, seed=1)
    train = TrainSpec(optimizer="adam", lr=0.05, epochs=EPOCHS, batch_size=4, seq_len=5)
    return handmade.training(model, CORPUS, train, folder, **more)


def left(trained: Training) -> list:
    """What must not depend on an interruption."""
    points = [(point.epoch, point.train_loss, point.valid_ppl) for point in trained.fitted.curve]
    weights = [each.tolist() for each in trained.model.parameters()]
    return [points, trained.fitted.best_epoch, weights, trained.averaging.average[0].tolist()]


def undisturbed(folder) -> list:
    whole = training(folder)
    whole.fit()
    return left(whole)


def resumed(folder) -> list:
    again = training(folder)
    again.fit(Checkpoints(folder).newest(TRIAL))
    return left(again)


def position(folder) -> tuple[int, int] | None:
    found = Checkpoints(folder).newest(TRIAL)
    return None if found is None else tuple(found.position)


@pytest.mark.guards("saved-when-stopped")
@pytest.mark.parametrize("asked", range(1, STEPS * EPOCHS + 1))
def test_a_request_during_a_step_stops_after_it_and_nothing_is_lost(asked, tmp_path, monkeypatch):
    step, done, stop = EagerStep.advance, count(1), StopRequest()

    def advance(self, *arguments):
        if next(done) == asked:
            stop.ask()
        return step(self, *arguments)

    cut = training(tmp_path / "cut", stop=stop)
    with monkeypatch.context() as patch:
        patch.setattr(EagerStep, "advance", advance)
        with pytest.raises(Interrupted):
            cut.fit()
    assert next(done) == asked + 1  # no further step was made
    epoch, within = divmod(asked - 1, STEPS)
    assert position(tmp_path / "cut") == (epoch + 1, within + 1)
    assert resumed(tmp_path / "cut") == undisturbed(tmp_path / "whole")


@pytest.mark.guards("validation-draws-again")
@pytest.mark.parametrize("batch", range(1, BATCHES * EPOCHS + 1))
def test_a_request_during_validation_stops_there_and_the_epoch_is_kept(batch, tmp_path):
    done, stop = count(1), StopRequest()
    cut = training(tmp_path / "cut", stop=stop)

    def beat():
        if next(done) == batch:
            stop.ask()

    cut.clocks.eval.beat = beat
    with pytest.raises(Interrupted):
        cut.fit()
    assert next(done) == batch + 1
    assert position(tmp_path / "cut") == ((batch - 1) // BATCHES + 1, STEPS)
    assert resumed(tmp_path / "cut") == undisturbed(tmp_path / "whole")


@pytest.mark.parametrize("epoch", range(1, EPOCHS + 1))
def test_a_request_by_the_report_of_an_epochs_end_saves_the_end_of_the_epoch(epoch, tmp_path):
    stop = StopRequest()

    def report(progress):
        if progress.epoch == epoch and progress.step == progress.steps:
            stop.ask()

    cut = training(tmp_path / "cut", stop=stop, report=report)
    with pytest.raises(Interrupted):
        cut.fit()
    assert position(tmp_path / "cut") == (epoch + 1, 0)
    assert resumed(tmp_path / "cut") == undisturbed(tmp_path / "whole")


def test_a_step_that_is_not_resumable_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    stop, done = StopRequest(), count(1)
    monkeypatch.setattr(EagerStep, "resumable", False)
    step = EagerStep.advance

    def advance(self, *arguments):
        if next(done) == STEPS + 2:
            stop.ask()
        return step(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(EagerStep, "advance", advance)
        with pytest.raises(Interrupted):
            training(tmp_path / "cut", stop=stop).fit()
    assert position(tmp_path / "cut") == (2, 0)
    assert resumed(tmp_path / "cut") == undisturbed(tmp_path / "whole")


def test_a_request_before_the_first_step_makes_one_step(tmp_path):
    stop = StopRequest()
    stop.ask()
    with pytest.raises(Interrupted):
        training(tmp_path, stop=stop).fit()
    assert position(tmp_path) == (1, 1)
