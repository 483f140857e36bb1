"""Schedules of the learning rate: against sequences by hand, torch's plateau, and the warm-ups of transformers."""

import math
from functools import partial

import handmade
import pytest
import rounding
import torch
from small import CORPUS, model
from small import spec as small_spec
from transformers.optimization import (
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_linear_schedule_with_warmup,
)

from harness.training.optimizers import make_optimizer
from harness.training.schedules import make_schedule
from harness.training.step import EagerStep

spec = partial(small_spec, lr=8.0)


def rates_after(losses, way, lr=8.0):
    """The rate after each of a few epochs with these validation losses."""
    train = spec(lr=lr, schedule=way)
    optimizer = make_optimizer(torch.nn.ParameterList([torch.zeros(1)]), train)
    schedule, rates = make_schedule(optimizer, train, segments=4), []
    for epoch, loss in enumerate(losses, start=1):
        schedule.after_epoch(epoch, loss)
        rates.append(optimizer.param_groups[0]["lr"].item())
    return rates


@pytest.mark.parametrize("lr", [20.0, 1e-7])
def test_plateau_has_the_rates_of_torch_to_the_bit(lr):
    losses = (5 + torch.randn(60, generator=torch.Generator().manual_seed(2)).double()).tolist()
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=torch.tensor(lr, dtype=torch.float64))
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.25, patience=0, threshold=0.0)
    expected = []
    for loss in losses:
        plateau.step(loss)
        expected.append(optimizer.param_groups[0]["lr"].item())
    assert rates_after(losses, {"plateau": {"factor": 0.25}}, lr) == expected
    assert min(expected) < 2e-8  # where torch stops


def test_a_checkpoint_with_the_state_of_torchs_plateau_is_resumed():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=torch.tensor(8.0))
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.0)
    plateau.step(4.0)
    schedule = make_schedule(optimizer, spec(schedule={"plateau": {"factor": 0.5}}), segments=4)
    schedule.load_state_dict(plateau.state_dict())
    schedule.after_epoch(2, 4.5)
    assert optimizer.param_groups[0]["lr"].item() == 4.0


PERPLEXITIES = [200.0, 150.0, 148.0, 147.5, 149.0, 147.0, 140.0]
# previous, by 1: -, -50, -2, -0.5 (halve), +1.5 (halve), -2, -7
# best, by 1: -, -50, -2, -0.5 of 148 (halve), +1.5 of 147.5 (halve), -0.5 of 147.5 (halve), -7
# previous, by 0: only 149 is no improvement
BETTER_THAN_PREVIOUS = [100.0, 120.0, 110.0]  # the last one is not better than the best
HALVED = [
    (PERPLEXITIES, {"reference": "previous", "threshold": 1.0}, [8, 8, 8, 4, 2, 2, 2]),
    (PERPLEXITIES, {"reference": "best", "threshold": 1.0}, [8, 8, 8, 4, 2, 1, 1]),
    (PERPLEXITIES, {"reference": "previous", "threshold": 0.0}, [8, 8, 8, 8, 4, 4, 4]),
    (PERPLEXITIES, {"reference": "best", "threshold": 0.0}, [8, 8, 8, 8, 4, 4, 4]),
    (BETTER_THAN_PREVIOUS, {"reference": "previous"}, [8, 4, 4]),
    (BETTER_THAN_PREVIOUS, {"reference": "best"}, [8, 4, 2]),
]


@pytest.mark.parametrize(("perplexities", "settings", "rates"), HALVED)
def test_a_plateau_by_reference_and_threshold_in_perplexity(perplexities, settings, rates):
    assert rates_after([math.log(each) for each in perplexities], {"plateau": {"factor": 0.5, **settings}}) == rates


def test_an_improvement_by_the_threshold_itself_counts():
    # exp(log 8) - exp(log 4) of math are exactly 4: the rule of lstm-char-cnn lowers when it is less than the threshold
    losses = [math.log(8), math.log(4)]
    assert math.exp(losses[0]) - math.exp(losses[1]) == pytest.approx(4, rel=0, abs=rounding.bound(3, 12))
    exact = math.exp(losses[0]) - math.exp(losses[1])
    for threshold, rate in ((exact, 8), (math.nextafter(exact, 5), 4)):
        way = {"plateau": {"factor": 0.5, "threshold": threshold, "reference": "previous"}}
        assert rates_after(losses, way)[-1] == rate


def test_step_keeps_the_rate_for_a_few_epochs_and_halves_it_after_each_later_one():
    # the sequence of Zaremba et al.: epochs 1 to 4 at 1, then 1/2, 1/4, ...; the list has the rate of the next epoch
    rates = rates_after([5.0] * 12, {"step": {"after": 4, "factor": 0.5}}, lr=1.0)
    assert rates == [1, 1, 1, *(0.5**halvings for halvings in range(1, 10))]


@pytest.mark.parametrize("warmup", [0, 1, 4, 12, 20])
@pytest.mark.parametrize("decay", ["none", "linear", "cosine"])
@pytest.mark.parametrize("epochs", [3, 2.5])
def test_warmup_has_the_rates_of_transformers(decay, warmup, epochs, tmp_path):
    steps = {3: 12, 2.5: 10}[epochs]  # 4 an epoch
    reference = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    makers = {
        "none": lambda: get_constant_schedule_with_warmup(reference, warmup),
        "linear": lambda: get_linear_schedule_with_warmup(reference, warmup, steps),
        "cosine": lambda: get_cosine_schedule_with_warmup(reference, warmup, steps),
    }
    scheduler, expected = makers[decay](), []
    for _ in range(steps):
        expected.append(reference.param_groups[0]["lr"])
        reference.step()
        scheduler.step()
    schedule = {"warmup": {"steps": warmup, "decay": decay}}
    found = used_rates(spec(lr=0.3, epochs=epochs, schedule=schedule), tmp_path)
    assert found == pytest.approx(expected, rel=0, abs=rounding.bound(6, 0.3))


def used_rates(train, folder) -> list[float]:
    """The rate of every step of a training."""
    rates = []

    class Noted(EagerStep):
        def __call__(self, segment):
            rates.append(self.optimizer.param_groups[0]["lr"].item())
            super().__call__(segment)

    def prepare(step, segment, parts):
        return Noted(step.model, step.optimizer, step.train)

    handmade.training(model(), CORPUS, train, folder, prepare=prepare).fit()
    return rates


def test_each_group_is_warmed_up_to_its_own_rate():
    optimizer = make_optimizer(torch.nn.ParameterList([torch.zeros(1)]), spec(schedule={"warmup": {"steps": 4}}))
    other = {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": torch.tensor(2.0), "initial_lr": 2.0}
    optimizer.add_param_group(other)
    schedule = make_schedule(optimizer, spec(schedule={"warmup": {"steps": 4}}), segments=4)
    schedule.before_step(1)  # a quarter of 8 and of 2
    assert [group["lr"].item() for group in optimizer.param_groups] == [2.0, 0.5]
