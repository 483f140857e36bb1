"""The largest singular values by block Krylov iteration, against a dense decomposition."""

import math

import pytest
import rounding
import torch
from matrices import blocks_of, both, draw, mixture, softmax

from harness.diagnostics.krylov import limit_of
from harness.diagnostics.singular_values import Sizes, spectra

AGREEMENT = 1e-8  # of the largest singular value
SMALL = Sizes(qr=0, gram=0, block=16, iterations=8)  # a basis of 128 columns


def decaying(N: int, V: int, power: float) -> torch.Tensor:
    """Singular values 1, 2^-power, 3^-power and so on, less 0.01: the level of log-probabilities."""
    least = min(N, V)
    left, right = (torch.linalg.qr(draw(size, least, seed=size)).Q for size in (N, V))
    return left * torch.arange(1, least + 1, dtype=torch.float64) ** -power @ right.T - 0.01


@pytest.mark.parametrize(
    ("A", "least"),
    [
        (mixture(300, 400, 5), 10),
        (mixture(400, 300, 5), 10),
        (decaying(300, 400, 2.0), 30),
        (decaying(300, 400, 0.5), 10),
        (decaying(400, 300, 0.5), 10),
    ],
)
def test_the_values_found_are_those_of_a_dense_decomposition_and_the_others_below_the_limit(A, least):
    blocks, passes = blocks_of(A)
    found = spectra(blocks, *A.shape, sizes=SMALL)
    assert (found.way, len(passes)) == ("krylov", SMALL.iterations + 1)
    for values, matrix in zip(found[:2], both(A), strict=True):
        expected = torch.linalg.svdvals(matrix)
        count = len(values.found)
        assert least <= count < 128
        torch.testing.assert_close(values.found, expected[:count], rtol=0, atol=AGREEMENT * float(expected[0]))
        assert float(expected[count]) <= values.limit * float(expected[0])
        assert 0 < values.limit < 1
        assert values.squares == pytest.approx(float(matrix.square().sum()), rel=rounding.bound(matrix.numel()))


def test_a_matrix_of_low_rank_is_found_whole():
    A = softmax(300, 400, 6, seed=1)
    found = spectra(blocks_of(A)[0], 300, 400, sizes=SMALL)
    assert (len(found.raw.found), len(found.centred.found)) == (7, 6)
    for values, matrix in zip(found[:2], both(A), strict=True):
        expected = torch.linalg.svdvals(matrix)[: len(values.found)]
        torch.testing.assert_close(values.found, expected, rtol=0, atol=AGREEMENT * float(expected[0]))
        # what is left are rounding errors: 64 eps of the sum of squares, which the limit allows for, and those of the
        # values of a matrix of width 400; the square root of both is 8e-7 of the norm
        most = math.sqrt(64 * rounding.EPSILON + rounding.bound(400))
        assert values.limit <= most * float(torch.linalg.matrix_norm(matrix)) / float(expected[0])


def test_equal_values_are_all_found():
    """Five values of 3 and five of 2 in a matrix whose rows have mean 0, so raw and centred are equal."""
    constant = torch.ones(400, 1, dtype=torch.float64)
    right = torch.linalg.qr(torch.cat([constant, draw(400, 10, seed=5)], 1)).Q[:, 1:]
    left = torch.linalg.qr(draw(300, 10, seed=6)).Q
    expected = torch.tensor([3.0] * 5 + [2.0] * 5, dtype=torch.float64)
    found = spectra(blocks_of(left * expected @ right.T)[0], 300, 400, sizes=SMALL)
    for values in found[:2]:
        torch.testing.assert_close(values.found, expected, rtol=0, atol=rounding.bound(400, 3))


def test_values_that_did_not_converge_are_left_out():
    """Noise has no gaps: a basis of two columns finds nothing, and nothing is what the result has."""
    A = draw(300, 400, seed=7)
    found = spectra(blocks_of(A)[0], 300, 400, sizes=Sizes(qr=0, gram=0, block=2, iterations=1))
    assert (len(found.raw.found), len(found.centred.found)) == (0, 0)
    assert found.raw.limit == 1


@pytest.mark.parametrize(
    ("s", "kept", "squares", "expected"),
    [
        # 15 - 14 = 1 is left; sigma_2^2 <= 1 + 4, and 2 sigma_2^2 <= 1 + 4 + 9 says less
        ([3.0, 2.0, 1.0], 1, 15.0, math.sqrt(5) / 3),
        # 109 - 103 = 6 is left; 3 sigma_4^2 <= 6 + 3 says more than sigma_4^2 <= 7 and 4 sigma_4^2 <= 109
        ([10.0, 1.0, 1.0, 1.0], 3, 109.0, math.sqrt(3) / 10),
        # all were kept: sigma_3^2 <= 14 - 13
        ([3.0, 2.0], 2, 14.0, 1 / 3),
        # no value is larger than the largest
        ([1.0, 1.0], 1, 50.0, 1.0),
    ],
)
def test_the_limit_by_hand(s, kept, squares, expected):
    assert limit_of(torch.tensor(s, dtype=torch.float64), kept, squares) == pytest.approx(expected, rel=1e-12)
