"""Generalised SigSoftmax: its two special cases, and the map at chosen points."""

import math

import pytest
import torch
from small_heads import E, make
from torch import nn

from harness.protocols import Hidden

LOGITS = torch.linspace(-30, 30, 101, dtype=torch.float64)


def test_slope_one_everywhere_is_softmax_and_slope_two_below_zero_is_sigsoftmax():
    torch.testing.assert_close(make("gss", c=-1.5, k=1.0).phi(LOGITS), LOGITS, rtol=0, atol=1e-12)
    # z + log sigmoid(z) = z - log(1 + exp(-z))
    expected = LOGITS - torch.log1p(torch.exp(-LOGITS))
    torch.testing.assert_close(make("gss", c=0.0, k=2.0).phi(LOGITS), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("c", "k"), [(-1.5, 2.5), (-1.5, 3.0), (2.0, 0.5)])
def test_the_map_bends_at_c_from_slope_k_to_slope_one(c, k):
    z = torch.tensor([c, c - 50, c + 50], dtype=torch.float64)
    # softplus(-50) is 2e-22; k 50 - (k - 1) 50
    expected = [c - (k - 1) * math.log(2), c - 50 * k, c + 50]
    assert make("gss", c=c, k=k).phi(z).tolist() == pytest.approx(expected, rel=0, abs=1e-12)


def test_the_map_is_applied_to_the_logits():
    # two words with logits 1 and -3: odds exp(phi(1) - phi(-3)), phi by its formula for c = -1, k = 3
    head = make("gss", vocab_size=2, c=-1.0, k=3.0)
    nn.init.zeros_(head.output.weight)
    with torch.no_grad():
        head.output.bias.copy_(torch.tensor([1.0, -3.0]))
    first, second = head(Hidden((torch.ones(1, 1, E, dtype=torch.float64),))).log_probs()[0, 0].tolist()
    high = 3 * 2 - 1 - 2 * math.log(1 + math.exp(2))
    low = 3 * -2 - 1 - 2 * math.log(1 + math.exp(-2))
    assert first - second == pytest.approx(high - low, abs=1e-12)


@pytest.mark.parametrize("k", [0.01, 1.0])
def test_any_slope_above_zero_is_accepted(k):
    assert make("gss", k=k).phi(LOGITS).diff().min() > 0
