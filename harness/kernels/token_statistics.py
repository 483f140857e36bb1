"""Log-normalisers, entropy and the most probable word of each token, in chunks of tokens and without gradients.

With p(v) = sum_k pi_k p_k(v), the mixed distribution,

    log Z_k = logsumexp_v u_k[v];    entropy = -sum_v p(v) log p(v);    top = argmax_v p(v)

For a plain softmax all of it comes from the exponentials E = exp(u - m), with m the largest logit:

    log Z = m + log sum E;    log p(top) = -log sum E;    entropy = log sum E - sum E (u - m) / sum E

In a mixture the exponentials of all components are added with the factors pi_k / Z_k. There is one product, as for the
nll: 2 N K V E operations, and no tensor of N x K x V numbers. What follows the product is done on a few tokens at a
time, while their logits are in the cache. Letters: see harness/protocols.py; n is the number of these tokens.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from harness.kernels import reference
from harness.kernels.buffers import Buffers
from harness.kernels.rows import LOG_2, exponentiate_, normalisers, spread, tokens_at_once

if TYPE_CHECKING:
    from harness.distributions import Mixture
    from harness.kernels.lean import Lean

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


def lean(given: "Lean") -> Statistics:
    """(N, ..) the statistics of a mixture."""
    found = []
    with given.own_types():
        buffers = Buffers(given)
        size = tokens_at_once(*buffers.blocks)
        shape = (2, min(size, buffers.tokens), len(given.weight_VE))
        rooms_2nV = given.facets_NFE.new_empty(shape, dtype=given.wide)
        for facets_nFE, first in _chunks(given, buffers.tokens):
            blocks = given.logits(facets_nFE, buffers)
            for i in range(0, len(facets_nFE), size):
                parts = given.mapped([block[i : i + size] for block in blocks])
                rooms = rooms_2nV[:, : len(parts[0])]
                if given.layout.partitions == (1,):
                    found.append(_of_softmax(parts[0][:, 0], rooms[0]))
                else:
                    tokens = slice(first + i, first + i + len(parts[0]))
                    found.append(_of_mixture(given, tokens, parts, rooms))
    return joined(found)


def by_reference(mixture: "Mixture") -> Statistics:
    """(N, ..) the statistics by the plain equations, without `log_epsilon`, which is removed from `mixture`."""
    mixture.log_epsilon = None
    return of_log_probs(reference.log_probs(mixture), reference.log_normaliser(mixture))


def of_log_probs(logp: Tensor, log_normaliser: Tensor) -> Statistics:
    """The statistics of log-probabilities (.., V), beside log-normalisers (.., K)."""
    top_logp, top = logp.max(-1)
    return Statistics(log_normaliser, -(logp.exp() * logp.clamp(min=LOWEST)).sum(-1), top, top_logp)


def joined(chunks: list[Statistics]) -> Statistics:
    """The statistics of all tokens from those of chunks."""
    return Statistics(*(torch.cat(values) for values in zip(*chunks, strict=True)))


def _chunks(given: "Lean", size: int) -> Iterator[tuple[Tensor, int]]:
    """Yield the facets of the tokens of each chunk, and the number of the first of them."""
    return zip(given.facets_NFE.split(size), range(0, len(given.facets_NFE), size), strict=True)


def _of_softmax(block_nV: Tensor, room_nV: Tensor) -> Statistics:
    """One component, from its logits u / ln 2, which are overwritten, as is the room."""
    largest_n, top_n = _largest(block_nV)
    block_nV.sub_(largest_n[:, None])
    torch.exp2(block_nV, out=room_nV)
    sum_n = room_nV.sum(-1)
    weighted_n = torch.linalg.vecdot(room_nV, block_nV)
    if weighted_n.isnan().any():  # 0 times -inf
        weighted_n = torch.linalg.vecdot(room_nV, block_nV.clamp_(min=LOWEST))
    log_sum_n = sum_n.log()
    entropy_n = log_sum_n - LOG_2 * weighted_n / sum_n  # less the mean of u - m
    return Statistics((LOG_2 * largest_n + log_sum_n)[:, None], entropy_n, top_n, -log_sum_n)


def _of_mixture(given: "Lean", tokens: slice, blocks: list[Tensor], rooms_2nV: Tensor) -> Statistics:
    """Several components or facets, from their logits u / ln 2, which are overwritten. The rooms get p and log p."""
    found = [exponentiate_(block, given.wide) for block in blocks]
    shift_nF, log_sum_nF = (torch.cat(values, dim=1) for values in zip(*found, strict=True))
    shift_nF *= LOG_2
    counts = given.layout.partitions
    normaliser_nK = normalisers(log_sum_nF + shift_nF, counts)
    weight_nK = -normaliser_nK if given.log_prior_NK is None else given.log_prior_NK[tokens] - normaliser_nK
    factor_nF = (spread(weight_nK, counts) + shift_nF).exp()
    mixed_nV, log_nV = rooms_2nV
    mixed_nV.zero_()
    for part, block in zip(given.layout.slices, blocks, strict=True):
        for factor_n, block_nv in zip(factor_nF[:, part.facets].unbind(1), block.unbind(1), strict=True):
            mixed_nV[:, part.words].addcmul_(factor_n[:, None], block_nv)
    largest_n, top_n = _largest(mixed_nV)
    weighted_n = torch.linalg.vecdot(_log(mixed_nV, log_nV), mixed_nV)
    if weighted_n.isnan().any():  # 0 times -inf
        smallest = torch.finfo(mixed_nV.dtype).tiny
        weighted_n = torch.linalg.vecdot(_log(mixed_nV.clamp(min=smallest), log_nV), mixed_nV)
    return Statistics(normaliser_nK, -weighted_n, top_n, largest_n.log())


def _log(values_nV: Tensor, room_nV: Tensor) -> Tensor:
    """The logarithm of each value, written to the room.

    On the CPU NumPy computes it: without MKL, torch's takes three times as long.
    """
    if values_nV.is_cuda:
        return torch.log(values_nV, out=room_nV)
    with np.errstate(divide="ignore"):  # the logarithm of 0 is -inf, as torch's
        np.log(values_nV.numpy(), out=room_nV.numpy())
    return room_nV


def _largest(values_nV: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) the largest value of each row, and (n,) its first place.

    On the CPU NumPy finds the place: torch's argmax takes 40 times as long.
    """
    top_n = values_nV.argmax(-1) if values_nV.is_cuda else torch.from_numpy(values_nV.numpy().argmax(-1))
    return values_nV.gather(-1, top_n[:, None])[:, 0], top_n
