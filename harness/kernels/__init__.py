"""Evaluation of a Mixture. The functions below choose one of these forms:

- the lean form (lean.py, losses.py), which works in chunks of tokens, for the logit maps identity, Bend and SoftCap. It
  is exact and computes the gradients of mean_nll in the forward pass;
- the reference in chunks of tokens, computed again in the backward pass, for any other logit map, and on a GPU on which
  the lean form failed its proof;
- the reference (reference.py), with which the others are compared, for log_probs, for number types and devices that the
  lean form does not support, and within `reference_only()`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from harness.kernels import devices, products, reference, token_statistics
from harness.kernels.buffers import tokens_per_chunk
from harness.kernels.layout import Layout
from harness.kernels.lean import Lean
from harness.kernels.logit_maps import LOGIT_MAPS, Bend, LeanMap, SoftCap, identity
from harness.kernels.losses import TokenNLL, WeightedNLL
from harness.kernels.products import linear
from harness.kernels.reference import log_probs, refuse_weightless, weighted_mean
from harness.kernels.token_statistics import Statistics
from harness.kernels.token_statistics import of_log_probs as statistics_of

if TYPE_CHECKING:
    from harness.distributions import Mixture

__all__ = [
    "LOGIT_MAPS",
    "Bend",
    "SoftCap",
    "Statistics",
    "linear",
    "log_normaliser",
    "log_probs",
    "mean_nll",
    "nll",
    "reference_only",
    "statistics",
    "statistics_of",
    "weighted_mean",
]

DEVICES = ("cpu", "cuda")  # a test adds the meta device, on which tensors have no content
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
_reference_only: ContextVar[bool] = ContextVar("reference_only", default=False)


def mean_nll(mixture: "Mixture", targets_N: Tensor, weight_N: Tensor | None = None, *, z_loss: float = 0.0) -> Tensor:
    """() nats: sum(weight * nll) / sum(weight). The weights may require a gradient.

    Args:
        z_loss: beta; beta mean_k (log Z_k)^2 is added to the nll of each token.
    Raises: ValueError when all weights are 0.
    """
    _refuse_misfit(mixture, targets_N, weight_N)
    asks_gradient = weight_N is not None and weight_N.requires_grad
    if asks_gradient or len(targets_N) == 0 or not (_is_lean(mixture) and _differentiates(mixture)):
        loss_N = nll(mixture, targets_N)
        if z_loss:
            loss_N = loss_N + z_loss * log_normaliser(mixture).square().mean(1)
        return weighted_mean(loss_N, weight_N)
    wide = torch.promote_types(mixture.facets_NFE.dtype, torch.float32)
    if weight_N is None:
        weight_N = torch.full_like(targets_N, 1 / len(targets_N), dtype=wide)
    else:
        refuse_weightless(weight_N)
        weight_N = weight_N.to(wide) / weight_N.to(wide).sum()
    return WeightedNLL.apply(_lean(mixture, z_loss), weight_N, targets_N, *_tensors(mixture))


def nll(mixture: "Mixture", targets_N: Tensor) -> Tensor:
    """(N,) nats: -logsumexp_k [ log pi_k - nll_k(target) ]."""
    _refuse_misfit(mixture, targets_N)
    if _reference_only.get() or not _has_lean_type(mixture) or len(targets_N) == 0:
        return reference.nll(mixture, targets_N)
    if not _is_lean(mixture):
        return _in_chunks(reference.nll, mixture, targets_N)
    if _differentiates(mixture):
        return TokenNLL.apply(_lean(mixture), targets_N, *_tensors(mixture))
    return _lean(mixture)(targets_N, *_tensors(mixture)).nll()


def log_normaliser(mixture: "Mixture") -> Tensor:
    """(N, K) nats: log Z_k = logsumexp_v u_k[v], with gradients by autograd."""
    if _reference_only.get() or not _has_lean_type(mixture) or len(mixture.facets_NFE) == 0:
        return reference.log_normaliser(mixture)
    return _in_chunks(reference.log_normaliser, mixture)


def statistics(mixture: "Mixture") -> Statistics:
    """Log-normalisers, entropy and the most probable word of each token, without gradients."""
    with torch.no_grad():
        if _is_lean(mixture) and len(mixture.facets_NFE):
            return token_statistics.lean(_lean(mixture)(None, *_tensors(mixture)))
        size = tokens_per_chunk(mixture.weight_VE, len(mixture.partitions))
        chunks = (slice(i, i + size) for i in range(0, max(1, len(mixture.facets_NFE)), size))
        return token_statistics.joined([token_statistics.by_reference(mixture.part(tokens)) for tokens in chunks])


@contextmanager
def reference_only() -> Iterator[None]:
    """Evaluate everything by the reference within the block: to check the other forms, or to measure them."""
    token = _reference_only.set(True)
    try:
        yield
    finally:
        _reference_only.reset(token)


def _refuse_misfit(mixture: "Mixture", *per_token: Tensor | None) -> None:
    N = len(mixture.facets_NFE)
    for values_N in per_token:
        if values_N is not None and len(values_N) != N:
            raise ValueError(f"{len(values_N)} targets or weights for the {N} tokens of a Mixture")


def _is_lean(mixture: "Mixture") -> bool:
    known = mixture.logit_map is identity or isinstance(mixture.logit_map, LeanMap)
    if not known or not _has_lean_type(mixture) or _reference_only.get():
        return False
    return devices.may_use_lean(mixture.facets_NFE.device)


def _has_lean_type(mixture: "Mixture") -> bool:
    return mixture.facets_NFE.device.type in DEVICES and mixture.facets_NFE.dtype in DTYPES


def _differentiates(mixture: "Mixture") -> bool:
    given = (tensor for tensor in _tensors(mixture) if tensor is not None)
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)


def _tensors(mixture: "Mixture") -> tuple[Tensor | None, ...]:
    return mixture.facets_NFE, mixture.log_prior_NK, mixture.weight_VE, mixture.bias_V


def _lean(mixture: "Mixture", z_loss: float = 0.0) -> partial[Lean]:
    """Return a function that makes the evaluation from targets, facets, log prior, weight and bias."""
    return partial(
        Lean,
        layout=Layout(mixture.partitions),
        logit_map=None if mixture.logit_map is identity else mixture.logit_map,
        log_epsilon=mixture.log_epsilon,
        products=products.current(),
        z_loss=z_loss,
    )


def _in_chunks(evaluate: Callable[..., Tensor], mixture: "Mixture", *per_token: Tensor) -> Tensor:
    """Evaluate the reference one chunk at a time. A chunk keeps only its facets for the backward pass."""
    size = tokens_per_chunk(mixture.weight_VE, len(mixture.partitions))
    chunks = (slice(i, i + size) for i in range(0, len(mixture.facets_NFE), size))
    multiplied = products.current()

    def evaluated(part: "Mixture", *given_n: Tensor) -> Tensor:
        with products.using(multiplied):  # the backward pass calls this again, on a GPU in another thread
            return evaluate(part, *given_n)

    found = [
        checkpoint(evaluated, mixture.part(c), *(given_N[c] for given_N in per_token), use_reentrant=False)
        for c in chunks
    ]
    return torch.cat(found)
