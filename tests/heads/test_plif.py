"""LMS-PLIF: the map on hand-made slopes, its start, parameters, what it refuses."""

import math

import pytest
import rounding
import torch
from handmade import count
from torch import nn

from harness.heads.plif import PiecewiseLinearSoftmax
from harness.protocols import HeadDims, Hidden

V, D, E = 11, 4, 6


def make(*, layer_dims=(E,), d_embed=E, vocab_size=V, num_pieces=8, **params):
    torch.manual_seed(0)
    dims = HeadDims(vocab_size=vocab_size, layer_dims=layer_dims, d_embed=d_embed)
    return PiecewiseLinearSoftmax(dims, nn.Embedding(vocab_size, d_embed), num_pieces=num_pieces, **params)


def with_slopes(slopes, bound):
    head = make(num_pieces=len(slopes), bound=bound).double()
    with torch.no_grad():
        head.raw_slope.copy_(torch.tensor([math.log(math.expm1(slope)) for slope in slopes]))  # softplus^-1
    return head


@pytest.mark.parametrize(
    # softmax's + M: HEADS.md section 5
    ("params", "softmax"),
    [
        ({}, V * E + V),
        ({"bias": False}, V * E),
        ({"projection": True}, V * E + V + D * E + E),
        ({"tie_weights": True}, V * E + V),
    ],
)
def test_parameters_are_softmaxs_and_a_slope_for_each_piece(params, softmax):
    layer_dims = (9, D if params.get("projection") else E)
    assert count(make(layer_dims=layer_dims, num_pieces=8, **params)) == softmax + 8
    assert count(make(layer_dims=layer_dims, num_pieces=1, **params)) == softmax + 1


@pytest.mark.parametrize(
    # slopes 1, 2, 3, 4 on [-2, -1], [-1, 0], [0, 1], [1, 2]; phi at the knots -2, -1, 0, 1: 0, 1, 3, 6
    ("z", "expected"),
    [
        (-3.0, -1.0),  # the outer pieces go on
        (-2.0, 0.0),
        (-1.5, 0.5),
        (-1.0, 1.0),
        (-0.25, 2.5),
        (0.0, 3.0),
        (0.5, 4.5),
        (1.5, 8.0),
        (2.0, 10.0),
        (3.0, 14.0),
    ],
)
def test_the_map_adds_up_the_slopes_from_the_lower_bound(z, expected):
    phi = with_slopes([1, 2, 3, 4], bound=2.0).phi
    assert phi(torch.tensor(z, dtype=torch.float64)).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("z", "expected"), [(-9.0, -1.5), (-6.0, 0.0), (-2.0, 2.0), (2.0, 12.0), (6.0, 26.0)])
def test_pieces_have_the_width_2_bound_by_m(z, expected):
    # bound 6, three pieces of width 4, slopes .5, 2.5, 3.5: phi at -6, -2, 2, 6 is 0, 2, 12, 26; below -6 slope .5
    phi = with_slopes([0.5, 2.5, 3.5], bound=6.0).phi
    assert phi(torch.tensor(z, dtype=torch.float64)).item() == pytest.approx(expected, abs=1e-6)


def test_the_gradient_of_the_map_is_the_slope_of_the_piece():
    z = torch.tensor([-5.0, -1.5, -0.5, 0.5, 1.5, 5.0], dtype=torch.float64, requires_grad=True)
    with_slopes([1, 2, 3, 4], bound=2.0).phi(z).sum().backward()
    expected = torch.tensor([1, 1, 2, 3, 4, 4], dtype=torch.float64)
    torch.testing.assert_close(z.grad, expected, rtol=0, atol=1e-6)


