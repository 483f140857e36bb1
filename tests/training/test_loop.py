"""Training: against a hand-written loop, parts of epochs, what is kept and reported, divergence."""

import math
from itertools import count

import handmade
import pytest
import torch
from small import LSTM, SOFTMAX, TOKENS, V, model, spec, tokens

from harness.corpora.corpus import Corpus
from harness.errors import ExecutionError
from harness.model import build
from harness.plan.specs import ComponentSpec
from harness.random_streams import stream_seed
from harness.training.checkpoint import Checkpoints
from harness.training.evaluation import Score
from harness.training.step import Diverged, EagerStep, changed, segments_of, steps_of

CPU = torch.device("cpu")


def trained(train, folder, *, built=None, text=TOKENS, **host):
    """What training leaves: the Training itself, and its reports of progress."""
    corpus, reports = Corpus(vocab_size=V, train=text, valid=tokens(31, 1), test=tokens(29, 2)), []
    done = handmade.training(built or model(), corpus, train, folder, report=reports.append, **host)
    done.fit()
    return done, reports


def columns(epoch):
    """The four segments of an epoch of TOKENS: 19 targets in each of 4 columns, in fives."""
    table = TOKENS[:80].view(4, 20)
    return [(table[:, at : min(at + 5, 19)], table[:, at + 1 : min(at + 6, 20)]) for at in range(0, 19, 5)]


def shuffled_columns(epoch):
    return [columns(epoch)[place] for place in order(epoch, 4)]


def order(epoch, units):
    """The units of an epoch in the order of its stream of random numbers."""
    return torch.randperm(units, generator=torch.Generator().manual_seed(stream_seed(1, "data", epoch)))


def blocks(epoch, places=None):
    """16 blocks of 5, the first token of each no target, and a tail of 3 that is left out; four blocks a segment."""
    rows = TOKENS[:80].view(16, 5)[torch.arange(16) if places is None else places]
    return [(rows[:, :-1], rows[:, 1:]) for rows in rows.split(4)]


def shuffled_blocks(epoch):
    return blocks(epoch, order(epoch, 16))


def windows(epoch):
    """Four batches of four windows of 5 targets, at the places that the stream of random numbers draws."""
    generator = torch.Generator().manual_seed(stream_seed(1, "data", epoch))
    places = torch.randint(len(TOKENS) - 5, (16,), generator=generator).tolist()
    rows = torch.stack([TOKENS[place : place + 6] for place in places])
    return [(each[:, :-1], each[:, 1:]) for each in rows.split(4)]


LOOPS = {  # settings of training -> the segments of an epoch, whether their state is carried
    "clip": ({"clip": 0.25}, columns, True),
    "shuffled": ({"epochs": 1.5, "shuffle": True}, shuffled_columns, False),
    "shuffled blocks": ({"epochs": 1.5, "batching": "blocks", "shuffle": True}, shuffled_blocks, False),
    "windows": ({"epochs": 1.5, "batching": "windows"}, windows, False),
    "momentum": ({"lr": 0.1, "momentum": 0.9, "batching": "blocks"}, blocks, False),
    "momentum reset": ({"lr": 0.1, "momentum": 0.9, "batching": "blocks", "reset_momentum": True}, blocks, False),
}


