"""Optimizers take the settings of the suite, group by group, and schedules have the rates of torch and transformers."""

import math
from functools import partial

import handmade
import pytest
import rounding
import torch
from small import CORPUS, model, spec, tokens
from transformers.optimization import (
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_linear_schedule_with_warmup,
)

from harness.corpora.batching import Segment
from harness.plan.specs import ComponentSpec
from harness.training.optimizers import make_optimizer
from harness.training.parts import OptimizerState
from harness.training.schedules import make_schedule
from harness.training.step import EagerStep

START = [0.5, -1.5, 2.0]


@pytest.mark.parametrize(("eps", "decay"), [(1e-2, 0.1), (1e-300, 0.0)])
def test_adamw_of_transformers_equals_a_loop_in_float64(eps, decay):
    parameter, found = torch.nn.Parameter(torch.tensor(START, dtype=torch.float64)), []
    settings = {"lr": 0.01, "betas": (0.8, 0.95), "eps": eps, "weight_decay": decay}
    optimizer = make_optimizer(torch.nn.ParameterList([parameter]), spec(optimizer="adamw_huggingface", **settings))
    gradients = torch.randn(30, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for gradient in gradients:
        parameter.grad = gradient
        optimizer.step()
        found.append(parameter.tolist())
    for place in range(3):
        p, m, v = START[place], 0.0, 0.0
        for t, g in enumerate(gradients[:, place].tolist(), start=1):
            m = 0.8 * m + 0.2 * g
            v = 0.95 * v + 0.05 * g * g
            p -= 0.01 * math.sqrt(1 - 0.95**t) / (1 - 0.8**t) * m / (math.sqrt(v) + eps)
            p -= 0.01 * decay * p
            assert found[t - 1][place] == pytest.approx(p, abs=1e-12 if decay == 0 else 1e-9)


ENCODER = ComponentSpec(
    name="transformer_encoder",
    params={"d_model": 8, "num_layers": 1, "num_heads": 2, "d_ff": 8, "dropout": 0.0, "layer_dropout": 0.0},
)
TEXT = Segment(tokens(12).view(2, 6), tokens(12, seed=1).view(2, 6))


def with_gradients(built):
    built(TEXT)[0].training_loss(TEXT.targets).backward()
    return built


def names(built, optimizer):
    """The names of the parameters of each group."""
    known = {id(parameter): name for name, parameter in built.named_parameters()}
    return [{known[id(each)] for each in group["params"]} for group in optimizer.param_groups]


def test_groups_have_their_own_rates_and_decays():
    built = model()
    groups = {"head": {"lr": "x0.1"}, "embedding": {"lr": 0.3}, "vectors": {"weight_decay": 0.0}}
    optimizer = make_optimizer(built, spec(optimizer="adamw", lr=0.01, weight_decay=0.2, groups=groups))
    found = {
        frozenset(each): (float(group["lr"]), group["initial_lr"], group["weight_decay"])
        for each, group in zip(names(built, optimizer), optimizer.param_groups, strict=True)
    }
    vectors = {name for name, parameter in built.named_parameters() if parameter.dim() < 2}
    rest = (
        {name for name, _ in built.named_parameters()} - vectors - {"head.output.weight", "backbone.embedding.weight"}
    )
    assert found == {
        frozenset({"head.output.weight"}): (pytest.approx(0.001), pytest.approx(0.001), 0.2),
        frozenset({"backbone.embedding.weight"}): (0.3, 0.3, 0.2),
        frozenset(vectors): (0.01, 0.01, 0.0),
        frozenset(rest): (0.01, 0.01, 0.2),
    }
    assert "head.output.bias" in vectors


def test_a_head_gives_its_parameters_their_own_rate():
    built = model(head=ComponentSpec(name="plif", params={"num_pieces": 8, "slope_rate": 0.25}))
    optimizer = make_optimizer(built, spec(lr=0.5, groups={"vectors": {"lr": "x2"}}))
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    assert rates[names(built, optimizer).index({"head.raw_slope"})] == 0.25
    assert sorted(rates) == [0.25, 0.5, 1.0]
    plain = model(head=ComponentSpec(name="plif", params={"num_pieces": 8}))
    assert len(make_optimizer(plain, spec()).param_groups) == 1


def test_the_heads_own_optimizer_makes_the_steps_of_torchs_own():
    groups = {"head": {"optimizer": "adam", "betas": (0.8, 0.9), "lr": 0.02, "weight_decay": 0.0}}
    train = spec(optimizer="sgd", lr=0.5, momentum=0.9, weight_decay=0.1, groups=groups)
    ours, theirs = model(), model()
    optimizer = make_optimizer(ours, train)
    sgd = torch.optim.SGD(theirs.backbone.parameters(), 0.5, momentum=0.9, weight_decay=0.1, fused=True)
    adam = torch.optim.Adam(theirs.head.parameters(), 0.02, betas=(0.8, 0.9), fused=True)
    for number in range(4):
        for built in (ours, theirs):
            built.zero_grad()
            with_gradients(built)
        optimizer.step()
        sgd.step()
        adam.step()
        for name, parameter in theirs.named_parameters():
            assert torch.equal(ours.get_parameter(name), parameter), name
        if number == 1:  # as after a resume: another optimizer with the state of the first one
            state = OptimizerState(optimizer).state_dict()
            optimizer = make_optimizer(ours, train)
            OptimizerState(optimizer).load_state_dict(state)
    schedule = spec(**{**train.model_dump(), "schedule": {"warmup": {"steps": 2}}, "epochs": 1})
    make_schedule(optimizer, schedule, segments=8).before_step(1)
    assert sorted(float(group["lr"]) for group in optimizer.param_groups) == [0.01, 0.25]


def test_muon_leaves_the_head_to_its_own_optimizer():
    built = model(ENCODER)
    optimizer = make_optimizer(built, spec(optimizer="muon", lr=0.02, groups={"head": {"optimizer": "sgd"}}))
    kinds = [type(each).__name__ for each in optimizer.optimizers]
    assert kinds[0] == "Muon"
    assert sorted(kinds[1:]) == ["AdamW", "SGD"]
    of_sgd = optimizer.optimizers[kinds.index("SGD")]
    assert {name for each in names(built, of_sgd) for name in each} == {"head.output.weight", "head.output.bias"}


@pytest.mark.parametrize("lr", ["0.1x", "x-1", 0])
def test_a_rate_of_a_group_is_a_number_or_a_factor(lr):
    with pytest.raises(ValueError, match=r"expected a rate above 0, or a factor of train.lr as x0.1, got"):
        spec(groups={"head": {"lr": lr}})


def test_betas_of_a_group_need_a_form_of_adam():
    with pytest.raises(ValueError, match=r"groups\.head: betas belong to the forms of adam, and its optimizer is sgd"):
        spec(optimizer="sgd", groups={"head": {"betas": (0.8, 0.9)}})


def test_what_a_head_shares_is_not_of_its_group():
    built = model(head=ComponentSpec(name="softmax", params={"tie_weights": True}))
    optimizer = make_optimizer(built, spec(groups={"head": {"lr": 0.1}}))
    assert sorted(map(len, names(built, optimizer)))[0] == 1
    assert {"head.output.bias"} in names(built, optimizer)


def test_muon_moves_the_backbones_matrices_and_adamw_the_rest_as_torchs_own_do():
    ours, theirs = model(ENCODER), model(ENCODER)
    train = spec(optimizer="muon", lr=0.02, weight_decay=0.1, betas=(0.8, 0.95), eps=1e-6)
    optimizer = make_optimizer(ours, train)
    inner = {name for name, parameter in theirs.backbone.named_parameters() if parameter.dim() == 2}
    inner = {f"backbone.{name}" for name in inner if name != "embedding.weight"}
    known = dict(theirs.named_parameters())
    assert names(ours, optimizer) == [inner, known.keys() - inner]
    muon = torch.optim.Muon([known[n] for n in known if n in inner], 0.02, 0.1, adjust_lr_fn="match_rms_adamw")
    rest = [known[n] for n in known if n not in inner]
    adamw = torch.optim.AdamW(rest, 0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1, fused=True)
    for number in range(4):
        if number == 2:  # resumed in a new process
            saved, again = OptimizerState(optimizer).state_dict(), make_optimizer(ours, train)
            OptimizerState(again).load_state_dict(saved)
            optimizer = again
        for built, steps in ((ours, [optimizer]), (theirs, [muon, adamw])):
            for step in steps:
                step.zero_grad()
            with_gradients(built)
            for step in steps:
                step.step()
        for name, parameter in ours.named_parameters():
            torch.testing.assert_close(parameter, known[name], rtol=0, atol=0)
    assert len(optimizer.state) == len(known)


@pytest.mark.needs("pretrained")
def test_muon_leaves_what_multiplies_no_state():
    params = {"config": {"model_type": "mamba", "hidden_size": 8, "num_hidden_layers": 1}}
    built = model(ComponentSpec(name="hf", params=params))
    matrices = names(built, make_optimizer(built, spec(optimizer="muon", lr=0.02)))[0]
    assert {name.rpartition("mixer.")[2] for name in matrices} == {
        f"{name}.weight" for name in ("in_proj", "x_proj", "dt_proj", "out_proj")
    }


@pytest.mark.parametrize(
    ("more", "shares", "words"),
    [
        # 8 steps are left: constant for 75 % of them, then linear over 2
        ({"stable": 0.75}, [0, 0.5, *[1] * 7, 0.5, 0], "75 % of the rest constant, linear decay to 0"),
        # p = 0, 1/8, ... 1: 0.2 + 0.8 (1 - p)
        ({"floor": 0.2}, [0, 0.5, 1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2], "linear decay to 20 %"),
    ],
)
def test_a_rate_may_stay_before_it_falls_or_fall_to_a_floor(more, shares, words):
    train = spec(epochs=1, lr=1.0, schedule={"warmup": {"steps": 2, "decay": "linear", **more}})
    schedule = make_schedule(make_optimizer(model(), train), train, segments=10)
    assert [schedule.share(done) for done in range(11)] == pytest.approx(shares)
    assert str(train.schedule.way) == f"warm-up of 2 steps, {words}"


@pytest.mark.parametrize("name", ["stable", "floor"])
def test_what_belongs_to_a_decay_needs_one(name):
    with pytest.raises(ValueError, match=f"{name}: the rate .*; set decay to linear or cosine"):
        spec(schedule={"warmup": {"steps": 2, name: 0.5}})
    assert name not in spec(schedule={"warmup": {"steps": 2}}).schedule.way.model_dump()


def test_new_settings_leave_old_ids_as_they_were():
    warm = {"schedule": {"warmup": {"steps": 3, "decay": "none"}}}
    assert spec(**warm).model_dump(exclude_defaults=True)["schedule"] == {"warmup": {"steps": 3}}
    assert "groups" not in spec().model_dump(exclude_defaults=True)


scheduled = partial(spec, lr=8.0)


def rates_after(losses, way, lr=8.0):
    """The rate after each of a few epochs with these validation losses."""
    train = scheduled(lr=lr, schedule=way)
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
def test_warmup_has_the_rates_of_transformers(decay, warmup):
    steps = 10  # 4 an epoch
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
    train = scheduled(lr=0.3, epochs=2.5, schedule={"warmup": {"steps": warmup, "decay": decay}})
    schedule = make_schedule(make_optimizer(model(), train), train, segments=4)
    found = [0.3 * schedule.share(done) for done in range(steps)]
    assert found == pytest.approx(expected, rel=0, abs=rounding.bound(6, 0.3))


def test_each_step_of_training_has_its_rate(tmp_path):
    train, rates = scheduled(epochs=1.5, schedule={"warmup": {"steps": 2, "decay": "linear"}}), []

    class Noted(EagerStep):
        def __call__(self, segment):
            rates.append(self.optimizer.param_groups[0]["lr"].item())
            super().__call__(segment)

    def prepare(step, segment, parts):
        return Noted(step.model, step.optimizer, step.train)

    handmade.training(model(), CORPUS, train, tmp_path, prepare=prepare).fit()
    assert rates == [0, 4, 8, 6, 4, 2]  # 4 steps and 2
