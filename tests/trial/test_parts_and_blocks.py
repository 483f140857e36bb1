"""Parts of epochs and blocks: against hand-written loops, interrupted and resumed; and nothing to train on."""

import math
from functools import partial

import handmade
import pytest
import torch
from handmade import interrupted_before, training
from small import TOKENS, V, model
from small import spec as small_spec

from harness import plan
from harness.corpora.corpus import Corpus
from harness.errors import ExecutionError
from harness.plan.suite_file import CheckpointSpec, MeasureSpec
from harness.random_streams import stream_seed
from harness.training.checkpoint import Checkpoints
from harness.training.evaluation import Score
from harness.training.step import changed, steps_of
from harness.trial.run import run

spec = partial(small_spec, epochs=1)

CPU = torch.device("cpu")


def trained(train, folder, tokens=TOKENS, **more):
    """What training leaves: the Training itself, and its reports of progress."""
    corpus, reports = Corpus(vocab_size=V, train=tokens, valid=TOKENS[:31], test=TOKENS[:29]), []
    done = training(model(), corpus, train, folder, report=reports.append, **more)
    done.fit()
    return done, reports


def by_hand(epochs, *, carried):
    """SGD of rate 0.5 over epochs of (inputs, targets): the model, and the mean loss of each epoch."""
    ours, losses = model(), []
    parameters = list(ours.parameters())
    for segments in epochs:
        state, nats, count = None, 0.0, 0
        for inputs, targets in segments:
            hidden = ours.backbone(inputs, state)
            logits = hidden.layers[-1] @ ours.head.output.weight.T + ours.head.output.bias
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
            with torch.no_grad():
                for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                    parameter -= 0.5 * gradient
            state = changed(hidden.state, torch.Tensor.detach) if carried else None
            nats, count = nats + loss.item() * targets.numel(), count + targets.numel()
        losses.append(nats / count)
    return ours, losses


def same_weights(one, other):
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def columns():
    """The four segments of an epoch of TOKENS: 19 targets in each of 4 columns, in fives."""
    table = TOKENS[:80].view(4, 20)
    return [(table[:, at : min(at + 5, 19)], table[:, at + 1 : min(at + 6, 20)]) for at in range(0, 19, 5)]


@pytest.mark.parametrize(
    ("epoch", "epochs", "segments", "steps"),
    [
        (1, 0.4, 10, 4),
        (1, 0.4, 1, 1),  # round(0.4) = 0: at least one
        (1, 0.001, 100, 1),
        (1, 1.4, 10, 10),
        (2, 1.4, 10, 4),
        (2, 1.3, 5, 2),  # 1.5 to even; 1.3 - 1 is more than 0.3
        (2, 1.9, 5, 4),  # 4.5 to even; 1.9 - 1 is less than 0.9
        (3, 3.0, 7, 7),
        (1, 0.999999, 10, 10),
    ],
)
def test_the_last_epoch_is_cut_to_its_part_of_the_segments(epoch, epochs, segments, steps):
    assert steps_of(epoch, epochs, segments) == steps


def test_one_epoch_and_a_half_equal_a_loop_over_six_segments(tmp_path):
    done, reports = trained(spec(epochs=1.5), tmp_path)
    ours, losses = by_hand([columns(), columns()[:2]], carried=True)
    same_weights(done.model, ours)
    assert [point.epoch for point in done.fitted.curve] == [1, 1.5]
    assert [point.train_loss for point in done.fitted.curve] == pytest.approx(losses, abs=1e-5)
    ends = [(each.epoch, each.step, each.steps) for each in reports if each.step == each.steps]
    assert ends == [(1, 4, 4), (2, 2, 2)]
    assert {each.epochs for each in reports} == {1.5}


@pytest.mark.parametrize(("losses", "best", "rate"), [([1.0, 2.0], 1, 0.25), ([2.0, 1.0], 2, 0.5)])
def test_a_part_of_an_epoch_is_validated_kept_and_followed_by_the_schedule(losses, best, rate, tmp_path, monkeypatch):
    scores = [Score(nll_sum=10 * loss, num_scored=10, num_counted=10) for loss in losses]
    left = iter(scores)
    monkeypatch.setattr("harness.training.loop.evaluate", lambda *given, **more: (next(left), None))
    done, _ = trained(spec(epochs=1.5, schedule={"plateau": {"factor": 0.5}}), tmp_path)
    assert [point.valid_ppl for point in done.fitted.curve] == pytest.approx([math.exp(loss) for loss in losses])
    assert (done.fitted.best_epoch, done.fitted.last) == (best, scores[1])
    assert float(done.optimizer.param_groups[0]["lr"]) == rate
    kept = Checkpoints(tmp_path)
    newest = kept.newest("0" * 12)
    assert (newest.position, newest.best_epoch) == ((3, 0), best)
    last = kept.best_weights(best, CPU)["head.output.weight"]
    assert torch.equal(last, done.model.head.output.weight) == (best == 2)


