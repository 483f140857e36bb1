"""The singular values of a matrix that comes in blocks equal those of a dense decomposition, in each of the ways."""

import math

import pytest
import torch
from matrices import blocks_of, both, draw, mixture, softmax

from harness.diagnostics import singular_values
from harness.diagnostics.singular_values import effective_rank, entropy_rank, press_rank, press_tolerance, spectra

AGREEMENT = 1e-8  # of the largest singular value


@pytest.mark.system
@pytest.mark.parametrize(
    ("A", "way", "more"),
    [
        (softmax(300, 900, 16, bias=True), "qr", {}),
        (softmax(300, 900, 16, bias=True), "gram", {"by_qr": 0}),
        (mixture(300, 900, 16), "qr", {}),
        (mixture(300, 900, 16), "gram", {"by_qr": 0}),
        (mixture(900, 300, 16), "qr", {}),
        (mixture(900, 300, 16), "gram", {"by_qr": 0}),
        (softmax(1100, 2000, 16), "sketch", {"rank_bound": 17}),
        (softmax(1600, 1100, 16, bias=True), "sketch", {"rank_bound": 18}),
    ],
)
def test_in_blocks_equals_dense(A, way, more):
    blocks, _ = blocks_of(A)
    found = spectra(blocks, *A.shape, **more)
    assert found.way == way
    for values, matrix in zip(found[:2], both(A), strict=True):
        expected, count = torch.linalg.svdvals(matrix), len(values.found)
        torch.testing.assert_close(values.found, expected[:count], rtol=0, atol=AGREEMENT * float(expected[0]))
        assert (expected[count:] <= (values.limit + AGREEMENT) * expected[0]).all()
        assert values.limit < 2e-7


def test_a_sketch_notices_a_small_part_outside_of_it():
    A = softmax(1100, 1200, 8)
    A += 1e-11 * draw(1100, 1200, seed=3)
    assert spectra(blocks_of(A)[0], *A.shape, rank_bound=9).way == "qr"


def test_blocks_of_words_are_bounded_and_the_rows_computed_again_for_each(monkeypatch):
    A = mixture(60, 200, 4)
    whole = spectra(blocks_of(A)[0], 60, 200, by_qr=0)
    monkeypatch.setattr(singular_values, "SLICE_BYTES", 8 * 60 * 45)  # 45 words: 5 blocks
    blocks, passes = blocks_of(A, 7)
    sliced = spectra(blocks, 60, 200, by_qr=0)
    assert len(passes) == 5
    for one, other in zip(whole[:2], sliced[:2], strict=True):
        torch.testing.assert_close(one.found, other.found, rtol=0, atol=1e-8 * float(one.found[0]))


def test_values_below_the_precision_of_a_gram_matrix_are_left_out_and_said():
    A = softmax(300, 400, 5)
    found = spectra(blocks_of(A)[0], 300, 400, by_qr=0)
    assert (len(found.raw.found), len(found.centred.found)) == (6, 5)
    assert found.raw.limit == pytest.approx((2.0**-52 * 701**0.5) ** 0.5)


def values(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def test_the_press_rank_counts_what_is_above_the_tolerance():
    tolerance = 0.5 * math.sqrt(9) * 2.0**-52  # of a 4 x 4 matrix
    assert press_tolerance(4, 4) == pytest.approx(tolerance)
    assert press_rank(values(8, 1, 8 * tolerance * 1.01, 8 * tolerance * 0.99), 4, 4) == 3


@pytest.mark.parametrize(("epsilon", "rank"), [(0.5, 1), (0.3, 2), (0.11, 2), (0.09, 3), (1e-5, 3)])
def test_the_effective_rank_keeps_so_much_of_the_squares(epsilon, rank):
    # squares 6, 3, 1: of 10 the first keeps 0.6, the first two 0.9
    assert effective_rank(values(6**0.5, 3**0.5, 1.0), epsilon) == rank
    assert effective_rank(values(2.0, 2.0), 0.5) == 1  # the share itself and no more: these numbers are exact


def test_the_entropy_rank_of_equal_values_is_their_number_and_of_one_value_one():
    assert entropy_rank(values(2, 2, 2, 2)) == pytest.approx(4)
    assert entropy_rank(values(7, 0, 0)) == pytest.approx(1)
    # shares 1/2, 1/4, 1/4: entropy 1.5 log 2
    assert entropy_rank(values(2, 1, 1)) == pytest.approx(2**1.5)
