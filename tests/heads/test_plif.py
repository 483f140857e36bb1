"""LMS-PLIF: its start, and the map where numbers are tight."""

import math

import pytest
import rounding
import small_heads
import torch
from small_heads import E

from harness.protocols import Hidden


def make(*, num_pieces=8, **params):
    return small_heads.make("plif", num_pieces=num_pieces, **{"dtype": None, **params})


def test_without_noise_it_starts_as_a_softmax():
    # slope 1 everywhere: phi(z) = z + bound, and a softmax does not see a shift
    z = torch.linspace(-30, 30, 61, dtype=torch.float64)
    head = make(noise=0.0, bound=20.0, dtype=torch.float64)
    torch.testing.assert_close(head.phi(z), z + 20, rtol=0, atol=1e-5)


def test_slopes_start_around_one_with_the_noise_given(monkeypatch):
    for noise in (1.0, 0.3):
        raw = make(num_pieces=100_000, noise=noise).raw_slope
        assert raw.mean().item() == pytest.approx(math.log(math.e - 1), abs=5 * noise / math.sqrt(100_000))
        assert raw.std().item() == pytest.approx(noise, rel=0.01)
    monkeypatch.setattr(torch, "randn", lambda *shape: torch.full(shape, 2.0))
    expected = torch.full((8,), math.log(math.e - 1) + 2 * 0.25)
    torch.testing.assert_close(make(noise=0.25).raw_slope.detach(), expected, rtol=0, atol=1e-6)


def test_the_map_of_float64_logits_is_exact_to_float64_whatever_the_slopes_type():
    head = make(num_pieces=1000, noise=1.0)
    raw = head.raw_slope.detach().double()
    heights = 40 / 1000 * torch.log1p(raw.exp()).cumsum(0)  # phi at the upper end of each piece; delta = 2 20 / 1000
    upper = torch.arange(1, 1001, dtype=torch.float64) * 40 / 1000 - 20
    torch.testing.assert_close(head.phi(upper), heights, rtol=0, atol=rounding.bound(1000, heights[-1].item()))


def test_nan_logits_give_a_nan_loss_and_not_an_error():
    # training then ends as diverged; an infinite logit has the outermost piece
    head = make(bound=1.0)
    found = head.phi(torch.tensor([math.nan, 0.25, math.inf, -math.inf]))
    assert found.isnan().tolist() == [True, False, False, False]
    assert found[2:].tolist() == [math.inf, -math.inf]
    loss = head(Hidden((torch.full((1, 2, E), math.nan),))).mean_nll(torch.tensor([[0, 1]]))
    loss.backward()
    assert loss.isnan()
