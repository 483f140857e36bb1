"""Training: gradient steps against a hand-written loop, schedule, clipping, carried state, pairing of streams."""

import math

import handmade
import pytest
import torch
from small import LSTM, SOFTMAX, V, model, spec, tokens

from harness.corpora.batching import training_segments
from harness.corpora.corpus import Corpus
from harness.model import build
from harness.plan.specs import ComponentSpec
from harness.random_streams import stream_seed
from harness.training.checkpoint import Checkpoints
from harness.training.clocks import Clock
from harness.training.optimizers import make_optimizer
from harness.training.step import Diverged, EagerStep, Epoch, changed, segments_of, train_epoch

CPU = torch.device("cpu")


def corpus():
    return Corpus(vocab_size=V, train=tokens(83), valid=tokens(31, 1), test=tokens(29, 2))


def training(built, train, folder, **more):
    """A Training with clocks and results of its own."""
    return handmade.training(built, corpus(), train, folder, **more)


def fitted(tmp_path, train, **kwargs):
    reports = []
    done = training(model(**kwargs), train, tmp_path, report=reports.append)
    done.fit()
    return done.model, done.fitted, reports, done.clocks


def test_shifted_columns_begin_where_the_seed_says_and_only_where_it_is_asked_for():
    text, starts = Corpus(vocab_size=80, train=torch.arange(83), valid=tokens(31), test=tokens(29)), {}
    for seed in range(1, 9):
        (first, *_) = segments_of(text, spec(shift_columns=True), CPU, seed=seed)
        starts[seed] = first.inputs[:, 0].tolist()
        assert starts[seed][0] == stream_seed(seed, "columns") % 20  # 83 // 4 tokens are a column
        assert starts[seed] == [(starts[seed][0] + 20 * row) % 80 for row in range(4)]
        assert segments_of(text, spec(), CPU, seed=seed)[0].inputs[:, 0].tolist() == [0, 20, 40, 60]
    assert len({start[0] for start in starts.values()}) > 4


def test_sgd_epochs_equal_a_hand_written_loop_with_carried_state_and_clipping(tmp_path):
    train = spec(clip=0.25)
    trained, *_ = fitted(tmp_path, train)
    ours, columns = model(), tokens(83)[:80].view(4, 20)
    parameters = list(ours.parameters())
    for _ in range(3):
        state = None
        for start in range(0, 19, 5):
            inputs, targets = columns[:, start : min(start + 5, 19)], columns[:, start + 1 : min(start + 6, 20)]
            hidden = ours.backbone(inputs, state)
            logits = hidden.layers[-1] @ ours.head.output.weight.T + ours.head.output.bias
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
            gradients = torch.autograd.grad(loss, parameters)
            norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter -= 0.5 * gradient * min(1.0, 0.25 / norm)
            state = changed(hidden.state, torch.Tensor.detach)
    for a, b in zip(trained.parameters(), parameters, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "kind", "expected"),
    [
        ({"optimizer": "sgd", "momentum": 0.5}, torch.optim.SGD, {"lr": 0.5, "momentum": 0.5, "weight_decay": 0.0}),
        (
            {"optimizer": "adam", "betas": (0.8, 0.9), "eps": 1e-6},
            torch.optim.Adam,
            {"betas": (0.8, 0.9), "eps": 1e-6},
        ),
        ({"optimizer": "adamw", "weight_decay": 0.01}, torch.optim.AdamW, {"weight_decay": 0.01, "eps": 1e-8}),
    ],
)
def test_optimizers_take_the_suites_settings(settings, kind, expected):
    optimizer = make_optimizer(model(), spec(**settings))
    assert type(optimizer) is kind
    assert {key: optimizer.param_groups[0][key] for key in expected} == expected


def test_the_best_epoch_by_validation_is_kept(tmp_path):
    trained, result, *_ = fitted(tmp_path, spec(epochs=25, lr=5.0))
    losses = [point.valid_ppl for point in result.curve]
    assert result.best_epoch == 1 + losses.index(min(losses))
    assert result.best.ppl == min(losses)
    assert result.last.ppl == losses[-1]
    assert 0 < result.best_epoch < 25  # a text of 83 random tokens is soon overfitted
    best = Checkpoints(tmp_path).best_weights(result.best_epoch, CPU)
    assert not torch.equal(best["head.output.weight"], trained.head.output.weight)


@pytest.mark.guards("training-loss-finite")
def test_a_training_loss_that_is_not_finite_is_divergence_although_the_weights_are(tmp_path):
    class Infinite(EagerStep):
        def __call__(self, segment):
            super().__call__(segment)
            self.loss_sum += math.inf

    def prepare(step, segment, parts):
        return Infinite(step.model, step.optimizer, step.train)

    with pytest.raises(Diverged, match="training loss is inf in epoch 1"):
        training(model(), spec(epochs=1), tmp_path, prepare=prepare).fit()


class DivergesAt(EagerStep):
    """Its loss is not finite after the step with this number, counted from 1 over all epochs."""

    number, done = 0, 0

    def __call__(self, segment):
        super().__call__(segment)
        type(self).done += 1
        if self.done == self.number:
            self.loss_sum += math.nan


@pytest.mark.parametrize(("clip", "says"), [(None, "clip is not set"), (0.25, "clip 0.25")])
def test_divergence_names_epoch_step_learning_rate_and_clip(tmp_path, clip, says):
    steps = len(training(model(), spec(), tmp_path / "unused").segments)

    class Planted(DivergesAt):
        number = steps + 4  # step 4 of the second epoch

    def prepare(step, segment, parts):
        return Planted(step.model, step.optimizer, step.train)

    settings = spec(epochs=3, lr=0.5, clip=clip, schedule={"step": {"after": 1, "factor": 0.5}})
    with pytest.raises(Diverged) as caught:
        training(model(), settings, tmp_path, prepare=prepare).fit()
    # lr * factor^(2 - 1): half of it in the second epoch
    assert str(caught.value) == f"training loss is nan in epoch 2, step 4 of {steps}; learning rate 0.25, {says}"


