"""MultiMax: its start, and states of another type."""

import oracles
import pytest
import torch
from small_heads import make, randomise, states

from harness.protocols import Hidden


@pytest.mark.parametrize(("given", "std"), [({}, 0.02), ({"init_std": 0.5}, 0.5), ({"init_std": 0.0}, 0.0)])
def test_its_numbers_start_normal_around_0_with_the_spread_that_is_asked_for(given, std, monkeypatch):
    drawn = iter([[1.0, -2.0, 0.5, 3.0], [-1.0, 4.0, 0.25, 2.0]])
    monkeypatch.setattr(torch, "randn", lambda *shape: torch.tensor(next(drawn)))
    head = make("multimax", **given)
    assert head.temperatures.tolist() == pytest.approx([std, -2 * std, 0.5 * std, 3 * std], rel=1e-6)
    assert head.bounds.tolist() == pytest.approx([-std, 4 * std, 0.25 * std, 2 * std], rel=1e-6)


@pytest.mark.parametrize("level", [0.0, -60.0, 80.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2**-21), (torch.bfloat16, 2**-8)])
def test_far_and_rounded_logits_are_right_to_the_rounding_of_their_squares(dtype, tolerance, level):
    # 8 roundings of 2^-24, 2 of 2^-9, as in tests/heads/test_stability.py, each times the slope of the map
    head, hidden = randomise(make("multimax"), 0.5).to(dtype), Hidden((states().layers[-1].to(dtype),))
    with torch.no_grad():
        head.output.bias += level
    expected, found = oracles.of_head("multimax", head, hidden.layers), head(hidden).log_probs()
    assert found.dtype == torch.float32
    z = hidden.layers[-1].double() @ head.output.weight.double().T + head.output.bias.double()
    largest = z.abs().max().item() + head.bounds.abs().max().item()
    steepest = 1 + head.temperatures.abs().max().item() * (1 + 2 * largest)
    bound = tolerance * largest * steepest
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=bound)