@pytest.mark.parametrize("name", LOOPS)
def test_sgd_equals_a_hand_written_loop(name, tmp_path):
    settings, segments_of_epoch, carried = LOOPS[name]
    train = spec(**settings)
    done, reports = trained(train, tmp_path)
    ours, losses = model(), []
    weights = list(ours.parameters())
    velocity = [torch.zeros_like(each) for each in weights]
    for epoch in range(1, math.ceil(train.epochs) + 1):
        state, nats, scored = None, 0.0, 0
        if train.reset_momentum:
            velocity = [torch.zeros_like(each) for each in weights]
        for inputs, targets in segments_of_epoch(epoch)[: 2 if epoch > train.epochs else 4]:
            hidden = ours.backbone(inputs, state)
            logits = hidden.layers[-1] @ ours.head.output.weight.T + ours.head.output.bias
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
            slopes = torch.autograd.grad(loss, weights)
            norm = math.sqrt(sum(each.square().sum().item() for each in slopes))
            scale = 1.0 if train.clip is None else min(1.0, train.clip / norm)
            velocity = [train.momentum * v + g * scale for v, g in zip(velocity, slopes, strict=True)]
            with torch.no_grad():
                for weight, v in zip(weights, velocity, strict=True):
                    weight -= train.lr * v
            state = changed(hidden.state, torch.Tensor.detach) if carried else None
            nats, scored = nats + loss.item() * targets.numel(), scored + targets.numel()
        losses.append(nats / scored)
    for a, b in zip(done.model.parameters(), weights, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5 if carried else 1e-6)
    curve = done.fitted.curve
    assert [point.train_loss for point in curve] == pytest.approx(losses, abs=1e-5)
    # each epoch is reported when it ends, each step is timed
    steps = [4, 2] if train.epochs == 1.5 else [4, 4, 4]
    ends = [(each.epoch, each.step, each.valid_ppl) for each in reports if each.step == each.steps]
    assert ends == [(e, n, point.valid_ppl) for e, (n, point) in enumerate(zip(steps, curve, strict=True), start=1)]
    assert [point.epoch for point in curve] == ([1, 1.5] if train.epochs == 1.5 else [1, 2, 3])
    assert {each.epochs for each in reports} == {train.epochs}
    assert len(done.clocks.train.milliseconds) == sum(steps)


def test_the_backbones_dropout_masks_are_the_same_under_every_head_in_every_step(tmp_path):
    backbone = ComponentSpec(name="lstm", params={"d_model": 6, "num_layers": 1, "dropout": 0.5})
    zeroed = []
    for head in (SOFTMAX, ComponentSpec(name="mos", params={"num_mixtures": 3, "dropout": 0.5})):
        built, seen = model(backbone, head), []
        for dropout in (built.backbone.embedding_dropout, built.backbone.dropout):
            dropout.register_forward_hook(
                lambda m, a, output, seen=seen: seen.append(output == 0) if m.training else None
            )
        trained(spec(epochs=1), tmp_path, built=built)
        zeroed.append(seen)
    assert len(zeroed[0]) == len(zeroed[1]) == 8
    assert all(map(torch.equal, *zeroed))


def test_shifted_columns_begin_where_the_seed_says_and_only_where_it_is_asked_for():
    text, starts = Corpus(vocab_size=80, train=torch.arange(83), valid=tokens(31), test=tokens(29)), {}
    for seed in range(1, 9):
        (first, *_) = segments_of(text, spec(shift_columns=True), CPU, seed=seed)
        starts[seed] = first.inputs[:, 0].tolist()
        assert starts[seed][0] == stream_seed(seed, "columns") % 20  # 83 // 4 tokens are a column
        assert starts[seed] == [(starts[seed][0] + 20 * row) % 80 for row in range(4)]
        assert segments_of(text, spec(), CPU, seed=seed)[0].inputs[:, 0].tolist() == [0, 20, 40, 60]
    assert len({start[0] for start in starts.values()}) > 4


@pytest.mark.parametrize(
    ("epoch", "epochs", "segments", "steps"),
    [
        (1, 0.4, 10, 4),
        (1, 0.4, 1, 1),  # round(0.4) = 0: at least one
        (1, 0.001, 100, 1),
        (1, 1.4, 10, 10),
        (2, 1.4, 10, 4),
        (2, 1.1, 25, 2),  # 2.5 to even; 1.1 - 1 is more than 0.1
        (2, 1.9, 5, 4),  # 4.5 to even; 1.9 - 1 is less than 0.9
        (3, 3.0, 7, 7),
        (1, 0.999999, 10, 10),
    ],
)
def test_the_last_epoch_is_cut_to_its_part_of_the_segments(epoch, epochs, segments, steps):
    assert steps_of(epoch, epochs, segments) == steps