def test_divergence_in_a_warm_up_names_the_rate_of_its_step(tmp_path):
    class Planted(DivergesAt):
        number = 3

    def prepare(step, segment, parts):
        return Planted(step.model, step.optimizer, step.train)

    with pytest.raises(Diverged, match=r"step 3 of \d+; learning rate 0\.1, "):  # lr s / w = 0.5 * 2 / 10
        training(model(), spec(epochs=1, lr=0.5, schedule={"warmup": {"steps": 10}}), tmp_path, prepare=prepare).fit()


@pytest.mark.guards("validation-loss-finite")
def test_a_validation_loss_that_is_not_finite_is_divergence_although_nothing_was_trained(tmp_path):
    ours = model()
    next(ours.parameters()).data.fill_(math.nan)
    with pytest.raises(Diverged, match="validation loss is nan after epoch 0"):
        training(ours, spec(epochs=0), tmp_path).fit()


def test_a_large_finite_training_loss_is_none(tmp_path):
    # NCE's loss sums over its noise words: 2000 of s - log(k q) = 10 - log(2000 / V) > 4 each; exp of it overflows
    head = ComponentSpec(name="nce", params={"num_noise": 2000, "log_normaliser": -10.0})
    ours = build(LSTM, head, vocab_size=V, seed=1, token_counts=torch.ones(V))
    done = training(ours, spec(epochs=1, lr=1e-6), tmp_path)
    done.fit()
    assert 8000 < done.fitted.curve[0].train_loss < math.inf


def test_progress_ends_every_epoch_and_every_step_is_timed(tmp_path):
    _, result, reports, clocks = fitted(tmp_path, spec())
    steps = len(training_segments(tokens(83), batch_size=4, seq_len=5))
    assert steps == 4  # 19 targets a column in segments of 5: 5 + 5 + 5 + 4
    ends = [report for report in reports if report.step == report.steps]
    assert [(report.epoch, report.valid_ppl) for report in ends] == [(p.epoch, p.valid_ppl) for p in result.curve]
    assert len(ends) == 3
    assert len(clocks.train.milliseconds) == 12


def test_heads_of_one_seed_start_on_the_same_backbone():
    mos = ComponentSpec(name="mos", params={"num_mixtures": 3})
    for a, b in zip(model().backbone.parameters(), model(head=mos).backbone.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(model().backbone.embedding.weight, model(seed=2).backbone.embedding.weight)
    assert torch.equal(model().head.output.weight, model().head.output.weight)


@pytest.mark.guards("dropout-stream")
def test_the_backbones_dropout_masks_are_the_same_under_every_head():
    backbone = ComponentSpec(name="lstm", params={"d_model": 6, "num_layers": 1, "dropout": 0.5})
    mos = ComponentSpec(name="mos", params={"num_mixtures": 3, "dropout": 0.5})
    zeroed = {}
    for head in (SOFTMAX, mos):
        built, seen = model(backbone, head), []
        for dropout in (built.backbone.embedding_dropout, built.backbone.dropout):
            dropout.register_forward_hook(lambda m, a, output, seen=seen: seen.append(output == 0))
        optimizer = torch.optim.SGD(built.parameters(), lr=0.0)
        segments = training_segments(tokens(83), batch_size=4, seq_len=5)
        epoch = Epoch(number=1, segments=segments, seed=1)
        train_epoch(EagerStep(built, optimizer, spec()), epoch, Clock(CPU))
        zeroed[head.name] = seen
    assert len(zeroed["softmax"]) == len(zeroed["mos"]) == 8
    assert all(torch.equal(a, b) for a, b in zip(zeroed["softmax"], zeroed["mos"], strict=True))


@pytest.mark.guards("shuffle-seed")
def test_shuffled_segments_follow_the_data_stream_without_state():
    built, seen = model(), []
    built.backbone.register_forward_pre_hook(lambda module, args: seen.append((args[0], args[1])))
    segments = training_segments(tokens(83), batch_size=4, seq_len=5)
    optimizer = torch.optim.SGD(built.parameters(), lr=0.0)
    train = spec(shuffle=True)
    epoch = Epoch(number=2, segments=segments, seed=1, shuffle=True)
    train_epoch(EagerStep(built, optimizer, train), epoch, Clock(CPU))
    generator = torch.Generator().manual_seed(stream_seed(1, "data", 2))
    order = torch.randperm(4, generator=generator).tolist()
    assert all(torch.equal(inputs, segments[index].inputs) for (inputs, _), index in zip(seen, order, strict=True))
    assert all(state is None for _, state in seen)


def test_training_goes_on_with_the_step_that_is_prepared_of_the_first_segment(tmp_path):
    given, called = [], []

    class Counted(EagerStep):
        def __call__(self, segment):
            called.append(tuple(segment.inputs.shape))
            super().__call__(segment)

    def prepare(step, segment, parts):
        given.append(segment)
        return Counted(step.model, step.optimizer, step.train)

    done = training(model(), spec(epochs=1), tmp_path, prepare=prepare)
    done.fit()
    assert called == [(4, 5), (4, 5), (4, 5), (4, 4)]
    assert torch.equal(given[0].inputs, tokens(83)[:80].view(4, 20)[:, :5])
    assert not done.fitted.graphed
