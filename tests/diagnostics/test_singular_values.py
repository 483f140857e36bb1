"""The singular values of a matrix that comes in blocks equal those of a dense decomposition, in each of the ways."""

import numpy as np
import pytest
import torch

from harness.diagnostics import singular_values
from harness.diagnostics.singular_values import Sizes, spectra

AGREEMENT = 1e-8  # of the largest singular value


def softmax(N: int, V: int, d: int, *, bias: bool = False, seed: int = 0) -> torch.Tensor:
    """(N, V) log-probabilities of random states and weights: of rank d + 1, with a bias d + 2."""
    draw = torch.Generator().manual_seed(seed)
    z = torch.randn(N, d, dtype=torch.float64, generator=draw) @ torch.randn(d, V, dtype=torch.float64, generator=draw)
    z = z + bias * torch.randn(V, dtype=torch.float64, generator=draw)
    return z - torch.logsumexp(z, 1, keepdim=True)


def mixture(N: int, V: int, d: int) -> torch.Tensor:
    """(N, V) log-probabilities of two softmaxes with equal weights: of full rank."""
    return torch.logaddexp(softmax(N, V, d, seed=1), softmax(N, V, d, seed=2)) - np.log(2)


def rows(A: torch.Tensor, size: int = 350):
    """The matrix in blocks, and how often it was asked for."""
    passes = []

    def blocks():
        passes.append(1)
        return (block.clone() for block in A.split(size))

    return blocks, passes


def dense(A: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The singular values of the matrix, and of the matrix less the mean of each row."""
    centred = A.numpy() - A.numpy().mean(1, keepdims=True)
    return np.linalg.svd(A.numpy(), compute_uv=False), np.linalg.svd(centred, compute_uv=False)


@pytest.mark.parametrize(
    ("A", "way", "more"),
    [
        (softmax(500, 2000, 16, bias=True), "qr", {}),
        (softmax(500, 2000, 16, bias=True), "gram", {"sizes": Sizes(qr=0)}),
        (mixture(500, 2000, 16), "qr", {}),
        (mixture(500, 2000, 16), "gram", {"sizes": Sizes(qr=0)}),
        (mixture(2000, 500, 16), "qr", {}),
        (mixture(2000, 500, 16), "gram", {"sizes": Sizes(qr=0)}),
        (softmax(1100, 2000, 16), "sketch", {"rank_bound": 17}),
        (softmax(1600, 1100, 16, bias=True), "sketch", {"rank_bound": 18}),
    ],
)
def test_in_blocks_equals_dense(A, way, more):
    blocks, _ = rows(A)
    found = spectra(blocks, *A.shape, **more)
    assert found.way == way
    for values, expected in zip(found[:2], dense(A), strict=True):
        count = len(values.found)
        np.testing.assert_allclose(values.found.numpy(), expected[:count], rtol=0, atol=AGREEMENT * expected[0])
        assert (expected[count:] <= (values.limit + AGREEMENT) * expected[0]).all()
        assert values.limit < 2e-7


def test_a_rank_that_is_found_whatever_the_way():
    A = softmax(1100, 2000, 16, bias=True)
    for way, more in {"sketch": {"rank_bound": 18}, "qr": {}, "gram": {"sizes": Sizes(qr=0)}}.items():
        found = spectra(rows(A)[0], *A.shape, **more)
        assert found.way == way
        ranks = [int((values.found > 1e-7 * values.found[0]).sum()) for values in found[:2]]
        assert ranks == [18, 17]


def test_a_sketch_is_not_used_when_the_rank_is_larger_than_was_said():
    A = mixture(1100, 1100, 8)
    found = spectra(rows(A)[0], *A.shape, rank_bound=18, sizes=Sizes(qr=0))
    assert found.way == "gram"


def test_a_sketch_notices_a_small_part_outside_of_it():
    A = softmax(1100, 1200, 8)
    draw = torch.Generator().manual_seed(3)
    A += 1e-11 * torch.randn(1100, 1200, dtype=torch.float64, generator=draw)
    assert spectra(rows(A)[0], *A.shape, rank_bound=9).way == "qr"


def test_blocks_of_words_are_bounded_and_the_rows_computed_again_for_each(monkeypatch):
    A = mixture(60, 200, 4)
    whole = spectra(rows(A)[0], 60, 200, sizes=Sizes(qr=0))
    monkeypatch.setattr(singular_values, "SLICE_BYTES", 8 * 60 * 45)  # 45 words: 5 blocks
    blocks, passes = rows(A, 7)
    sliced = spectra(blocks, 60, 200, sizes=Sizes(qr=0))
    assert len(passes) == 5
    for one, other in zip(whole[:2], sliced[:2], strict=True):
        torch.testing.assert_close(one.found, other.found, rtol=0, atol=1e-8 * float(one.found[0]))


def test_values_below_the_precision_of_a_gram_matrix_are_left_out_and_said():
    A = softmax(300, 400, 5)
    found = spectra(rows(A)[0], 300, 400, sizes=Sizes(qr=0))
    assert (len(found.raw.found), len(found.centred.found)) == (6, 5)
    assert found.raw.limit == pytest.approx((2.0**-52 * 701**0.5) ** 0.5)
