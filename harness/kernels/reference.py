"""The exact evaluation of a Mixture in log space, by plain torch operations and autograd.

`nll` needs only K log-normalisers and K target logits for each token. Only `log_probs` computes the mixed distribution
over the vocabulary. Products are computed in the type of the facets, everything after them in at least float32.
Letters: see harness/protocols.py.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.nn import functional

from harness.kernels.mixture import Tensors
from harness.kernels.products import linear
from harness.kernels.rows import plus_epsilon


def nll(mixture: Tensors, targets_N: Tensor) -> Tensor:
    """(N,) nats: -logsumexp_k [ log pi_k - nll_k(target) ]."""
    component_nlls = [functional.cross_entropy(u, targets_N, reduction="none") for u in component_logits(mixture)]
    if mixture.log_prior_NK is None:
        (logp_N,) = (-nll_N for nll_N in component_nlls)
    else:
        nll_NK = torch.stack(component_nlls, dim=1)
        logp_N = torch.logsumexp(mixture.log_prior_NK - nll_NK, dim=1)
    return -plus_epsilon(logp_N, mixture.log_epsilon)


def log_probs(mixture: Tensors) -> Tensor:
    """(N, V) nats: the whole mixed distribution.

    Components are added one at a time, so a few N x V floats are needed.
    """
    mixed_NV = None
    for k, u_NV in enumerate(component_logits(mixture)):
        logp_NV = u_NV.log_softmax(-1)
        if mixture.log_prior_NK is not None:
            logp_NV = logp_NV + mixture.log_prior_NK[:, k, None]
        mixed_NV = logp_NV if mixed_NV is None else torch.logaddexp(mixed_NV, logp_NV)
    return plus_epsilon(mixed_NV, mixture.log_epsilon)


def log_normaliser(mixture: Tensors) -> Tensor:
    """(N, K) nats: log Z_k = logsumexp_v u_k[v]."""
    return torch.stack([u_NV.logsumexp(-1) for u_NV in component_logits(mixture)], dim=1)


def weighted_mean(values: Tensor, weight: Tensor | None) -> Tensor:
    """() sum(weight * values) / sum(weight); the plain mean without weights.

    Raises: ValueError when all weights are 0.
    """
    if weight is None:
        return values.mean()
    refuse_weightless(weight)
    weight = weight.to(values.dtype)
    return (weight * values).sum() / weight.sum()


def refuse_weightless(weight: Tensor) -> None:
    """Raises ValueError when all weights are 0: there is no mean. On a GPU this waits for the weights, so it is not
    asked while a CUDA graph is recorded, nor of tensors without content: those on the meta device, and of torch's
    classes for counting (harness/flops.py).
    """
    recorded = weight.is_cuda and torch.cuda.is_current_stream_capturing()
    empty = weight.is_meta or isinstance(weight, FakeTensor) or not weight.numel()
    if not empty and not recorded and not weight.any():
        raise ValueError("the weights of all tokens are 0: a mean needs a token of another weight")


def component_logits(mixture: Tensors) -> Iterator[Tensor]:
    """Yield u_k = phi(z_k), (N, V) in at least float32, for one component after the other."""
    first = 0
    for num_partitions in mixture.partitions:
        facets_NPE = mixture.facets_NFE[:, first : first + num_partitions]
        first += num_partitions
        z_NV = _partitioned_product(facets_NPE, mixture.weight_VE, mixture.bias_V)
        yield mixture.logit_map(z_NV.to(torch.promote_types(z_NV.dtype, torch.float32)))


def _partitioned_product(facets_NPE: Tensor, weight_VE: Tensor, bias_V: Tensor | None) -> Tensor:
    """(N, V): word x is scored by facet x mod P."""
    num_partitions = facets_NPE.shape[1]
    if num_partitions == 1:
        return linear(facets_NPE[:, 0], weight_VE, bias_V)
    scores_NV = facets_NPE.new_empty(facets_NPE.shape[0], weight_VE.shape[0])
    for p in range(num_partitions):
        bias_p = None if bias_V is None else bias_V[p::num_partitions]
        scores_NV[:, p::num_partitions] = linear(facets_NPE[:, p], weight_VE[p::num_partitions], bias_p)
    return scores_NV
