"""Optimizers: what they are given by a suite, and AdamW of transformers against a loop in float64."""

import math

import pytest
import torch
from small import spec

from harness.training.optimizers import make_optimizer

START = [0.5, -1.5, 2.0]


@pytest.mark.parametrize(
    ("settings", "kind", "expected"),
    [
        ({"optimizer": "sgd", "momentum": 0.5}, torch.optim.SGD, {"lr": 0.5, "momentum": 0.5, "weight_decay": 0.0}),
        ({"optimizer": "adam", "betas": (0.8, 0.9), "eps": 1e-6}, torch.optim.Adam, {"betas": (0.8, 0.9), "eps": 1e-6}),
        ({"optimizer": "adamw", "weight_decay": 0.01}, torch.optim.AdamW, {"weight_decay": 0.01, "eps": 1e-8}),
    ],
)
def test_optimizers_take_the_suites_settings(settings, kind, expected):
    optimizer = make_optimizer(torch.nn.ParameterList([torch.zeros(1)]), spec(**settings))
    assert type(optimizer) is kind
    assert {key: optimizer.param_groups[0][key] for key in expected} == expected


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
