"""Training as of AWD-LSTM, against a plain loop: segments of random lengths, AR and TAR, averages of the weights, and a
second stage.
"""

import math

import handmade
import pytest
import torch
from small import CORPUS, LSTM, SOFTMAX, V, model, spec, tokens
from torch.nn.functional import cross_entropy

from harness.corpora.batching import training_segments
from harness.corpora.corpus import Corpus, CorpusFacts
from harness.errors import ExecutionError
from harness.plan.lengths import in_tokens, rescaled
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.plan.suite_file import CheckpointSpec
from harness.random_streams import stream_seed
from harness.training.averaging import StepAverage, is_above_the_best, make_averaging
from harness.training.checkpoint import Checkpoints
from harness.training.step import random_lengths, refuse_tar, segments_of

RATES = {"dropout": 0.4, "hidden_dropout": 0.2, "input_dropout": 0.3, "embedding_dropout": 0.1, "weight_drop": 0.5}
AWD = ComponentSpec(name="awd_lstm", params={"d_embed": 4, "d_hidden": 5, "num_layers": 3, **RATES})
TEXT = Corpus(vocab_size=V, train=tokens(203), valid=tokens(41, seed=1), test=tokens(30))
SETTINGS = {
    **{"lr": 2.0, "epochs": 6, "seq_len": 8, "eval_batch_size": 1, "clip": 0.5, "weight_decay": 0.01},
    **{"ar": 0.3, "tar": 0.7, "random_lengths": {"deviation": 2.0, "half": 0.3, "shortest": 3, "longest": 11}},
}


