"""Optimizers: what they are given by a suite, and AdamW of transformers against a loop in float64."""

import math

import pytest
import torch
from small import spec

from harness.training.optimizers import make_optimizer


@pytest.mark.parametrize(
    ("settings", "kind", "expected"),
    [
        ({"optimizer": "sgd", "momentum": 0.5}, torch.optim.SGD, {"lr": 0.5, "momentum": 0.5, "weight_decay": 0.0}),
        ({"optimizer": "adam", "betas": (0.8, 0.9), "eps": 1e-6}, torch.optim.Adam, {"betas": (0.8, 0.9), "eps": 1e-6}),
        ({"optimizer": "adamw", "weight_decay": 0.01}, torch.optim.AdamW, {"weight_decay": 0.01, "eps": 1e-8}),
    ],
)
def test_optimizers_take_the_suites_settings(settings, kind, expected):
    optimizer = make_optimizer(torch.nn.ParameterList([start()]), spec(**settings))
    assert type(optimizer) is kind
    assert {key: optimizer.param_groups[0][key] for key in expected} == expected


def gradients(steps):
    draws = torch.Generator().manual_seed(3)
    return [torch.randn(3, generator=draws, dtype=torch.float64) for _ in range(steps)]


def stepped(optimizer, parameter, given):
    """The parameter after each step."""
    found = []
    for gradient in given:
        parameter.grad = gradient.to(parameter.dtype)
        optimizer.step()
        found.append(parameter.detach().clone())
    return found


def start(dtype=torch.float64):
    return torch.nn.Parameter(torch.tensor([0.5, -1.5, 2.0], dtype=dtype))


def adamw(parameter, eps=1e-2, weight_decay=0.1):
    settings = {"optimizer": "adamw_huggingface", "lr": 0.01, "betas": (0.8, 0.95)}
    train = spec(**settings, eps=eps, weight_decay=weight_decay)
    return make_optimizer(torch.nn.ParameterList([parameter]), train)


def test_adamw_of_transformers_equals_a_loop_in_float64():
    parameter = start()
    found = stepped(adamw(parameter), parameter, gradients(30))
    for place in range(3):
        p, m, v = [0.5, -1.5, 2.0][place], 0.0, 0.0
        for t, gradient in enumerate(gradients(30), start=1):
            g = gradient[place].item()
            m = 0.8 * m + 0.2 * g
            v = 0.95 * v + 0.05 * g * g
            p -= 0.01 * math.sqrt(1 - 0.95**t) / (1 - 0.8**t) * m / (math.sqrt(v) + 1e-2)
            p -= 0.01 * 0.1 * p
            assert found[t - 1][place].item() == pytest.approx(p, abs=1e-9)


def test_without_eps_to_speak_of_it_is_torchs_adamw_but_for_the_order_of_decay():
    ours, theirs = start(), start()
    found = stepped(adamw(ours, eps=1e-300, weight_decay=0.0), ours, gradients(20))
    torchs = torch.optim.AdamW([theirs], lr=0.01, betas=(0.8, 0.95), eps=1e-300, weight_decay=0.0)
    for a, b in zip(found, stepped(torchs, theirs, gradients(20)), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_its_state_goes_on_from_a_saved_one_with_equal_bits():
    whole, cut = start(torch.float32), start(torch.float32)
    expected = stepped(adamw(whole), whole, gradients(10))[-1]
    first = adamw(cut)
    stepped(first, cut, gradients(10)[:4])
    again = adamw(cut)
    again.load_state_dict({"state": first.state_dict()["state"], "param_groups": again.state_dict()["param_groups"]})
    assert torch.equal(stepped(again, cut, gradients(10)[4:])[-1], expected)
