"""Evaluation of a Mixture. The three functions below choose one of these forms:

- the lean form (lean.py, losses.py), which works in chunks of tokens, for the logit maps identity and Bend. It is exact
  and computes the gradients of mean_nll in the forward pass;
- the reference in chunks of tokens, computed again in the backward pass, for any other logit map, and on a GPU on which
  the lean form failed its proof;
- the reference (reference.py), with which the others are compared, for log_probs, for number types and devices that the
  lean form does not support, and within `reference_only()`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from harness.kernels import devices, products, reference
from harness.kernels.buffers import tokens_per_chunk
from harness.kernels.layout import Layout
from harness.kernels.lean import Lean
from harness.kernels.logit_maps import LOGIT_MAPS, Bend, identity
from harness.kernels.losses import TokenNLL, WeightedNLL
from harness.kernels.products import linear
from harness.kernels.reference import log_probs, weighted_mean

if TYPE_CHECKING:
    from harness.distributions import Mixture

__all__ = ["LOGIT_MAPS", "Bend", "linear", "log_probs", "mean_nll", "nll", "reference_only", "weighted_mean"]

DEVICES = ("cpu", "cuda")  # a test adds the meta device, on which tensors have no content
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
_reference_only: ContextVar[bool] = ContextVar("reference_only", default=False)


def mean_nll(mixture: "Mixture", targets_N: Tensor, weight_N: Tensor | None = None) -> Tensor:
    """() nats: sum(weight * nll) / sum(weight). The weights may require a gradient."""
    _refuse_misfit(mixture, targets_N, weight_N)
    asks_gradient = weight_N is not None and weight_N.requires_grad
    if asks_gradient or len(targets_N) == 0 or not (_is_lean(mixture) and _differentiates(mixture)):
        return weighted_mean(nll(mixture, targets_N), weight_N)
    wide = torch.promote_types(mixture.facets_NFE.dtype, torch.float32)
    if weight_N is None:
        weight_N = torch.full_like(targets_N, 1 / len(targets_N), dtype=wide)
    else:
        weight_N = weight_N.to(wide) / weight_N.to(wide).sum()
    return WeightedNLL.apply(_lean(mixture), weight_N, targets_N, *_tensors(mixture))


def nll(mixture: "Mixture", targets_N: Tensor) -> Tensor:
    """(N,) nats: -logsumexp_k [ log pi_k - nll_k(target) ]."""
    _refuse_misfit(mixture, targets_N)
    if _reference_only.get() or not _has_lean_type(mixture) or len(targets_N) == 0:
        return reference.nll(mixture, targets_N)
    if not _is_lean(mixture):
        return _chunked_reference(mixture, targets_N)
    if _differentiates(mixture):
        return TokenNLL.apply(_lean(mixture), targets_N, *_tensors(mixture))
    return _lean(mixture)(targets_N, *_tensors(mixture)).nll()


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
    known = mixture.logit_map is identity or isinstance(mixture.logit_map, Bend)
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


def _lean(mixture: "Mixture") -> partial[Lean]:
    """Return a function that makes the evaluation from targets, facets, log prior, weight and bias."""
    return partial(
        Lean,
        layout=Layout(mixture.partitions),
        bend=mixture.logit_map if isinstance(mixture.logit_map, Bend) else None,
        log_epsilon=mixture.log_epsilon,
        products=products.current(),
    )


def _chunked_reference(mixture: "Mixture", targets_N: Tensor) -> Tensor:
    """Evaluate the reference one chunk at a time. A chunk keeps only its facets for the backward pass."""
    size = tokens_per_chunk(mixture.weight_VE, len(mixture.partitions))
    chunks = (slice(i, i + size) for i in range(0, len(targets_N), size))
    multiplied = products.current()

    def evaluated(part: "Mixture", targets_n: Tensor) -> Tensor:
        with products.using(multiplied):  # the backward pass calls this again, on a GPU in another thread
            return reference.nll(part, targets_n)

    return torch.cat([checkpoint(evaluated, mixture.part(c), targets_N[c], use_reentrant=False) for c in chunks])
