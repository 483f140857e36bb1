"""Singular values and ranks of a matrix of log-probabilities that is computed in blocks of rows, raw and centred.

All is in float64. The matrix A (N x V) has a row for each context and a column for each word. The centred matrix has
the mean of each row taken from it: A_c = A - m 1^T, with m (N,) the means. Since A_c 1 = 0,

    A A^T = A_c A_c^T + V m m^T

so the matrix B = [sqrt(V) m, A_c], N x (V + 1), has the singular values of A, and B without its first column is A_c.
There are three ways, chosen in this order:

    sketch    Where the rank is known to be at most r, far below N and V: Q, an orthonormal basis of (G A_c)^T with G
              Gaussian, (2 r + 16) x N, and the singular values of A_c Q and [sqrt(V) m, A_c Q]. It is used only if
              what is left, A_c - A_c Q Q^T, is a rounding error: its Frobenius norm is at most 64 eps of that of A_c.
              Halko, Martinsson and Tropp (2011), SIAM Review 53, algorithm 4.1.
    qr        Where N or V is at most 4,096: the triangle R of a QR decomposition that is continued block by block, and
              its singular values. They are as exact as those of a dense decomposition.
    gram      Otherwise: the Gram matrix on the smaller side and its eigenvalues, whose roots are the singular values.
              It squares the condition number, so values below sqrt(eps sqrt(N + V + 1)) of the largest are rounding
              errors. They are left out, and `limit` says where.

Memory: the N x V matrix is not whole in memory if it has more than 1 GiB. Where N is the smaller side, blocks of words
are needed: the rows are computed again for each GiB of it. At N = 10,000 the Gram matrix has 0.8 GB for every V. Its
eigenvalues need a copy: at 16,384 both have 4.3 GB, with a model, its states and blocks of rows below 8 GB.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Rows = Callable[[], Iterator[Tensor]]  # called for each pass -> blocks of rows (n, V), float64, in the same order
Way = Literal["sketch", "qr", "gram"]
EPSILON = torch.finfo(torch.float64).eps
MOST_BY_QR, MOST_BY_GRAM = 4096, 16_384  # the smaller side of a matrix
OVERSAMPLED = 16  # rows of the sketch above twice the bound of the rank
ROUNDING = 64 * EPSILON  # of what a sketch leaves, as a share of the whole: 5 to 15 eps were measured
LEAST_SKETCHED = 1024  # a smaller side is decomposed at once
SLICE_BYTES = 2**30  # of a block of words


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Singular values, largest first.

    Shapes: found (R,), R <= min(N, V).
    Args:
        limit: those that are not in `found` are at most this share of the largest; 0 if all are found.
    """

    found: Tensor
    limit: float


class Spectra(NamedTuple):
    """The singular values of A and of A_c, and how they were computed."""

    raw: Values
    centred: Values
    way: Way


def spectra(
    rows: Rows, N: int, V: int, *, rank_bound: int | None = None, seed: int = 0, by_qr: int = MOST_BY_QR
) -> Spectra:
    """Compute the singular values of a matrix and of its centred form.

    Args:
        rank_bound: the rank is known to be at most this; None if no bound below N and V is known.
        by_qr: the largest smaller side that is decomposed by QR.
    """
    smaller = min(N, V)
    size = 2 * (smaller if rank_bound is None else rank_bound) + OVERSAMPLED
    if smaller >= LEAST_SKETCHED and 3 * size <= smaller and (found := _sketched(rows, size, seed)) is not None:
        return found
    reduced = _Triangle() if smaller <= by_qr else _Gram(N, V)
    raw, centred = _of_columns(rows, N, V, reduced) if V < N else _of_rows(rows, N, V, reduced)
    return Spectra(raw, centred, reduced.way)


class _Triangle:
    """The triangle R of a QR decomposition of rows that are added in blocks: R^T R is their Gram matrix."""

    way: Way = "qr"

    def __init__(self):
        self.R: Tensor | None = None

    def add(self, block: Tensor) -> None:
        stacked = block if self.R is None else torch.cat([self.R, block])
        self.R = torch.linalg.qr(stacked, mode="r").R

    def values(self, most: int, first: int = 0) -> Values:
        """The singular values of the rows from their column `first` on."""
        return Values(torch.linalg.svdvals(self.R[:, first:])[:most], 0.0)


class _Gram:
    way: Way = "gram"

    def __init__(self, N: int, V: int):
        self.G: Tensor | None = None
        self.limit = math.sqrt(EPSILON * math.sqrt(N + V + 1))

    def add(self, block: Tensor) -> None:
        if self.G is None:
            self.G = block.new_zeros(block.shape[1], block.shape[1])
        self.G.addmm_(block.T, block)

    def values(self, most: int, first: int = 0) -> Values:
        """The singular values of the rows from their column `first` on, down to the limit."""
        found = torch.linalg.eigvalsh(self.G[first:, first:]).flip(0).clamp(min=0).sqrt()
        resolved = found[found > self.limit * found[0]][:most]
        return Values(resolved, 0.0 if len(resolved) == most else self.limit)


