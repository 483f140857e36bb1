"""Log-normalisers, entropy and the most probable word of each token, in chunks of tokens and without gradients.

With p(v) = sum_k pi_k p_k(v), the mixed distribution,

    log Z_k = logsumexp_v u_k[v];    entropy = -sum_v p(v) log p(v);    top = argmax_v p(v)

For a plain softmax all of it comes from the exponentials E = exp(u - m), with m the largest logit:

    log Z = m + log sum E;    log p(top) = -log sum E;    entropy = log sum E - sum E (u - m) / sum E

In a mixture the exponentials of all components are added with the factors pi_k / Z_k. There is one product, as for the
nll: 2 N K V E operations, and no tensor of N x K x V numbers. Letters: see harness/protocols.py; n is the number of
tokens of a chunk.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from harness.kernels import reference
from harness.kernels.buffers import Buffers
from harness.kernels.rows import LOG_2, exponentiate_, normalisers, spread, tokens_at_once

if TYPE_CHECKING:
    from harness.distributions import Mixture
    from harness.kernels.lean import Lean

SEGMENT = 512  # words of which the largest is found at once: torch's argmax is ten times as slow as amax
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
        single = given.layout.partitions == (1,)
        at_once = tokens_at_once(buffers.blocks[0]) if single else buffers.tokens
        room_nV = given.facets_NFE.new_empty(min(at_once, buffers.tokens), len(given.weight_VE), dtype=given.wide)
        for start in range(0, len(given.facets_NFE), buffers.tokens):
            tokens = slice(start, start + buffers.tokens)
            blocks, _ = given.mapped_logits(given.facets_NFE[tokens].to(given.wide), buffers)
            if single:
                found += [_of_softmax(part_n1V, room_nV[: len(part_n1V)]) for part_n1V in blocks[0].split(at_once)]
            else:
                found.append(_of_mixture(given, tokens, blocks, room_nV[: len(blocks[0])]))
    whole = joined(found)
    return whole._replace(log_normaliser=whole.log_normaliser + given.level)


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


def _of_softmax(block_n1V: Tensor, room_nV: Tensor) -> Statistics:
    """One component, from its logits u / ln 2, which are overwritten, as is the room."""
    block_nV = block_n1V[:, 0].to(room_nV.dtype)
    largest_n, top_n = _largest(block_nV)
    block_nV.sub_(largest_n[:, None]).clamp_(min=LOWEST)
    torch.exp2(block_nV, out=room_nV)
    sum_n = room_nV.sum(-1)
    distance_n = LOG_2 * room_nV.mul_(block_nV).sum(-1) / sum_n  # the mean of u - m
    log_sum_n = sum_n.log()
    return Statistics((LOG_2 * largest_n + log_sum_n)[:, None], log_sum_n - distance_n, top_n, -log_sum_n)


def _of_mixture(given: "Lean", tokens: slice, blocks: list[Tensor], mixed_nV: Tensor) -> Statistics:
    """Several components or facets, from their logits u / ln 2, which are overwritten; mixed_nV receives p."""
    wide = [block.to(given.wide) for block in blocks]
    found = [exponentiate_(block, given.wide) for block in wide]
    shift_nF, log_sum_nF = (torch.cat(values, dim=1) for values in zip(*found, strict=True))
    shift_nF *= LOG_2
    counts = list(given.layout.partitions)
    normaliser_nK = normalisers(log_sum_nF + shift_nF, counts)
    weight_nK = -normaliser_nK if given.log_prior_NK is None else given.log_prior_NK[tokens] - normaliser_nK
    factor_nF = (spread(weight_nK, counts) + shift_nF).exp()
    mixed_nV.zero_()
    for part, block in zip(given.layout.slices, wide, strict=True):
        mixed_nV[:, part.words] += torch.bmm(factor_nF[:, None, part.facets], block)[:, 0]
    largest_n, top_n = _largest(mixed_nV)
    # log10, which torch computes without MKL, takes an eighth of the time of log on some processors
    log_nV = mixed_nV.clamp(min=torch.finfo(mixed_nV.dtype).tiny).log10_()
    entropy_n = -math.log(10) * log_nV.mul_(mixed_nV).sum(-1)
    return Statistics(normaliser_nK, entropy_n, top_n, largest_n.log())


def _largest(values_nV: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) the largest value of each row, and (n,) its first place."""
    segments = values_nV.split(SEGMENT, dim=-1)
    largest_n, segment_n = torch.stack([values.amax(-1) for values in segments], dim=-1).max(-1)
    place_ns = segment_n[:, None] * SEGMENT + torch.arange(SEGMENT, device=values_nV.device)
    inside_ns = values_nV.gather(-1, place_ns.clamp(max=values_nV.shape[-1] - 1))
    return largest_n, place_ns[:, 0] + inside_ns.argmax(-1)
