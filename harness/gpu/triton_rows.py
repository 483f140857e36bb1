"""harness/kernels/rows.py for CUDA: the whole combination of a chunk of logits in one Triton kernel.

A program computes one token: all its rows of logits, in all blocks, and then the mixture over them. So no intermediate
statistic is written to memory. A row is read twice: for its largest logit, and to overwrite it. Exponentials are summed
in float32 before they are rounded to the type of the block; the code with torch's operations sums after rounding.

This module is imported only on CUDA with Triton. Letters: see harness/kernels/rows.py.
"""

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from harness.kernels import rows
from harness.kernels.rows import Rows

# A chunk of logits fits in the L2 cache (32 to 40 MB of an H200's 60 MB), so it has about 100 to 700 tokens for 132
# multiprocessors: 1 to 5 programs each. A multiprocessor reads about 40 bytes/ns from L2 with a latency near 300 ns, so
# 12 KiB must be requested at any time. 16 warps with 16 bytes per thread request 8 KiB per program and load.
# {type of the blocks: (words that a program reads at a time, warps of a program)}
CONFIGURATIONS = {torch.bfloat16: (4096, 16), torch.float32: (2048, 16)}
LOG_2 = tl.constexpr(math.log(2))
LOWEST = tl.constexpr(torch.finfo(torch.float32).min)


def combine_rows_(
    blocks: Sequence[Tensor],
    facets: Sequence[Sequence[int]],
    component: Sequence[int],
    target_nK: Tensor,
    log_prior_nK: Tensor | None,
    log_epsilon: float | None,
) -> Rows:
    """Compute the same as rows.combine_rows_. Blocks in float64 are computed by rows.combine_rows_ itself.

    There is no copy between host and device and no synchronisation, so a CUDA graph can record it. The kernel must be
    compiled before by one call with the same layout outside of the graph.

    Shapes: blocks (n, F_s, V_s) each, of one type, with words next to each other and any other strides; target_nK and
        log_prior_nK in float32.
    """
    dtype = blocks[0].dtype
    if dtype not in CONFIGURATIONS:
        return rows.combine_rows_(blocks, facets, component, target_nK, log_prior_nK, log_epsilon)
    n, K = target_nK.shape
    F = len(component)
    assert all(block.stride(-1) == 1 and block.dtype == dtype and len(block) == n for block in blocks)
    result = Rows(*(target_nK.new_empty(n, *sizes) for sizes in ((), (K,), (K,), (F,), (K,), (F,))))
    unit, token_strides, facet_strides = _strides(blocks)
    words, warps = CONFIGURATIONS[dtype]
    with torch.cuda.device_of(target_nK):
        _combine_rows[(n,)](
            tuple(blocks),
            token_strides,
            facet_strides,
            tuple(block.shape[2] for block in blocks),
            target_nK.contiguous(),
            None if log_prior_nK is None else log_prior_nK.contiguous(),
            *result,
            None if log_epsilon is None else math.log(log_epsilon),
            FIRST=tuple(members[0] for members in facets),
            COUNT=tuple(len(members) for members in facets),
            OWNER=tuple(component),
            K=K,
            UNIT=unit,
            WORDS=words,
            F_PADDED=triton.next_power_of_2(F),
            K_PADDED=triton.next_power_of_2(K),
            num_warps=warps,
            enable_fp_fusion=True,
        )
    return result