def _of_columns(rows: Rows, N: int, V: int, reduced: _Triangle | _Gram) -> tuple[Values, Values]:
    """By the rows of B: the reduced matrix has V + 1 columns."""
    least = V + 1 if reduced.way == "qr" else 1
    for block in _gathered(map(_with_means, rows()), least):
        reduced.add(block)
    return reduced.values(V), reduced.values(V, 1)


def _of_rows(rows: Rows, N: int, V: int, reduced: _Triangle | _Gram) -> tuple[Values, Values]:
    """By the rows of B^T: the reduced matrix has N columns. The row of the means is added last."""
    for start in range(0, V, width := max(1, SLICE_BYTES // (8 * N))):
        means_N, centred_NW = _slice(rows, N, slice(start, min(start + width, V)))
        reduced.add(centred_NW.T)
        del centred_NW
    centred = reduced.values(N)
    reduced.add(math.sqrt(V) * means_N[None])
    return reduced.values(N), centred


def _slice(rows: Rows, N: int, words: slice) -> tuple[Tensor, Tensor]:
    """(N,) the means of the rows, (N, W) some words of the centred matrix."""
    means_N = centred_NW = None
    at = 0
    for block in rows():
        if means_N is None:
            means_N, centred_NW = block.new_empty(N), block.new_empty(N, words.stop - words.start)
        inside = slice(at, at := at + len(block))
        means_N[inside] = block.mean(1)
        centred_NW[inside] = block[:, words] - means_N[inside, None]
    return means_N, centred_NW


def _sketched(rows: Rows, k: int, seed: int) -> Spectra | None:
    """The spectra of a matrix whose rank is below k; None if it is not, within rounding errors."""
    generator, sketch = torch.Generator().manual_seed(seed), None
    for block in rows():
        normal = torch.randn(k, len(block), dtype=block.dtype, generator=generator).to(block.device)
        centred = block - block.mean(1, keepdim=True)
        sketch = normal @ centred if sketch is None else sketch.addmm_(normal, centred)
    Q = torch.linalg.qr(sketch.T).Q
    inside, whole, left = [], 0.0, 0.0
    for block in map(_with_means, rows()):
        means, centred = block[:, :1], block[:, 1:]
        inside.append(torch.cat([means, centred @ Q], dim=1))
        whole += float(centred.square().sum())
        left += float(centred.addmm_(inside[-1][:, 1:], Q.T, alpha=-1).square().sum())
    R = torch.linalg.qr(torch.cat(inside), mode="r").R
    found = torch.linalg.svdvals(R), torch.linalg.svdvals(R[:, 1:])
    if not math.sqrt(left) <= ROUNDING * math.sqrt(whole):
        return None
    return Spectra(*(Values(values, math.sqrt(left) / float(values[0])) for values in found), "sketch")


def _with_means(block: Tensor) -> Tensor:
    """(n, V) rows of A -> (n, V + 1) rows of B."""
    means = block.mean(1, keepdim=True)
    return torch.cat([math.sqrt(block.shape[1]) * means, block - means], dim=1)


def _gathered(blocks: Iterator[Tensor], least: int) -> Iterator[Tensor]:
    """Blocks of at least so many rows, except the last: a QR decomposition of few rows costs as much as one of many."""
    waiting: list[Tensor] = []
    for block in blocks:
        waiting.append(block)
        if sum(map(len, waiting)) >= least:
            yield torch.cat(waiting)
            waiting = []
    if waiting:
        yield torch.cat(waiting)


def press_tolerance(N: int, V: int) -> float:
    """The share of the largest singular value up to which a singular value of an N x V matrix counts as zero.

    tolerance = 1/2 sqrt(N + V + 1) eps
    Source: Press et al. (2007), Numerical Recipes, third edition, section 2.6; used by Parthiban et al. (2021).
    """
    return 0.5 * math.sqrt(N + V + 1) * EPSILON


def press_rank(values: Tensor, N: int, V: int) -> int:
    """The number of singular values above the tolerance of Press et al., times the largest."""
    return int((values > press_tolerance(N, V) * values[0]).sum())


def effective_rank(values: Tensor, epsilon: float) -> int:
    """The smallest k with s_1^2 + ... + s_k^2 >= (1 - epsilon) of the sum of all squares.

    Source: Parthiban et al. (2021), table 6.
    """
    kept = values.square().cumsum(0)
    return int((kept < (1 - epsilon) * kept[-1]).sum()) + 1


def entropy_rank(values: Tensor) -> float:
    """exp(-sum_i p_i log p_i) with p_i = s_i / (s_1 + s_2 + ...): between 1 and the rank.

    Source: Roy and Vetterli (2007), The effective rank, EUSIPCO.
    """
    return float(torch.special.entr(values / values.sum()).sum().exp())
