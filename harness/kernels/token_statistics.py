"""Log-normalisers, entropy and the most probable word of each token, in chunks of tokens and without gradients.

With p(v) = sum_k pi_k p_k(v), the mixed distribution,

    log Z_k = logsumexp_v u_k[v];    entropy = -sum_v p(v) log p(v);    top = argmax_v p(v)

For a plain softmax all of it comes from the exponentials E = exp(u - m), with m the largest logit:

    log Z = m + log sum E;    log p(top) = -log sum E;    entropy = log sum E - sum E (u - m) / sum E

In a mixture the exponentials of all components are added with the factors pi_k / Z_k. There is one product, as for the
nll: 2 N K V E operations, and no tensor of N x K x V numbers. What follows the product is done on a few tokens at a
time, while their values are in the cache. Letters: see harness/protocols.py; n tokens of a chunk, m of them at a time.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from harness.kernels import reference
from harness.kernels.chunked import Buffers, Lean
from harness.kernels.mixture import Tensors
from harness.kernels.rows import LOG_2, exponentiate_, normalisers, spread, tokens_at_once

LOWEST = -2000.0  # 2^-2000 is 0 in every type, and 0 times it is 0


class Statistics(NamedTuple):
    """What a distribution says about a token without a target.

    Shapes: log_normaliser (.., K) nats, of each component; entropy (..) nats; top (..) the most probable word, the
        first of several; top_logp (..) nats, its log-probability. `..` is (B, T) for a distribution, N for the kernels.
    """

    log_normaliser: Tensor
    entropy: Tensor
    top: Tensor
    top_logp: Tensor


def lean(given: Lean) -> Statistics:
    """(N, ..) the statistics of a mixture."""
    found = []
    with given.own_types():
        buffers = Buffers(given)
        size, rooms_2mV = given.mapped_at_once(buffers.blocks), _rooms(given, buffers)
        for facets_nFE, first in _chunks(given, buffers.tokens):
            blocks = given.logits(facets_nFE, buffers)
            for i in range(0, len(facets_nFE), size):
                parts = given.mapped([block[i : i + size] for block in blocks])
                if given.layout.partitions == (1,):
                    found.append(_of_softmax(parts[0][:, 0], rooms_2mV))
                else:
                    tokens = slice(first + i, first + i + len(parts[0]))
                    found.append(_of_mixture(given, tokens, parts, rooms_2mV))
    return joined(found)


def by_reference(mixture: Tensors) -> Statistics:
    """(N, ..) the statistics by the plain equations, without `log_epsilon`."""
    mixture = mixture.changed(log_epsilon=None)
    return of_log_probs(reference.log_probs(mixture), reference.log_normaliser(mixture))


def of_log_probs(logp: Tensor, log_normaliser: Tensor) -> Statistics:
    """The statistics of log-probabilities (.., V), beside log-normalisers (.., K)."""
    top_logp, top = logp.max(-1)
    return Statistics(log_normaliser, -(logp.exp() * logp.clamp(min=LOWEST)).sum(-1), top, top_logp)


def joined(chunks: list[Statistics]) -> Statistics:
    """The statistics of all tokens from those of chunks."""
    return Statistics(*(torch.cat(values) for values in zip(*chunks, strict=True)))


def _chunks(given: Lean, size: int) -> Iterator[tuple[Tensor, int]]:
    """Yield the facets of the tokens of each chunk, and the number of the first of them."""
    return zip(given.facets_NFE.split(size), range(0, len(given.facets_NFE), size), strict=True)


def _rooms(given: Lean, buffers: Buffers) -> Tensor:
    """(2, m, V) an empty buffer for two rows of each of m tokens. On the CPU it fits in the cache."""
    row_2V = given.facets_NFE.new_empty((2, len(given.weight_VE)), dtype=given.wide)
    num_tokens = min(buffers.tokens, tokens_at_once(row_2V.expand(buffers.tokens, -1, -1)))
    return row_2V.new_empty((2, num_tokens, len(given.weight_VE)))


def _of_softmax(block_nV: Tensor, rooms_2mV: Tensor) -> Statistics:
    """One component, from its logits u / ln 2, which are overwritten."""
    largest_n, top_n = _largest(block_nV)
    block_nV.sub_(largest_n[:, None])
    sum_n, weighted_n = torch.empty_like(largest_n), torch.empty_like(largest_n)
    for some in _few(block_nV, rooms_2mV):
        block_mV = block_nV[some]
        room_mV = torch.exp2(block_mV, out=rooms_2mV[0, : len(block_mV)])
        torch.sum(room_mV, -1, out=sum_n[some])
        torch.sum(room_mV.mul_(block_mV), -1, out=weighted_n[some])
    if weighted_n.isnan().any():  # 0 times -inf
        weighted_n = (block_nV.exp2() * block_nV.clamp_(min=LOWEST)).sum(-1)
    log_sum_n = sum_n.log()
    entropy_n = log_sum_n - LOG_2 * weighted_n / sum_n  # less the mean of u - m
    return Statistics((LOG_2 * largest_n + log_sum_n)[:, None], entropy_n, top_n, -log_sum_n)


def _of_mixture(given: Lean, tokens: slice, blocks: list[Tensor], rooms_2mV: Tensor) -> Statistics:
    """Several components or facets, from their logits u / ln 2, which are overwritten."""
    found = [exponentiate_(block, given.wide) for block in blocks]
    shift_nF, log_sum_nF = (torch.cat(values, dim=1) for values in zip(*found, strict=True))
    shift_nF *= LOG_2
    counts = given.layout.partitions
    normaliser_nK = normalisers(log_sum_nF + shift_nF, counts)
    weight_nK = -normaliser_nK if given.log_prior_NK is None else given.log_prior_NK[tokens] - normaliser_nK
    factor_nF = (spread(weight_nK, counts) + shift_nF).exp()
    mixed = []
    for some in _few(factor_nF, rooms_2mV):
        factor_mF = factor_nF[some]
        mixed_mV, room_mV = rooms_2mV[:, : len(factor_mF)]
        _mix(given, factor_mF, [block[some] for block in blocks], mixed_mV)
        mixed.append(_of_probabilities(mixed_mV, room_mV))
    weighted_n, top_n, largest_n = map(torch.cat, zip(*mixed, strict=True))
    return Statistics(normaliser_nK, -weighted_n, top_n, largest_n.log())


def _few(values: Tensor, rooms_2mV: Tensor) -> Iterator[slice]:
    """Yield the tokens of n for which the rooms have place, one part after the other."""
    size = rooms_2mV.shape[1]
    return (slice(i, i + size) for i in range(0, len(values), size))


def _mix(given: Lean, factor_mF: Tensor, blocks: list[Tensor], mixed_mV: Tensor) -> None:
    """Write the sum over facets of factor times exponential, which is p."""
    for part, block in zip(given.layout.slices, blocks, strict=True):
        some_mv = mixed_mV[:, part.words]
        for i, factor_m1 in zip(range(part.first, part.last), factor_mF[:, part.facets, None].unbind(1), strict=True):
            if i < given.layout.partitions[0]:  # the first component overwrites
                torch.mul(block[:, i - part.first], factor_m1, out=some_mv)
            else:
                some_mv.addcmul_(block[:, i - part.first], factor_m1)


def _of_probabilities(mixed_mV: Tensor, room_mV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(m,) sum_v p(v) log p(v), the most probable word and its probability. Both arguments are overwritten."""
    largest_m, top_m = _largest(mixed_mV)
    mixed_mV.clamp_(min=torch.finfo(mixed_mV.dtype).tiny)  # 0 times -inf is NaN; logarithms of smaller values are slow
    weighted_m = _log2(mixed_mV, room_mV).mul_(mixed_mV).sum(-1)
    return LOG_2 * weighted_m, top_m, largest_m


def _log2(values_nV: Tensor, room_nV: Tensor) -> Tensor:
    """The logarithm of each value, written to the room.

    On the CPU NumPy computes it: without MKL, torch's takes three times as long.
    """
    if values_nV.is_cuda:
        return torch.log2(values_nV, out=room_nV)
    np.log2(values_nV.numpy(), out=room_nV.numpy())
    return room_nV


def _largest(values_nV: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) the largest value of each row, and (n,) its first place.

    On the CPU NumPy finds the place: torch's argmax takes 40 times as long.
    """
    top_n = values_nV.argmax(-1) if values_nV.is_cuda else torch.from_numpy(values_nV.numpy().argmax(-1))
    return values_nV.gather(-1, top_n[:, None])[:, 0], top_n