def _strides(blocks: Sequence[Tensor]) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """A unit, and in this unit the stride from token to token and from facet to facet of each block.

    The unit is 8 where all strides are multiples of 8, else 1. Triton cannot see from a stride alone that wide loads
    are aligned; from a constant factor of 8 it can.
    """
    strides = [(block.stride(0), block.stride(1) if block.shape[1] > 1 else 0) for block in blocks]
    unit = 8 if all(stride % 8 == 0 for pair in strides for stride in pair) else 1
    return unit, tuple(token // unit for token, _ in strides), tuple(facet // unit for _, facet in strides)


@triton.jit
def _combine_rows(
    blocks,
    token_strides,
    facet_strides,
    lengths,
    target_ptr,
    prior_ptr,
    nll_ptr,
    share_ptr,
    rest_ptr,
    scale_ptr,
    normaliser_ptr,
    unit_ptr,
    log_of_epsilon,
    FIRST: tl.constexpr,
    COUNT: tl.constexpr,
    OWNER: tl.constexpr,
    K: tl.constexpr,
    UNIT: tl.constexpr,
    WORDS: tl.constexpr,
    F_PADDED: tl.constexpr,
    K_PADDED: tl.constexpr,
):
    """Compute one token. Strides are in UNITs. FIRST, COUNT: the facets of each block. OWNER: the component of each
    facet.

    Logarithms are to base 2 until they are combined with the target's logit, which is in nats. For a row without any
    word except the target, the largest logit is LOWEST and not -inf, so that differences are not NaN.
    """
    token = tl.program_id(0).to(tl.int64)
    index_F = tl.arange(0, F_PADDED)
    shift_F = tl.zeros((F_PADDED,), tl.float32)
    sum_F = tl.full((F_PADDED,), 1.0, tl.float32)
    for s in tl.static_range(len(COUNT)):
        for i in range(COUNT[s]):
            row = blocks[s] + (token * token_strides[s] + tl.cast(i, tl.int64) * facet_strides[s]) * UNIT
            largest = _largest(row, lengths[s], WORDS)
            sum_F = tl.where(index_F == FIRST[s] + i, _exponentiate_(row, lengths[s], largest, WORDS), sum_F)
            shift_F = tl.where(index_F == FIRST[s] + i, largest, shift_F)

    owner_F = tl.full((F_PADDED,), -1, tl.int32)  # the padding belongs to no component
    for f in tl.static_range(len(OWNER)):
        owner_F = tl.where(index_F == f, OWNER[f], owner_F)
    index_K = tl.arange(0, K_PADDED)
    owned_FK = owner_F[:, None] == index_K[None, :]
    terms_FK = tl.where(owned_FK, (shift_F + tl.log2(sum_F))[:, None], float("-inf"))
    terms_FK = tl.where(index_K[None, :] < K, terms_FK, 0.0)
    largest_K = tl.max(tl.where(terms_FK > LOWEST, terms_FK, LOWEST), axis=0)
    others_K = (largest_K + tl.log2(tl.sum(tl.exp2(terms_FK - largest_K[None, :]), axis=0))) * LOG_2

    target_K = tl.load(target_ptr + token * K + index_K, mask=index_K < K, other=float("-inf"))
    larger_K = tl.maximum(others_K, target_K)
    normaliser_K = larger_K + tl.log(tl.exp(others_K - larger_K) + tl.exp(target_K - larger_K))
    normaliser_F = tl.sum(tl.where(owned_FK, normaliser_K[None, :], 0.0), axis=1)
    joint_K = target_K - normaliser_K
    if prior_ptr is not None:
        joint_K += tl.load(prior_ptr + token * K + index_K, mask=index_K < K, other=0.0)
    best = tl.max(joint_K, axis=0)
    logp = best + tl.log(tl.sum(tl.exp(joint_K - best), axis=0))
    if log_of_epsilon is not None:
        logp = tl.maximum(logp, log_of_epsilon) + tl.log(1.0 + tl.exp(-tl.abs(logp - log_of_epsilon)))
    share_K = tl.exp(joint_K - logp)
    share_F = tl.sum(tl.where(owned_FK, share_K[None, :], 0.0), axis=1)
    unit_F = tl.exp(shift_F * LOG_2 - normaliser_F)
    tl.store(nll_ptr + token, -logp)
    tl.store(share_ptr + token * K + index_K, share_K, mask=index_K < K)
    tl.store(rest_ptr + token * K + index_K, share_K * tl.exp(others_K - normaliser_K), mask=index_K < K)
    tl.store(scale_ptr + token * len(OWNER) + index_F, share_F * unit_F, mask=index_F < len(OWNER))
    tl.store(normaliser_ptr + token * K + index_K, normaliser_K, mask=index_K < K)
    tl.store(unit_ptr + token * len(OWNER) + index_F, unit_F, mask=index_F < len(OWNER))


@triton.jit
def _largest(row, length, WORDS: tl.constexpr):
    """Return the largest logit of a row. Complete steps have no mask: with a mask, most lengths have no wide loads."""
    index = tl.arange(0, WORDS)
    whole = length // WORDS * WORDS
    largest = tl.load(row + whole + index, mask=whole + index < length, other=float("-inf")).to(tl.float32)
    for start in range(0, whole, WORDS):
        largest = tl.maximum(largest, tl.load(row + start + index).to(tl.float32))
    return tl.max(tl.where(largest > LOWEST, largest, LOWEST), axis=0)


@triton.jit
def _exponentiate_(row, length, largest, WORDS: tl.constexpr):
    """Replace row by 2^(row - largest), and return the sum."""
    index = tl.arange(0, WORDS)
    whole = length // WORDS * WORDS
    total = tl.zeros((WORDS,), tl.float32)
    for start in range(0, whole, WORDS):
        exponential = tl.exp2(tl.load(row + start + index).to(tl.float32) - largest)
        tl.store(row + start + index, exponential)
        total += exponential
    inside = whole + index < length
    rest = tl.load(row + whole + index, mask=inside, other=float("-inf")).to(tl.float32)
    exponential = tl.exp2(rest - largest)
    tl.store(row + whole + index, exponential, mask=inside)
    return tl.sum(total + exponential, axis=0)
