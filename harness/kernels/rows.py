"""The part of the lean evaluation between its matrix products.

It replaces rows of logits by exponentials, and computes for each token the negative log-likelihood, the
responsibilities of the components, and the factors from exponentials to gradients. Results are in float32 or a wider
type. Letters in addition to those of harness/protocols.py: n tokens of a chunk.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from harness.kernels.products import CACHED

LOG_2 = math.log(2)


class Rows(NamedTuple):
    """The results for the tokens of a chunk.

    Shapes: nll (n,) in nats.
        share (n, K): the responsibilities p_k / sum_k p_k, or p_k / (p + epsilon) with an epsilon.
        rest (n, K): share times the component's probability of all words except the target.
        scale (n, F): share times `unit`, so that scale * exponential is share * probability.
        normaliser (n, K): A_k, nats.
        unit (n, F): 1 / normaliser of the exponentials of each facet's row, so that unit * exponential is the
            probability of a word under the component.
    """

    nll: Tensor
    share: Tensor
    rest: Tensor
    scale: Tensor
    normaliser: Tensor
    unit: Tensor


def combine_rows_(
    blocks: Sequence[Tensor],
    facets: Sequence[Sequence[int]],
    component: Sequence[int],
    target_nK: Tensor,
    log_prior_nK: Tensor | None,
    log_epsilon: float | None,
) -> Rows:
    """Replace the logits of all words except the target by exponentials, and combine them with the target's logit.

        R_k = log sum_{f of k} sum_{v != x} exp(u_f[v]);    A_k = log(exp(R_k) + exp(u_k[x]))
        a_k = log pi_k + u_k[x] - A_k;    nll = -logsumexp_k a_k;    share_k = exp(a_k + nll)
        rest_k = share_k exp(R_k - A_k);    block <- 2^(block - m_f);    unit_f = 2^m_f / exp(A_k)
        scale_f = share_k unit_f

    m_f is the largest logit of the row. A row of -inf (there is no word except the target) becomes 0.
    Args:
        blocks: (n, F_s, V_s) each: the logits u / ln 2 of the facets that score the same V_s words, with -inf for the
            target. They are overwritten.
        facets: the range of facets of each block. Every facet is in one block.
        component: the component of each facet. The facets of a component are neighbours.
        target_nK: u_k[x], nats.
        log_prior_nK: log pi_k, nats; None for one component.
        log_epsilon: as Mixture's.
    """
    shift_nF, log_sum_nF = (target_nK.new_empty(len(target_nK), len(component)) for _ in range(2))
    for block, members in zip(blocks, facets, strict=True):
        columns = slice(members[0], members[-1] + 1)
        largest, log_sum_nF[:, columns] = exponentiate_(block, target_nK.dtype)
        shift_nF[:, columns] = LOG_2 * largest
    log_sum_nF += shift_nF
    counts = [component.count(k) for k in range(target_nK.shape[1])]
    others_nK = normalisers(log_sum_nF, counts)
    normaliser_nK = torch.logaddexp(others_nK, target_nK)
    joint_nK = target_nK - normaliser_nK
    if log_prior_nK is not None:
        joint_nK = joint_nK + log_prior_nK
    nll_n = nll_of(joint_nK, log_epsilon)
    share_nK = (joint_nK + nll_n[:, None]).exp()
    rest_nK = share_nK * (others_nK - normaliser_nK).exp()
    unit_nF = (shift_nF - spread(normaliser_nK, counts)).exp()
    return Rows(nll_n, share_nK, rest_nK, spread(share_nK, counts) * unit_nF, normaliser_nK, unit_nF)


def exponentiate_(block: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Replace block by 2^(block - m), computed in `dtype` and then rounded. Return m and the log of the sum, (n, s)
    each.

    The CPU converts a few tokens at a time, which fit in its cache. This is 15 times as fast as the whole block at
    once.
    """
    if block.dtype == dtype:
        largest = _largest(block)
        return largest, block.sub_(largest[..., None]).exp2_().sum(-1).log_()
    found = []
    for part in block.split(tokens_at_once(block)):
        wide = part.to(dtype)
        found.append(exponentiate_(wide, dtype))
        part.copy_(wide)
    largest, log_sum = (torch.cat(pieces) for pieces in zip(*found, strict=True))
    return largest, log_sum


def tokens_at_once(*blocks: Tensor) -> int:
    """How many tokens of the blocks several operations are done on, one after the other: on the CPU those whose logits
    fit in its cache.
    """
    if blocks[0].is_cuda:
        return len(blocks[0])
    return max(1, CACHED // sum(math.prod(block.shape[1:]) for block in blocks))


def _largest(block: Tensor) -> Tensor:
    """(n, s) the largest logit of each row; the lowest finite number for a row of -inf."""
    return block.amax(-1).clamp_(min=torch.finfo(block.dtype).min)


def normalisers(log_sum_nF: Tensor, partitions: Sequence[int]) -> Tensor:
    """(n, K) A_k: the logsumexp over the facets of each component."""
    if len(partitions) == log_sum_nF.shape[1]:
        return log_sum_nF
    return torch.stack([part.logsumexp(-1) for part in log_sum_nF.split(partitions, dim=-1)], dim=-1)


def nll_of(joint_nK: Tensor, log_epsilon: float | None) -> Tensor:
    """(n,) nats, from a_k = log pi_k + log p_k(x)."""
    return -plus_epsilon(joint_nK.logsumexp(-1), log_epsilon)


def plus_epsilon(logp: Tensor, epsilon: float | None) -> Tensor:
    """log(p + epsilon); log p itself without an epsilon."""
    return logp if epsilon is None else torch.logaddexp(logp, torch.full_like(logp, math.log(epsilon)))


def spread(values_nK: Tensor, counts: list[int]) -> Tensor:
    """(n, F): each component's value, repeated for each of its facets."""
    if sum(counts) == len(counts):
        return values_nK
    return torch.cat([values_nK[:, k : k + 1].expand(-1, count) for k, count in enumerate(counts)], dim=-1)
