"""The log-normalisers for evaluation on CUDA, without logits in memory. Forward pass only.

    log Z_r = logsumexp_v ( h_r . W[v] + b[v] )

It is a matrix product whose tiles are summed and not stored. A program computes a tile of rows and one share of the
vocabulary. It keeps for every row the largest logit so far and the sum of 2^(logit - largest), with logits in units of
ln 2. Torch combines the shares.

This module is imported only on CUDA with Triton. Letters in addition to those of harness/protocols.py: R rows (tokens
times facets), S shares of the vocabulary.
"""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from harness.kernels.products import Precision


class Tile(NamedTuple):
    """The sizes of a program: it multiplies `rows` x `width` by `width` x `words`, and loads `stages` of them in
    advance.
    """

    rows: int
    words: int
    width: int
    warps: int
    stages: int


# 128 x 128 sums over 8 warps need 64 registers per thread. With their exponentials they need less than 128, so two
# programs can run on one multiprocessor: one computes products while the other computes exponentials. Products in full
# float32 cannot use tensor cores and keep their operands in registers, too, so their tiles are smaller.
CONFIGURATIONS: dict[Precision, Tile] = {
    "bf16": Tile(rows=128, words=128, width=64, warps=8, stages=3),
    "tf32": Tile(rows=128, words=128, width=32, warps=8, stages=3),
    "fp32": Tile(rows=128, words=64, width=16, warps=8, stages=3),
}
REGISTERS = 128  # per thread: 65,536 of a multiprocessor for 2 programs of 256 threads
PROGRAMS = 4 * 132  # two rounds of two programs on each of the 132 multiprocessors of an H200
LOG2_E = tl.constexpr(math.log2(math.e))
# Widths and strides are given to the kernel in this unit: Triton can see from a constant factor that wide loads are
# aligned, and not from a value.
UNIT = tl.constexpr(8)
INTERPRET = tl.constexpr(triton.knobs.runtime.interpret)


def fused_log_sum_exp(
    facets_RE: Tensor, weight_VE: Tensor, bias_V: Tensor | None = None, *, precision: Precision = "fp32"
) -> Tensor:
    """(R,) nats in float32: the logsumexp over the vocabulary of facets W^T + b, for the identity logit map.

    Args:
        facets_RE: float32 or bfloat16, with any stride of rows.
        weight_VE: of the same type; may be the rows of a partition, W[p::P].
        bias_V: float32 or bfloat16, with any stride, as b[p::P]; None for no bias.
        precision: of the products of float32 tensors, as in harness/kernels/products.py. 'bf16' rounds both tensors in
            every call. bfloat16 tensors are multiplied in bfloat16. Sums are always float32.
    """
    assert facets_RE.dtype == weight_VE.dtype
    assert facets_RE.dtype in (torch.float32, torch.bfloat16)
    if precision == "bf16" or facets_RE.dtype == torch.bfloat16:
        precision, facets_RE, weight_VE = "bf16", facets_RE.bfloat16(), weight_VE.bfloat16()
    facets_RE, weight_VE = _aligned(facets_RE), _aligned(weight_VE)
    bias_V = facets_RE.new_zeros(len(weight_VE)) if bias_V is None else bias_V
    (R, E), V = facets_RE.shape, len(weight_VE)
    tile = CONFIGURATIONS[precision]
    blocks, tiles = triton.cdiv(R, tile.rows), triton.cdiv(V, tile.words)
    tiles_per_share = triton.cdiv(tiles, min(tiles, triton.cdiv(PROGRAMS, blocks)))
    shares = triton.cdiv(tiles, tiles_per_share)
    largest_SR, sum_SR = (facets_RE.new_empty(shares, R, dtype=torch.float32) for _ in range(2))
    with torch.cuda.device_of(facets_RE):
        _log_sum_exp_shares[(blocks, shares)](
            facets_RE,
            weight_VE,
            bias_V.float().contiguous(),
            largest_SR,
            sum_SR,
            R,
            V,
            E // UNIT.value,
            facets_RE.stride(0) // UNIT.value,
            weight_VE.stride(0) // UNIT.value,
            tiles_per_share,
            ROWS=tile.rows,
            WORDS=tile.words,
            WIDTH=tile.width,
            PRECISION="tf32" if precision == "tf32" else "ieee",
            num_warps=tile.warps,
            num_stages=tile.stages,
            maxnreg=REGISTERS,
            enable_fp_fusion=True,
        )
    return (math.log(2) * (largest_SR + sum_SR.log2())).logsumexp(0)


