"""Optimizers: AdamW of transformers and momentum that is reset, against loops in float64."""

import math

import handmade
import pytest
import torch
from small import CORPUS, TOKENS, V

from harness.model import build
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.training.optimizers import make_optimizer

SETTINGS = {"lr": 0.01, "epochs": 2, "batch_size": 4, "seq_len": 5}


def gradients(steps, scale=1.0):
    draws = torch.Generator().manual_seed(3)
    return [scale * torch.randn(3, generator=draws, dtype=torch.float64) for _ in range(steps)]


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


def adamw(parameter, **changes):
    settings = {"optimizer": "adamw_huggingface", "betas": (0.8, 0.95), "eps": 1e-2, "weight_decay": 0.1}
    return make_optimizer(torch.nn.ParameterList([parameter]), TrainSpec(**{**SETTINGS, **settings, **changes}))


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


@pytest.mark.parametrize("reset", [False, True])
def test_momentum_that_is_reset_equals_a_loop_whose_epochs_begin_without(reset, tmp_path):
    lstm, softmax = ComponentSpec(name="lstm", params={"d_model": 6, "dropout": 0.0}), ComponentSpec(name="softmax")
    settings = {**SETTINGS, "optimizer": "sgd", "momentum": 0.9, "lr": 0.1}
    # blocks carry no state: 16 blocks of 5 tokens in 4 segments, the first token of each no target
    train = TrainSpec(**settings, reset_momentum=reset, batching="blocks")
    trained = build(lstm, softmax, vocab_size=V, seed=1)
    handmade.training(trained, CORPUS, train, tmp_path).fit()
    ours = build(lstm, softmax, vocab_size=V, seed=1)
    weights = list(ours.parameters())
    velocity = [torch.zeros_like(each) for each in weights]
    for _ in range(2):
        if reset:
            velocity = [torch.zeros_like(each) for each in weights]
        for rows in TOKENS[:80].view(16, 5).split(4):
            hidden = ours.backbone(rows[:, :-1], None).layers[-1]
            logits = hidden @ ours.head.output.weight.T + ours.head.output.bias
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            slopes = torch.autograd.grad(loss, weights)
            velocity = [0.9 * v + g for v, g in zip(velocity, slopes, strict=True)]
            with torch.no_grad():
                for weight, v in zip(weights, velocity, strict=True):
                    weight -= 0.1 * v
    for a, b in zip(trained.parameters(), weights, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
