"""Training that is asked to stop: after which step it ends, what is saved, and that it ends with the same bits."""

import random
from itertools import count

import handmade
import pytest
from small import LSTM, V, model, spec, tokens
from trained import Halves, before_steps

from harness.corpora.corpus import Corpus
from harness.machine.stop_request import Interrupted, StopRequest
from harness.plan.suite_file import CheckpointSpec
from harness.registry import HEADS
from harness.training import loop
from harness.training.checkpoint import Checkpoints
from harness.training.loop import Training
from harness.training.step import EagerStep

STEPS, EPOCHS = 4, 3  # 83 tokens in 4 columns of 20: 19 targets in segments of 5, 5, 5 and 4
BATCHES = 2  # of a validation: 60 targets in 10 columns of 6: segments of 5 and 1
TRIAL = "0" * 12  # of handmade.Host
CORPUS = Corpus(vocab_size=V, train=tokens(83), valid=tokens(61, 1), test=tokens(29, 2))
DROPPING = LSTM.model_copy(update={"params": {**LSTM.params, "dropout": 0.3}})


@pytest.fixture(autouse=True)
def drawing(monkeypatch):
    """A head that draws from Python's generator in training and in evaluation, and an average of weights."""
    forward = HEADS.get("softmax").forward

    def noisy(self, hidden):
        hidden.layers[-1].mul_(1 + random.random())
        return forward(self, hidden)

    monkeypatch.setattr(HEADS.get("softmax"), "forward", noisy)
    monkeypatch.setattr(loop, "make_averaging", Halves)


def training(folder, **more) -> Training:
    random.seed(0)
    return handmade.training(model(DROPPING), CORPUS, spec(optimizer="adam", lr=0.05), folder, **more)


def saved(folder) -> tuple[int, int]:
    """The position of the newest checkpoint, from which training ends with the bits of an undisturbed one."""
    newest, results = Checkpoints(folder).newest(TRIAL), []
    position = tuple(newest.position)
    for done, checkpoint in ((training(folder), newest), (training(folder / "whole"), None)):
        random.seed(0)
        done.fit(checkpoint)
        points = [(point.epoch, point.train_loss, point.valid_ppl) for point in done.fitted.curve]
        weights = [each.tolist() for each in (*done.model.parameters(), *done.averaging.average)]
        results.append((points, done.fitted.best_epoch, weights))
    assert results[0] == results[1]
    return position


@pytest.mark.parametrize("asked", range(STEPS * EPOCHS + 1))
def test_a_request_during_a_step_or_before_the_first_stops_after_it_and_nothing_is_lost(asked, tmp_path):
    stop, begun = StopRequest(), []
    if asked == 0:
        stop.ask()

    def act(number):
        begun.append(number)
        if len(begun) == asked:
            stop.ask()

    with before_steps(act), pytest.raises(Interrupted):
        training(tmp_path, stop=stop).fit()
    assert len(begun) == max(asked, 1)  # no further step was made
    epoch, within = divmod(len(begun) - 1, STEPS)
    assert saved(tmp_path) == (epoch + 1, within + 1)


@pytest.mark.parametrize("batch", range(1, BATCHES * EPOCHS + 1))
def test_a_request_during_validation_stops_there_and_the_epoch_is_kept(batch, tmp_path):
    done, stop = count(1), StopRequest()
    cut = training(tmp_path, stop=stop)
    cut.clocks.eval.beat = lambda: next(done) == batch and stop.ask()
    with pytest.raises(Interrupted):
        cut.fit()
    assert next(done) == batch + 1
    assert saved(tmp_path) == ((batch - 1) // BATCHES + 1, STEPS)


@pytest.mark.parametrize("epoch", range(1, EPOCHS + 1))
def test_a_request_by_the_report_of_an_epochs_end_saves_the_end_of_the_epoch(epoch, tmp_path):
    stop = StopRequest()

    def report(progress):
        if progress.epoch == epoch and progress.step == progress.steps:
            stop.ask()

    with pytest.raises(Interrupted):
        training(tmp_path, stop=stop, report=report).fit()
    assert saved(tmp_path) == (epoch + 1, 0)


def test_a_step_that_is_not_resumable_has_no_checkpoint_within_an_epoch(tmp_path, monkeypatch):
    stop, always_due = StopRequest(), CheckpointSpec(minutes=1e-9)
    monkeypatch.setattr(EagerStep, "resumable", False)
    with before_steps(lambda number: number == STEPS + 1 and stop.ask()), pytest.raises(Interrupted):
        training(tmp_path, stop=stop, pace=always_due).fit()
    assert saved(tmp_path) == (2, 0)