def _aligned(matrix_RE: Tensor) -> Tensor:
    """Return the matrix if its rows can be read UNIT numbers at a time, else a copy with additional columns of
    zeros.
    """
    R, E = matrix_RE.shape
    sizes = (E, matrix_RE.stride(0), matrix_RE.data_ptr() // matrix_RE.element_size())
    if matrix_RE.stride(1) == 1 and all(size % UNIT.value == 0 for size in sizes):
        return matrix_RE
    copy_RE = matrix_RE.new_zeros(R, triton.cdiv(E, UNIT.value) * UNIT.value)
    copy_RE[:, :E] = matrix_RE
    return copy_RE


# One machine code for all sizes: the code that Triton makes for divisible sizes needed more registers.
@triton.jit(
    do_not_specialize=["bias_ptr", "R", "V", "width_in_units", "facets_stride", "weight_stride", "tiles_per_share"]
)
def _log_sum_exp_shares(
    facets_ptr,
    weight_ptr,
    bias_ptr,
    largest_ptr,
    sum_ptr,
    R,
    V,
    width_in_units,
    facets_stride,
    weight_stride,
    tiles_per_share,
    ROWS: tl.constexpr,
    WORDS: tl.constexpr,
    WIDTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute one tile of rows and one share of the vocabulary. Neighbouring programs read the same words, from L2."""
    row_R = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    share = tl.program_id(1)
    index_E = tl.arange(0, WIDTH)
    E = width_in_units * UNIT
    facets_RE = facets_ptr + row_R[:, None].to(tl.int64) * facets_stride * UNIT + index_E[None, :]
    largest_R = tl.full((ROWS,), float("-inf"), tl.float32)
    sum_R = tl.zeros((ROWS,), tl.float32)
    first = share * tiles_per_share * WORDS
    for start in range(first, min(first + tiles_per_share * WORDS, V), WORDS):
        word_V = start + tl.arange(0, WORDS)
        weight_EV = weight_ptr + word_V[None, :].to(tl.int64) * weight_stride * UNIT + index_E[:, None]
        logits_RV = tl.zeros((ROWS, WORDS), tl.float32)
        for e in range(0, E, WIDTH):
            h_RE = tl.load(facets_RE + e, mask=(row_R[:, None] < R) & (index_E[None, :] < E - e), other=0.0)
            w_EV = tl.load(weight_EV + e, mask=(word_V[None, :] < V) & (index_E[:, None] < E - e), other=0.0)
            if INTERPRET:  # Triton 3.9's interpreter multiplies bfloat16 numbers incorrectly (as integers)
                h_RE, w_EV = h_RE.to(tl.float32), w_EV.to(tl.float32)
            logits_RV = tl.dot(h_RE, w_EV, logits_RV, input_precision=PRECISION)
        bias_V = tl.load(bias_ptr + word_V, mask=word_V < V, other=0.0)
        logits_RV = tl.where(word_V[None, :] < V, (logits_RV + bias_V[None, :]) * LOG2_E, float("-inf"))
        before_R = largest_R
        largest_R = tl.maximum(before_R, tl.max(logits_RV, axis=1))
        sum_R *= tl.exp2(before_R - largest_R)
        sum_R += tl.sum(tl.exp2(logits_RV - largest_R[:, None]), axis=1)
    tl.store(largest_ptr + share * R + row_R, largest_R, mask=row_R < R)
    tl.store(sum_ptr + share * R + row_R, sum_R, mask=row_R < R)
