"""The largest singular values, raw and centred, of a matrix that is too large to be decomposed: block Krylov iteration.

With A (N x V), m the means of its rows, A_c = A - m 1^T and B = [sqrt(V) m, A_c], which has the singular values of A
(harness/diagnostics/singular_values.py), a basis Q (V x k) of the Krylov space

    K = span{X, (A_c^T A_c) X, (A_c^T A_c)^2 X, ...},    X = A_c^T [m, G],  G Gaussian,  k = block x iterations

is built by passes over the rows, one for each block. The singular values of A_c Q approximate the largest of A_c, and
those of [sqrt(V) m, A_c Q] the largest of A: because X is made of m, too, [1, 0] and K hold the Krylov space of B that
starts from [1, 0] and A_c^T G.

Letters: s_i is the i-th singular value of A_c Q or [sqrt(V) m, A_c Q], sigma_i the i-th of the matrix. Always
s_i <= sigma_i (Cauchy's interlacing). F^2 is the sum of the squares of the matrix, summed in a pass.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from harness.diagnostics.rank_measures import EPSILON, Values

Rows = Callable[[], Iterator[Tensor]]  # called for each pass -> blocks of rows (n, V), float64, in the same order
CONVERGED = 1e-6  # of the largest: the residual of a value that is kept
ROUNDING = 64 * EPSILON  # of a sum of squares, as a share of it


def leading(rows: Rows, N: int, V: int, *, block: int, iterations: int, seed: int) -> tuple[Values, Values]:
    """Compute the largest singular values of a matrix and of its centred form, in iterations + 1 passes over the rows.

    A value s with the right vector v is kept if |C v - s^2 v| / s is at most 1e-6 of the largest value, C = B^T B or
    A_c^T A_c, and if the same holds for all larger ones. Then a singular value of the matrix is that near to it; its
    error is of the order of the residual's square, divided by the gap to the values that are not kept. Values below
    sqrt(eps sqrt(N + V + 1)) of the largest are left out: rounding errors hide their residuals.

    Memory: 8 k (V + 2 N) bytes, blocks of V x block numbers, and k x k for the decomposition.

    Args:
        rows: gives the N rows of the matrix in blocks.
        block, iterations: k = block x iterations, at most V.
        seed: of the Gaussian matrix.
    Returns: the values of A and of A_c, with F^2. They may be empty.
    Source: Musco and Musco (2015), arXiv:1504.05477, algorithm 2, of the transposed matrix.
    Differs: each block is made orthonormal to the blocks before it and then multiplied (the space is the same, and no
        column is lost to rounding); the starting block has m; values without a small residual are left out.
    """
    b = min(block, V // iterations)
    means_N, squares, X_Vb = _start(rows, N, b, seed)
    Q_Vk = X_Vb.new_empty(V, b * iterations)
    B_NK = X_Vb.new_empty(N, 1 + b * iterations)
    B_NK[:, 0] = math.sqrt(V) * means_N
    for end in range(b, b * iterations + 1, b):
        Q_Vb = Q_Vk[:, end - b : end]
        Q_Vb.copy_(_orthonormal(X_Vb, Q_Vk[:, : end - b]))
        X_Vb = _multiplied(rows, Q_Vb, B_NK[:, 1 + end - b : 1 + end])
    left_bb = torch.linalg.qr(_outside(X_Vb, Q_Vk), mode="r").R
    del Q_Vk, Q_Vb, X_Vb
    R_KK = torch.linalg.qr(B_NK, mode="r").R
    whole = squares + V * float(means_N.square().sum())
    return _kept(R_KK, left_bb, whole, N, V), _kept(R_KK[:, 1:], left_bb, squares, N, V)


def _start(rows: Rows, N: int, b: int, seed: int) -> tuple[Tensor, float, Tensor]:
    """(N,) the means of the rows, F^2 of A_c, and A_c^T [m, G] with b columns."""
    generator, squares, means, X_Vb = torch.Generator().manual_seed(seed), 0.0, [], None
    for block in rows():
        means.append(block.mean(1))
        centred = block - means[-1][:, None]
        squares += float(centred.square().sum())
        normal = torch.randn(len(block), b - 1, dtype=block.dtype, generator=generator).to(block.device)
        if X_Vb is None:
            X_Vb = block.new_zeros(block.shape[1], b)
        X_Vb.addmm_(centred.T, torch.cat([means[-1][:, None], normal], dim=1))
    return torch.cat(means), squares, X_Vb


def _multiplied(rows: Rows, Q_Vb: Tensor, product_Nb: Tensor) -> Tensor:
    """A_c^T A_c Q. A_c Q is written into `product_Nb`."""
    X_Vb, at = torch.zeros_like(Q_Vb), 0
    for block in rows():
        centred = block - block.mean(1, keepdim=True)
        inside = product_Nb[at : (at := at + len(block))]
        inside.copy_(centred @ Q_Vb)
        X_Vb.addmm_(centred.T, inside)
    return X_Vb


def _outside(X_Vb: Tensor, Q_Vk: Tensor) -> Tensor:
    """What of some columns is orthogonal to a basis. Twice, because the first time leaves rounding errors."""
    for _ in range(2):
        X_Vb = X_Vb - Q_Vk @ (Q_Vk.T @ X_Vb)
    return X_Vb


def _orthonormal(X_Vb: Tensor, Q_Vk: Tensor) -> Tensor:
    """An orthonormal basis of what some columns add to a basis. Twice, for columns that add almost nothing."""
    for _ in range(2):
        X_Vb = torch.linalg.qr(_outside(X_Vb, Q_Vk)).Q
    return X_Vb


def _kept(R_KK: Tensor, left_bb: Tensor, squares: float, N: int, V: int) -> Values:
    """The values that have converged.

    Args:
        R_KK: a triangle with the singular values s_1 .. s_k.
        left_bb: a triangle of the part of C Q that is outside of the basis. Only the last block of Q has such a part,
            so that of a vector Q y is `left_bb` times the last elements of y.
        squares: F^2.
    """
    _, s, rows_of_y = torch.linalg.svd(R_KK, full_matrices=False)
    residual = (left_bb @ rows_of_y[:, -left_bb.shape[1] :].T).norm(dim=0)  # times s
    good = (residual <= CONVERGED * s[0] * s) & (s > math.sqrt(EPSILON * math.sqrt(N + V + 1)) * s[0])
    kept = int(good.long().cumprod(0).sum())
    return Values(s[:kept], 0.0 if kept == min(N, V) else limit_of(s, kept, squares), squares)


def limit_of(s: Tensor, kept: int, squares: float) -> float:
    """Bound sigma_{m+1}, as a share of the largest, with m the number of values that are kept.

    With r = F^2 - (s_1^2 + ... + s_k^2), and because sigma_j >= s_j, for each n from 1 to m + 1:

        n sigma_{m+1}^2 <= the sum of the n squares sigma_j^2 that end at j = m + 1
                        <= r + the sum of the n squares s_j^2 that end at j = m + 1

    The smallest of these bounds counts.
    """
    rest = max(squares - float(s.square().sum()), 0.0) + ROUNDING * squares
    padded = torch.cat([s.square(), s.new_zeros(1)])[: kept + 1]
    number = torch.arange(1, kept + 2, device=s.device)
    bound = float(((rest + padded.flip(0).cumsum(0)) / number).min())
    return min(1.0, math.sqrt(bound) / float(s[0])) if kept else 1.0