@pytest.mark.parametrize(("losses", "best", "rate"), [([1.0, 2.0], 1, 0.25), ([2.0, 1.0], 2, 0.5)])
def test_the_best_epoch_is_kept_and_the_schedule_follows_also_after_a_part(losses, best, rate, tmp_path, monkeypatch):
    scores = [Score(nll_sum=10 * loss, num_scored=10, num_counted=10) for loss in losses]
    left = iter(scores)
    monkeypatch.setattr("harness.training.loop.evaluate", lambda *given, **more: (next(left), None))
    done, _ = trained(spec(epochs=1.5, schedule={"plateau": {"factor": 0.5}}), tmp_path)
    assert [point.valid_ppl for point in done.fitted.curve] == pytest.approx([math.exp(loss) for loss in losses])
    assert (done.fitted.best_epoch, done.fitted.best, done.fitted.last) == (best, scores[best - 1], scores[1])
    assert float(done.optimizer.param_groups[0]["lr"]) == rate
    kept = Checkpoints(tmp_path)
    newest = kept.newest("0" * 12)
    assert (newest.position, newest.best_epoch) == ((3, 0), best)
    last = kept.best_weights(best, CPU)["head.output.weight"]
    assert torch.equal(last, done.model.head.output.weight) == (best == 2)


def test_a_split_too_small_for_a_batch_is_a_sentence_and_without_epochs_none_is_needed(tmp_path):
    with pytest.raises(
        ExecutionError,
        match=r"^train: batch_size 4 and seq_len 5 .* of a training split of 7 tokens; make them smaller",
    ):
        trained(spec(), tmp_path, text=TOKENS[:7])
    done, reports = trained(spec(epochs=0), tmp_path, text=TOKENS[:0])
    assert math.isfinite(done.fitted.last.ppl)
    assert (done.fitted.best_epoch, done.fitted.curve, reports) == (0, [], [])


def test_the_score_at_the_start_is_of_the_untrained_model(tmp_path):
    untrained = trained(spec(epochs=0), tmp_path)[0].fitted.last
    measured, plain = (trained(spec(), tmp_path, score_start=start)[0] for start in (True, False))
    assert (measured.fitted.start, plain.fitted.start) == (untrained, None)
    assert trained(spec(epochs=0), tmp_path, score_start=True)[0].fitted.start == untrained
    assert all(map(torch.equal, measured.model.parameters(), plain.model.parameters()))


@pytest.mark.parametrize(
    ("loss", "step", "settings", "message"),
    [
        (math.inf, 4, {}, "is inf in epoch 1, step 4 of 4; learning rate 0.5, clip is not set"),
        # lr * factor^(2 - 1): half of it in the second epoch
        (math.nan, 8, {"schedule": {"step": {"after": 1, "factor": 0.5}}, "clip": 0.25},
         "is nan in epoch 2, step 4 of 4; learning rate 0.25, clip 0.25"),
        # lr s / w = 0.5 * 2 / 10
        (math.nan, 3, {"schedule": {"warmup": {"steps": 10}}},
         "is nan in epoch 1, step 3 of 4; learning rate 0.1, clip is not set"),
    ],
)  # fmt: skip
def test_divergence_names_epoch_step_learning_rate_and_clip(loss, step, settings, message, tmp_path):
    done = count(1)

    class Planted(EagerStep):
        def __call__(self, segment):
            super().__call__(segment)
            if next(done) == step:
                self.loss_sum += loss  # the weights stay finite

    def prepare(step, segment, parts):
        assert torch.equal(segment.inputs, columns(1)[0][0])
        return Planted(step.model, step.optimizer, step.train)

    with pytest.raises(Diverged) as caught:
        trained(spec(**settings), tmp_path, prepare=prepare)
    assert str(caught.value) == f"training loss {message}"


def test_a_validation_loss_that_is_not_finite_is_divergence_although_nothing_was_trained(tmp_path):
    ours = model()
    next(ours.parameters()).data.fill_(math.nan)
    with pytest.raises(Diverged, match="validation loss is nan after epoch 0"):
        trained(spec(epochs=0), tmp_path, built=ours)


def test_a_large_finite_training_loss_is_none(tmp_path):
    # NCE's loss sums over its noise words: 2000 of s - log(k q) = 10 - log(2000 / V) > 4 each; exp of it overflows
    head = ComponentSpec(name="nce", params={"num_noise": 2000, "log_normaliser": -10.0})
    ours = build(LSTM, head, vocab_size=V, seed=1, token_counts=torch.ones(V))
    done, _ = trained(spec(epochs=1, lr=1e-6), tmp_path, built=ours)
    assert 8000 < done.fitted.curve[0].train_loss < math.inf