def test_without_noise_it_starts_as_a_softmax():
    # slope 1 everywhere: phi(z) = z + bound, and a softmax does not see a shift
    z = torch.linspace(-30, 30, 61, dtype=torch.float64)
    torch.testing.assert_close(make(noise=0.0, bound=20.0).double().phi(z), z + 20, rtol=0, atol=1e-5)
    head = make(noise=0.0).double()
    hidden = Hidden((torch.randn(1, 3, E, dtype=torch.float64, generator=torch.Generator().manual_seed(1)),))
    logits = hidden.layers[-1] @ head.output.weight.T + head.output.bias
    torch.testing.assert_close(head(hidden).log_probs(), logits.log_softmax(-1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("noise", [1.0, 0.3])
def test_slopes_start_around_one_with_the_noise_given(noise):
    raw = make(num_pieces=100_000, noise=noise).raw_slope
    assert raw.mean().item() == pytest.approx(math.log(math.e - 1), abs=5 * noise / math.sqrt(100_000))
    assert raw.std().item() == pytest.approx(noise, rel=0.01)


def test_the_noise_is_added_to_the_slope_one(monkeypatch):
    monkeypatch.setattr(torch, "randn", lambda *shape: torch.full(shape, 2.0))
    expected = torch.full((8,), math.log(math.e - 1) + 2 * 0.25)
    torch.testing.assert_close(make(noise=0.25).raw_slope.detach(), expected, rtol=0, atol=1e-6)


def test_the_map_of_float64_logits_is_exact_to_float64_whatever_the_slopes_type():
    head = make(num_pieces=1000, noise=1.0)
    raw = head.raw_slope.detach().double()
    heights = 40 / 1000 * torch.log1p(raw.exp()).cumsum(0)  # phi at the upper end of each piece; delta = 2 20 / 1000
    upper = torch.arange(1, 1001, dtype=torch.float64) * 40 / 1000 - 20
    torch.testing.assert_close(head.phi(upper), heights, rtol=0, atol=rounding.bound(1000, heights[-1].item()))


def test_matrices_are_xavier_uniform_and_tied_ones_the_embedding():
    head = make(layer_dims=(9, 40), d_embed=60, vocab_size=400, projection=True)
    for matrix in (head.output.weight, head.facet.weight):
        bound = math.sqrt(6 / sum(matrix.shape))
        assert 0.98 * bound < matrix.abs().max() <= bound
        assert matrix.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    embedding = nn.Embedding(V, E)
    dims = HeadDims(vocab_size=V, layer_dims=(E,), d_embed=E)
    assert PiecewiseLinearSoftmax(dims, embedding, tie_weights=True).output.weight is embedding.weight


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"num_pieces": 0}, "num_pieces must be at least 1, got 0"),
        ({"num_pieces": -1}, "num_pieces must be at least 1, got -1"),
        ({"bound": 0.0}, r"bound must be more than 0, got 0\.0"),
        ({"bound": -1.0}, "bound must be more than 0"),
        ({"noise": -0.1}, r"noise must be at least 0, got -0\.1"),
        ({"layer_dims": (E, D)}, "projection: the top layer has width 4, the output embedding 6"),
    ],
)
def test_bad_parameters_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        make(**params)


@pytest.mark.parametrize("params", [{"num_pieces": 1}, {"bound": 0.5}, {"noise": 0.0}, {"noise": 0.1}])
def test_values_at_the_bounds_are_accepted(params):
    assert make(**params).phi(torch.zeros(3)).shape == (3,)


def test_nan_logits_give_a_nan_loss_and_not_an_error():
    # training then ends as diverged; an infinite logit has the outermost piece
    head = make(bound=1.0)
    z = torch.tensor([math.nan, 0.25, math.inf, -math.inf])
    found = head.phi(z)
    assert found.isnan().tolist() == [True, False, False, False]
    assert (found[2].item(), found[3].item()) == (math.inf, -math.inf)
    hidden = Hidden((torch.full((1, 2, E), math.nan),))
    loss = head(hidden).mean_nll(torch.tensor([[0, 1]]))
    loss.backward()
    assert loss.isnan()
