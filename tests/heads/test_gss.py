"""Generalised SigSoftmax: the map at chosen points."""

import math

import pytest
import torch
from small_heads import make

LOGITS = torch.linspace(-30, 30, 101, dtype=torch.float64)


@pytest.mark.parametrize(("c", "k"), [(-1.5, 2.5), (-1.5, 3.0), (2.0, 0.5)])
def test_the_map_bends_at_c_from_slope_k_to_slope_one(c, k):
    z = torch.tensor([c, c - 50, c + 50], dtype=torch.float64)
    # softplus(-50) is 2e-22; k 50 - (k - 1) 50
    expected = [c - (k - 1) * math.log(2), c - 50 * k, c + 50]
    assert make("gss", c=c, k=k).phi(z).tolist() == pytest.approx(expected, rel=0, abs=1e-12)


@pytest.mark.parametrize("k", [0.01, 1.0])
def test_any_slope_above_zero_is_accepted(k):
    assert make("gss", k=k).phi(LOGITS).diff().min() > 0