class Loop:
    """The same training as a loop over tensors, in float64. The backbone draws the masks of each step's own stream."""

    def __init__(self, built, train: TrainSpec):
        self.model, self.train, self.weights = built, train, list(built.parameters())
        self.average, self.steps = None, 0
        self.lowest, self.best_epoch, self.best, self.evaluated = math.inf, 0, [], []

    def averaging(self) -> None:
        self.average, self.steps = [torch.zeros_like(each) for each in self.weights], 0

    def epoch(self, number: int, lr: float) -> None:
        train = self.train
        columns = TEXT.train[: len(TEXT.train) // train.batch_size * train.batch_size].view(train.batch_size, -1)
        lengths = iter(random_lengths(train, columns.shape[1], stream_seed(1, "lengths", number)))
        begin, step, state = 0, 0, None
        self.model.train()
        while begin < columns.shape[1] - 1:
            end = min(begin + next(lengths), columns.shape[1] - 1)
            torch.manual_seed(stream_seed(1, "dropout", number, step))
            hidden = self.model.backbone(columns[:, begin:end], state)
            logits = self.model.head.output(hidden.layers[-1])
            loss = cross_entropy(logits.flatten(0, 1), columns[:, begin + 1 : end + 1].flatten())
            states = hidden.undropped
            loss = loss + train.ar * (hidden.layers[-1] ** 2).mean()
            if end - begin > 1:
                loss = loss + train.tar * ((states[:, 1:] - states[:, :-1]) ** 2).mean()
            gradients = torch.autograd.grad(loss, self.weights)
            norm = math.sqrt(sum(each.square().sum().item() for each in gradients))
            factor = min(1.0, train.clip / (norm + 1e-6))
            with torch.no_grad():
                for weight, gradient in zip(self.weights, gradients, strict=True):
                    rate = lr * (end - begin) / train.seq_len
                    weight -= rate * (factor * gradient + train.weight_decay * weight)
            state = tuple(tuple(each.detach() for each in pair) for pair in hidden.state)
            begin, step = end, step + 1
            self.add()

    @torch.no_grad()
    def add(self) -> None:
        if self.average is not None:
            self.steps += 1
            for average, weight in zip(self.average, self.weights, strict=True):
                average += (weight - average) / self.steps

    @torch.no_grad()
    def validate(self, number: int) -> float:
        """Nats a token, of the average where there is one."""
        kept = [each.clone() for each in self.weights]
        for weight, average in zip(self.weights, self.average or kept, strict=True):
            weight.copy_(average)
        hidden = self.model.eval().backbone(TEXT.valid[None, :-1])
        loss = cross_entropy(self.model.head.output(hidden.layers[-1])[0], TEXT.valid[1:]).item()
        self.evaluated = [each.clone() for each in self.weights]
        if loss < self.lowest:
            self.lowest, self.best_epoch, self.best = loss, number, self.evaluated
        for weight, each in zip(self.weights, kept, strict=True):
            weight.copy_(each)
        return loss


def trained(tmp_path, **more):
    train = spec(**{**SETTINGS, **more})
    done = handmade.training(model(AWD).double(), TEXT, train, tmp_path)
    done.fit()
    return done, Loop(model(AWD).double(), train)


def assert_same(done, loop: Loop, losses: list[float]) -> None:
    found = [math.log(point.valid_ppl) for point in done.fitted.curve]
    assert found == pytest.approx(losses, abs=1e-11)
    assert done.fitted.best_epoch == loop.best_epoch
    for weight, expected in zip(done.model.parameters(), loop.evaluated, strict=True):
        torch.testing.assert_close(weight.detach(), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("averaging", [None, {"after": 0}, {"after": 2}, {"non_monotone": 1}], ids=str)
def test_training_equals_a_plain_loop(averaging, tmp_path):
    done, loop = trained(tmp_path, averaging=averaging)
    losses, begun, since = [], None, 0
    for number in range(1, 7):
        if averaging == {"after": number - 1}:
            loop.averaging()
        loop.epoch(number, 2.0)
        since = since or (number if loop.average else 0)
        losses.append(loop.validate(number))
        if averaging == {"non_monotone": 1} and begun is None and number > 2 and losses[-1] > min(losses[:-2]):
            loop.averaging()
            begun = number
    if averaging == {"non_monotone": 1}:
        assert begun in (3, 4, 5)  # or the trigger was not tried
    assert done.fitted.averaged_from == since
    assert_same(done, loop, losses)


@pytest.mark.parametrize("without", ["ar", "tar"])
def test_one_of_ar_and_tar_alone_counts_too(without, tmp_path):
    done, loop = trained(tmp_path, epochs=2, **{without: 0.0})
    losses = []
    for number in (1, 2):
        loop.epoch(number, 2.0)
        losses.append(loop.validate(number))
    assert_same(done, loop, losses)


def test_a_second_stage_goes_on_from_the_best_weights_with_averages_until_it_gets_worse(tmp_path):
    done, loop = trained(tmp_path, epochs=3, finetune={"epochs": 30, "lr": 3.0, "non_monotone": 1})
    losses, second = [], []
    for number in range(1, 4):
        loop.epoch(number, 2.0)
        losses.append(loop.validate(number))
    with torch.no_grad():
        for weight, best in zip(loop.weights, loop.best, strict=True):
            weight.copy_(best)
    loop.averaging()
    while not (len(second) > 2 and second[-1] > min(second[:-2])):
        number = 4 + len(second)
        loop.epoch(number, 3.0)
        second.append(loop.validate(number))
    assert 2 < len(second) < 30  # or its end was not tried
    assert_same(done, loop, [*losses, *second])


@pytest.mark.system
@pytest.mark.parametrize("at", [3, 30, 52, 60])
def test_stopped_and_resumed_it_gives_the_same_bits(at, tmp_path):
    def training(folder):
        settings = {**SETTINGS, "averaging": {"non_monotone": 1}, "finetune": {"epochs": 4, "non_monotone": 1}}
        pace = CheckpointSpec(minutes=1e-9)
        return handmade.training(model(AWD), TEXT, spec(**settings), folder, pace=pace)

    whole = training(tmp_path / "whole")
    whole.fit()
    with handmade.interrupted_before(at):
        training(tmp_path / "cut").fit()
    again = training(tmp_path / "cut")
    again.fit(Checkpoints(tmp_path / "cut").newest("0" * 12))
    for found, expected in zip(again.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(found, expected)
    assert [p.valid_ppl for p in again.fitted.curve] == [p.valid_ppl for p in whole.fitted.curve]
    assert again.fitted.averaged_from == whole.fitted.averaged_from > 1


def test_an_average_is_that_of_torchs_averaged_sgd_but_for_its_first_step():
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    layer = torch.nn.Module()
    layer.weight = weight
    asgd = torch.optim.ASGD([weight], lr=0.1, t0=0, lambd=0.0)
    average, first = StepAverage(layer, None), None
    average.begin()
    for number in range(1, 8):
        weight.grad = torch.tensor([math.sin(number), number / 3], dtype=torch.float64)
        asgd.step()
        average.update()
        first = weight.detach().clone() if first is None else first
    without_first = (7 * average.average[0] - first) / 6
    torch.testing.assert_close(asgd.state[weight]["ax"], without_first, rtol=1e-6, atol=0)  # its factors are float32


def weight_and_average() -> tuple[torch.nn.Parameter, StepAverage]:
    """One weight that is trained, and one that is not."""
    layer = torch.nn.Linear(2, 1)
    layer.bias.requires_grad_(False)
    return layer.weight, StepAverage(layer, None)


def test_weights_that_are_not_trained_take_no_memory_for_an_average():
    weight, average = weight_and_average()
    average.begin()
    assert [each.shape for each in average.average] == [weight.shape]


def test_a_state_is_a_copy_and_without_averages_before_the_first_step():
    _, average = weight_and_average()
    average.begin()
    state = average.state_dict()
    average.after_epoch(1, 4.0)
    assert state == {"active": True, "number": 0, "losses": [], "average": []}
    _, again = weight_and_average()
    again.load_state_dict(state)
    again.after_epoch(1, 4.0)
    assert again.active
    assert state["losses"] == []


def test_a_state_is_read_into_the_averages_that_are_there():
    weight, average = weight_and_average()
    empty = average.state_dict()
    average.load_state_dict(empty)
    assert average.average == []
    average.begin()
    average.update()
    (kept,) = average.average
    expected = weight.detach().clone()
    state = {**average.state_dict(), "average": [expected]}
    kept.zero_()
    average.load_state_dict(state)
    assert average.average[0] is kept
    assert torch.equal(kept, expected)


@pytest.mark.parametrize(
    ("losses", "above"), [([1.0, 2.0, 1.0], False), ([1.0, 2.0, 1.1], True), ([2.0, 1.0, 1.5], False), ([1.0], False)]
)
def test_a_loss_is_compared_with_the_best_of_those_before_the_last(losses, above):
    assert is_above_the_best(losses, patience=1) is above


def test_without_averaging_or_a_second_stage_no_average_is_kept():
    assert make_averaging(model(), spec()).state_dict() == {}


def test_random_lengths_have_their_means_and_limits():
    train = spec(seq_len=70, random_lengths={"deviation": 5.0, "half": 0.05, "shortest": 30, "longest": 80})
    lengths = random_lengths(train, 2_000_000, 0)
    assert (min(lengths), max(lengths)) == (30, 80)
    long = [each for each in lengths if each > 52]
    assert len(long) / len(lengths) == pytest.approx(0.95, abs=0.01)
    # int() takes off half a token on average, the longest 5 (phi(2) - 2 Q(2)) = 0.042
    assert sum(long) / len(long) == pytest.approx(69.5, abs=0.15)
    assert sum(lengths) - lengths[-1] < 2_000_000 <= sum(lengths)
    half = random_lengths(spec(seq_len=70, random_lengths={"deviation": 2.0, "half": 1.0}), 200_000, 0)
    assert sum(half) / len(half) == pytest.approx(34.5, abs=0.15)  # of 5,800 lengths: 5.6 standard errors
    tens = spec(seq_len=10, random_lengths={"deviation": 1.0, "shortest": 10, "longest": 10})
    assert [random_lengths(tens, total, 0) for total in (99, 100, 101)] == [[10] * 10, [10] * 10, [10] * 11]


def test_every_target_is_in_one_segment_and_each_epoch_draws_its_own_lengths():
    train = spec(**SETTINGS)
    cut = [segments_of(TEXT, train, torch.device("cpu"), seed=3, epoch=epoch) for epoch in (1, 2)]
    columns = TEXT.train[:200].view(4, 50)
    for segments in cut:
        assert torch.equal(torch.cat([segment.inputs for segment in segments], dim=1), columns[:, :-1])
        assert torch.equal(torch.cat([segment.targets for segment in segments], dim=1), columns[:, 1:])
    sizes = [[segment.inputs.shape[1] for segment in segments] for segments in cut]
    assert sizes[0] != sizes[1]
    same = training_segments(TEXT.train, batch_size=4, seq_len=5, lengths=[5] * 20)
    assert [s.inputs.shape[1] for s in same] == [5] * 9 + [4]


def test_tar_needs_the_states_before_dropout():
    with pytest.raises(ExecutionError, match=r"train\.tar: backbone lstm does not return its states before dropout"):
        refuse_tar(model(LSTM, SOFTMAX))
    refuse_tar(model(AWD))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"averaging": {}}, "expected exactly one of after, non_monotone"),
        ({"averaging": {"after": 1, "non_monotone": 5}}, "expected exactly one of after, non_monotone"),
        ({"random_lengths": {"longest": 3}}, "longest must be at least shortest = 5, got 3"),
        ({"random_lengths": {}, "shuffle": True}, "random_lengths is for batching: stream without shuffle"),
        (
            {"random_lengths": {}, "schedule": {"warmup": {"steps": 3}}},
            "random_lengths does not go with schedule.warmup",
        ),
        ({"finetune": {"epochs": 3}, "data_parallel": 2}, "finetune does not go with data_parallel"),
        (
            {"finetune": {"epochs": 3}, "epochs": 0.5},
            "whole epochs, at least 1, got 0.5",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        spec(**settings)


def test_another_length_scales_the_averaging_and_the_second_stage_which_needs_whole_epochs():
    train = spec(epochs=20, averaging={"after": 10}, finetune={"epochs": 8, "lr": 3.0})
    shorter = rescaled(train, 4.6)  # a quarter
    assert (shorter.epochs, shorter.averaging.after, shorter.finetune.epochs, shorter.finetune.lr) == (5, 2, 2, 3.0)
    assert rescaled(spec(epochs=20, averaging={"non_monotone": 5}), 4.6).averaging.non_monotone == 5
    assert TrainSpec(**shorter.model_dump()) == shorter
    facts = CorpusFacts(vocab_size=V, num_tokens={"train": 84, "valid": 2, "test": 2}, content="", counting="")
    with pytest.raises(ValueError, match=r"200 tokens are 2\.5 epochs, and finetune needs whole ones; give epochs"):
        in_tokens(200, train, facts)  # 4 columns of 21: 80 targets an epoch


def test_a_text_too_short_for_a_segment_is_still_refused(tmp_path):
    train = spec(**{**SETTINGS, "batch_size": 83})
    with pytest.raises(ExecutionError, match="make no batch of a training split of 83 tokens"):
        handmade.training(model(AWD), CORPUS, train, tmp_path).fit()
