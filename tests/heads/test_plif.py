"""LMS-PLIF: the map on hand-made slopes, and its start."""

import math

import pytest
import rounding
import small_heads
import torch
from small_heads import E, load

from harness.protocols import Hidden


def make(*, num_pieces=8, **params):
    return small_heads.make("plif", num_pieces=num_pieces, **{"dtype": None, **params})


def with_slopes(slopes, bound):
    inverse = [math.log(math.expm1(slope)) for slope in slopes]  # softplus^-1
    return load(make(num_pieces=len(slopes), bound=bound, dtype=torch.float64), raw_slope=inverse)


@pytest.mark.parametrize(
    ("slopes", "bound", "points"),
    [
        # slopes 1, 2, 3, 4 on [-2, -1], [-1, 0], [0, 1], [1, 2]; phi at the knots -2, -1, 0, 1: 0, 1, 3, 6; the outer
        # pieces go on
        ([1, 2, 3, 4], 2.0, {-3: -1, -2: 0, -1.5: 0.5, -1: 1, -0.25: 2.5, 0: 3, 0.5: 4.5, 1.5: 8, 2: 10, 3: 14}),
        # three pieces of width 4: phi at -6, -2, 2, 6 is 0, 2, 12, 26; below -6 slope .5
        ([0.5, 2.5, 3.5], 6.0, {-9: -1.5, -6: 0, -2: 2, 2: 12, 6: 26}),
    ],
)
def test_the_map_adds_up_the_slopes_from_the_lower_bound_on_pieces_of_width_2_bound_by_m(slopes, bound, points):
    phi = with_slopes(slopes, bound).phi
    found = phi(torch.tensor(list(points), dtype=torch.float64)).tolist()
    assert found == pytest.approx(list(points.values()), rel=0, abs=1e-6)


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


def test_the_slopes_have_the_rate_that_is_asked_for():
    head = make(slope_rate=0.25)
    assert head.learning_rates == {"raw_slope": 0.25}
    assert dict(head.named_parameters())["raw_slope"] is head.raw_slope
