"""Evaluation by a kernel that sums logits without storing them (CUDA with Triton): 2 N K V E operations, no buffer."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.kernels.rows import nll_of, normalisers

if TYPE_CHECKING:
    from harness.kernels.lean import Lean


def fused_nll(lean: "Lean", log_sum_exp: Callable[..., Tensor]) -> Tensor:
    """(N,) nats, of a mixture whose logit map is the identity.

    The log-normaliser of a component is at least the logit of the target, which is one of its words. Here the two come
    from different sums in float32. For a target with probability near 1 and a logit near 100 the difference is
    rounding, up to 2e-5 of either sign, so it is set to 0 where it has the wrong sign.

    Args:
        log_sum_exp: maps rows (R, E), words (V, E), bias (V,) or None, and a precision to log-normalisers (R,).
    """
    normalisers_NK = normalisers(_log_normalisers(lean, log_sum_exp), lean.layout.partitions)
    logp_NK = (_target_logits(lean) - normalisers_NK).clamp(max=0)
    return nll_of(logp_NK if lean.log_prior_NK is None else logp_NK + lean.log_prior_NK, lean.log_epsilon)


def _log_normalisers(lean: "Lean", log_sum_exp: Callable[..., Tensor]) -> Tensor:
    """(N, F) the logsumexp of each facet over the words that it scores."""
    weight_VE = lean.weight_VE.to(lean.facets_NFE.dtype)
    sums_NF = lean.facets_NFE.new_empty(lean.facets_NFE.shape[:2], dtype=lean.wide)
    for part in lean.layout.slices:
        rows_rE = lean.facets_NFE[:, part.facets].flatten(0, 1)
        bias_v = None if lean.bias_V is None else lean.bias_V[part.words]
        sums_r = log_sum_exp(rows_rE, weight_VE[part.words], bias_v, precision=lean.products.precision)
        sums_NF[:, part.facets] = sums_r.view(len(sums_NF), -1)
    return sums_NF


def _target_logits(lean: "Lean") -> Tensor:
    """(N, K) the logits z of the targets, from the facets that score them."""
    facets_NFE = lean.facets_NFE.to(lean.wide)
    if not lean.layout.plain:
        owners_NKE = lean.layout.owners(lean.targets_N)[..., None].expand(-1, -1, facets_NFE.shape[-1])
        facets_NFE = facets_NFE.gather(1, owners_NKE)
    weight_NE = lean.weight_VE.index_select(0, lean.targets_N).to(lean.wide)
    z_NK = torch.linalg.vecdot(facets_NFE, weight_NE[:, None])
    return z_NK if lean.bias_V is None else z_NK + lean.bias_V.index_select(0, lean.targets_N)[:, None]