def blocks(order):
    """16 blocks of 5 and a tail of 3; four blocks a segment, in an order."""
    rows = TOKENS[:80].view(16, 5)[order]
    return [(rows[at : at + 4, :-1], rows[at : at + 4, 1:]) for at in range(0, 16, 4)]


@pytest.mark.parametrize("shuffle", [False, True])
def test_blocks_equal_a_loop_over_blocks_without_carried_state(shuffle, tmp_path):
    done, _ = trained(spec(epochs=1.5, batching="blocks", shuffle=shuffle), tmp_path)
    epochs = []
    for epoch, steps in ((1, 4), (2, 2)):
        generator = torch.Generator().manual_seed(stream_seed(1, "data", epoch))
        order = torch.randperm(16, generator=generator) if shuffle else torch.arange(16)
        epochs.append(blocks(order)[:steps])
    ours, losses = by_hand(epochs, carried=False)
    same_weights(done.model, ours)
    assert [point.train_loss for point in done.fitted.curve] == pytest.approx(losses, abs=1e-5)


def test_a_split_too_small_for_a_batch_is_a_sentence(tmp_path):
    with pytest.raises(ExecutionError, match=r"^train: batch_size 4 and seq_len 5 .* of a training split of 7 tokens$"):
        trained(spec(), tmp_path, tokens=TOKENS[:7])


def test_without_epochs_nothing_to_train_on_is_needed(tmp_path):
    done, reports = trained(spec(epochs=0), tmp_path, tokens=TOKENS[:0])
    assert math.isfinite(done.fitted.last.ppl)
    assert (done.fitted.best_epoch, done.fitted.curve, reports) == (0, [], [])


def test_the_score_at_the_start_is_of_the_untrained_model(tmp_path):
    untrained = trained(spec(epochs=0), tmp_path)[0].fitted.last
    measured, plain = (trained(spec(), tmp_path, score_start=start)[0] for start in (True, False))
    assert measured.fitted.start == untrained
    assert plain.fitted.start is None
    assert trained(spec(epochs=0), tmp_path, score_start=True)[0].fitted.start == untrained
    for a, b in zip(measured.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(a, b)


# whole trials, interrupted

SUITE = """\
name: tiny
version: 1
corpora: [{markov: {vocab_size: 12, num_tokens: 400, branching: 3}}]
backbones: [{lstm: {d_model: 8, num_layers: 1, dropout: 0.1}}]
heads: [softmax]
train: {optimizer: adam, lr: 0.01, batch_size: 4, seq_len: 7, TRAIN}
seeds: [1]
"""
TRAIN = {
    "a part alone": "epochs: 0.4",  # of 15 segments, 99 targets a column: 6 steps
    "a part more": "epochs: 1.4",
    "blocks": "epochs: 1.4, batching: blocks, shuffle: true",  # 57 blocks: 14 segments; 0.4 of them 6
}


def loaded(tmp_path, train):
    place = tmp_path / "tiny.yaml"
    place.write_text(SUITE.replace("TRAIN", train))
    return plan.load(place).trials[0]


def setting(runs, pace):
    measure = MeasureSpec(start=True)
    return partial(handmade.task, runs=runs, checkpoint=pace, measure=measure)


@pytest.mark.parametrize("name", TRAIN)
def test_resume_in_and_after_a_part_of_an_epoch_is_bit_exact(name, tmp_path, monkeypatch):
    one = loaded(tmp_path, TRAIN[name])
    whole = run(setting(tmp_path / "whole", CheckpointSpec())(spec=one))
    every_step = setting(tmp_path / "cut", CheckpointSpec(minutes=1e-9))
    before = {"a part alone": [2, 3], "a part more": [2, 13, 3], "blocks": [2, 12, 4]}[name]  # each of its session
    for number in before:
        with interrupted_before(number):
            run(every_step(spec=one))
    with monkeypatch.context() as patch:  # killed after the last step, before the record
        patch.setattr("harness.records.store.save", lambda record, runs: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(every_step(spec=one))
    cut = run(every_step(spec=one))
    assert (whole.status, cut.status) == ("ok", "ok"), (whole.message, cut.message)
    assert cut.environment.sessions == len(before) + 2
    assert whole.weights_sha256 == cut.weights_sha256
    names = ("start_valid_ppl", "valid_ppl", "test_ppl", "last_valid_ppl", "last_test_ppl", "best_epoch")
    assert [whole.metrics[name] for name in names] == [cut.metrics[name] for name in names]
    curves = [[(p.epoch, p.train_loss, p.valid_ppl, p.lr) for p in record.curve] for record in (whole, cut)]
    assert curves[0] == curves[1]
    assert [epoch for epoch, *_ in curves[0]] == ([0.4] if name == "a part alone" else [1, 1.4])
