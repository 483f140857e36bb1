"""Evaluation of a mixture: the questions that can be asked. harness/kernels/choice.py says which form answers them."""

import torch
from torch import Tensor

from harness.kernels import choice, forms, reference, token_statistics
from harness.kernels.chunked import tokens_per_chunk
from harness.kernels.forms import reference_only
from harness.kernels.mixture import LOGIT_MAPS, Bend, HarmonicMap, SigmoidCap, SoftCap, Tensors
from harness.kernels.products import linear
from harness.kernels.reference import log_probs, refuse_weightless, weighted_mean
from harness.kernels.token_statistics import Statistics
from harness.kernels.token_statistics import of_log_probs as statistics_of

__all__ = [
    "LOGIT_MAPS",
    "Bend",
    "HarmonicMap",
    "SigmoidCap",
    "SoftCap",
    "Statistics",
    "Tensors",
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


def mean_nll(mixture: Tensors, targets_N: Tensor, weight_N: Tensor | None = None, *, z_loss: float = 0.0) -> Tensor:
    """() nats: sum(weight * nll) / sum(weight). The weights may require a gradient.

    Args:
        z_loss: beta; beta mean_k (log Z_k)^2 is added to the nll of each token.
    Raises: ValueError when all weights are 0.
    """
    _refuse_misfit(mixture, targets_N, weight_N)
    asks_gradient = weight_N is not None and weight_N.requires_grad
    form = choice.chosen(mixture, targets_N, z_loss)
    if asks_gradient or form.mean_nll is None or not forms.differentiates(mixture):
        loss_N = form.nll(mixture, targets_N)
        if z_loss:
            loss_N = loss_N + z_loss * log_normaliser(mixture).square().mean(1)
        return weighted_mean(loss_N, weight_N)
    if weight_N is None:
        weight_N = torch.full_like(targets_N, 1 / len(targets_N), dtype=mixture.wide)
    else:
        refuse_weightless(weight_N)
        weight_N = weight_N.to(mixture.wide) / weight_N.to(mixture.wide).sum()
    return form.mean_nll(mixture, targets_N, weight_N, z_loss)


def nll(mixture: Tensors, targets_N: Tensor) -> Tensor:
    """(N,) nats: -logsumexp_k [ log pi_k - nll_k(target) ]."""
    _refuse_misfit(mixture, targets_N)
    return choice.chosen(mixture, targets_N, 0.0).nll(mixture, targets_N)


def log_normaliser(mixture: Tensors) -> Tensor:
    """(N, K) nats: log Z_k = logsumexp_v u_k[v], with gradients by autograd."""
    if forms.has_chunks(mixture):
        return forms.in_chunks(reference.log_normaliser, mixture)
    return reference.log_normaliser(mixture)


def statistics(mixture: Tensors) -> Statistics:
    """Log-normalisers, entropy and the most probable word of each token, without gradients."""
    with torch.no_grad():
        if forms.LEAN.fits(mixture, False) and forms.LEAN.name not in choice.current().left_out:
            return token_statistics.lean(forms.lean(mixture)(*mixture.given))
        size = tokens_per_chunk(mixture.weight_VE, mixture.partitions)
        chunks = (slice(i, i + size) for i in range(0, max(1, len(mixture.facets_NFE)), size))
        return token_statistics.joined([token_statistics.by_reference(mixture.part(tokens)) for tokens in chunks])


def _refuse_misfit(mixture: Tensors, *per_token: Tensor | None) -> None:
    N = len(mixture.facets_NFE)
    for values_N in per_token:
        if values_N is not None and len(values_N) != N:
            raise ValueError(f"{len(values_N)} targets or weights for the {N} tokens of a Mixture")
