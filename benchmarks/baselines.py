"""Other implementations of the evaluation of a Mixture, with which ours is compared.

Each takes the Mixture of a head, so heads, inputs and projections are the same, and only the evaluation differs. Each
returns (N,) nats, one value per token.

Letters: see harness/protocols.py.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from harness.distributions import LOGIT_MAPS, Mixture

Evaluation = Callable[[Mixture, Tensor], Tensor]
EPSILON = 1e-8  # added to probabilities by the published codes


def published(mixture: Mixture, targets_N: Tensor) -> Tensor:
    """Compute the probabilities of all components, their weighted sum, and log(p + 1e-8).

    Source: Yang et al.'s zihangdai/mos, model.py (mixtures); Chang and McCallum's iesl/Softmax-CPR (partitions,
        sigsoftmax). The steps are theirs, the code is ours.
    """
    by_component = max(mixture.partitions) > 1 or mixture.logit_map is LOGIT_MAPS["sigsoftmax"]
    p_NV = _chang_probabilities(mixture) if by_component else _yang_probabilities(mixture)
    return functional.nll_loss((p_NV + EPSILON).log(), targets_N, reduction="none")


def log_space(mixture: Mixture, targets_N: Tensor) -> Tensor:
    """Compute the whole mixed distribution in log space, and then select the target's entry."""
    logp_NKV = _mapped_logits(mixture).log_softmax(-1)
    if mixture.log_prior_NK is not None:
        logp_NKV = logp_NKV + mixture.log_prior_NK[..., None]
    logp_NV = logp_NKV.logsumexp(1)
    return -logp_NV.gather(1, targets_N[:, None]).squeeze(1)


def target_only(mixture: Mixture, targets_N: Tensor) -> Tensor:
    """Mix torch's cross-entropy of N K rows. For K = 1 this is linear and F.cross_entropy, the usual softmax loss."""
    logits = _mapped_logits(mixture)
    rows_NK = functional.cross_entropy(logits.flatten(0, 1), _repeated(targets_N, mixture), reduction="none")
    return _mixed(rows_NK, mixture)


def torch_library(mixture: Mixture, targets_N: Tensor) -> Tensor:
    """Mix torch's chunked linear_cross_entropy of N K rows."""
    dtype = _product_dtype(mixture)
    nll_rows = functional.linear_cross_entropy(
        mixture.facets_NFE.flatten(0, 1).to(dtype),
        mixture.weight_VE.to(dtype),
        _repeated(targets_N, mixture),
        linear_bias=None if mixture.bias_V is None else mixture.bias_V.to(dtype),
        reduction="none",
        options=torch.nn.LinearCrossEntropyOptions(),
    )
    return _mixed(nll_rows.to(torch.promote_types(nll_rows.dtype, torch.float32)), mixture)


def cut_cross_entropy(mixture: Mixture, targets_N: Tensor) -> Tensor:
    """Mix Apple's cut cross-entropy of N K rows in its exact mode (without filtering of gradients). bf16 only."""
    from cut_cross_entropy import linear_cross_entropy

    nll_rows = linear_cross_entropy(
        mixture.facets_NFE.flatten(0, 1).to(torch.bfloat16),
        mixture.weight_VE.to(torch.bfloat16),
        _repeated(targets_N, mixture),
        bias=None if mixture.bias_V is None else mixture.bias_V.to(torch.bfloat16),
        reduction="none",
        filter_eps=None,
    )
    return _mixed(nll_rows.float(), mixture)


def liger(mixture: Mixture, targets_N: Tensor) -> Tensor:
    """Compute Liger's fused linear cross-entropy, (1,). For one component only: it has no gradient for single rows."""
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

    dtype = _product_dtype(mixture)
    bias_V = None if mixture.bias_V is None else mixture.bias_V.to(dtype)
    facets_NE = mixture.facets_NFE[:, 0].to(dtype)
    return liger_fused_linear_cross_entropy(facets_NE, mixture.weight_VE.to(dtype), targets_N, bias_V).reshape(1)


def compiled(backend: str = "inductor") -> Evaluation:
    """Return `target_only` with torch.compile, which compiles it at the first call."""
    compiled_rows = torch.compile(_compilable, dynamic=False, backend=backend)

    def evaluate(mixture: Mixture, targets_N: Tensor) -> Tensor:
        tensors = mixture.facets_NFE, mixture.log_prior_NK, mixture.weight_VE, mixture.bias_V
        return compiled_rows(tensors, targets_N, mixture.partitions, mixture.logit_map)

    return evaluate


def _compilable(tensors, targets_N, partitions, logit_map) -> Tensor:
    facets_NFE, log_prior_NK, weight_VE, bias_V = tensors
    prior = None if log_prior_NK is None else log_prior_NK[None]
    mixture = Mixture(facets_NFE[None], prior, weight_VE, bias_V, partitions=partitions, logit_map=logit_map)
    return target_only(mixture, targets_N)


def _yang_probabilities(mixture: Mixture) -> Tensor:
    """(N, V): one product for all components, one softmax over (N K, V), and the prior expanded to (N, K, V)."""
    p_NKV = functional.linear(mixture.facets_NFE, mixture.weight_VE, mixture.bias_V).softmax(-1)
    if mixture.log_prior_NK is None:
        return p_NKV[:, 0]
    return (p_NKV * mixture.log_prior_NK.exp()[..., None].expand_as(p_NKV)).sum(1)


def _chang_probabilities(mixture: Mixture) -> Tensor:
    """(N, V): a list of logits, which is also stacked because the authors return it for diagnostics; then a sum."""
    logits = _component_logits(mixture)
    stacked_KNV = torch.stack(logits)
    total_NV = 0
    for k, z_NV in enumerate(logits):
        if mixture.logit_map is LOGIT_MAPS["sigsoftmax"]:
            bent_NV = torch.exp(z_NV - z_NV.max(-1, keepdim=True)[0]) * (1e-20 + torch.sigmoid(z_NV))
            p_NV = bent_NV / bent_NV.sum(-1, keepdim=True)
        else:
            p_NV = z_NV.softmax(-1)
        total_NV = total_NV + (p_NV if mixture.log_prior_NK is None else p_NV * mixture.log_prior_NK[:, k, None].exp())
    del stacked_KNV  # kept in memory until here, because the authors return it
    return total_NV


def _component_logits(mixture: Mixture) -> list[Tensor]:
    """Return the (N, V) logits of each component. With P facets, the logits of word x come from facet x mod P."""
    logits, at = [], 0
    for P in mixture.partitions:
        owners = mixture.facets_NFE[:, at : at + P].unbind(1)
        bias = [None if mixture.bias_V is None else mixture.bias_V[p::P] for p in range(P)]
        slices = [functional.linear(f_NE, mixture.weight_VE[p::P], bias[p]) for p, f_NE in enumerate(owners)]
        z_NV = slices[0] if P == 1 else slices[0].new_empty(len(slices[0]), len(mixture.weight_VE))
        if P > 1:
            for p, slice_NV in enumerate(slices):
                z_NV[:, p::P] = slice_NV
        logits.append(z_NV)
        at += P
    return logits


def _mapped_logits(mixture: Mixture) -> Tensor:
    """(N, K, V) u = phi(z)."""
    if max(mixture.partitions) > 1:
        z_NKV = torch.stack(_component_logits(mixture), dim=1)
    else:
        z_NKV = functional.linear(mixture.facets_NFE, mixture.weight_VE, mixture.bias_V)
    return mixture.logit_map(z_NKV)


def _repeated(targets_N: Tensor, mixture: Mixture) -> Tensor:
    return targets_N.repeat_interleave(len(mixture.partitions))


def _mixed(nll_rows: Tensor, mixture: Mixture) -> Tensor:
    """(N K,) nats of the components -> (N,) of the mixture."""
    if mixture.log_prior_NK is None:
        return nll_rows
    return -(mixture.log_prior_NK - nll_rows.view(-1, len(mixture.partitions))).logsumexp(1)


def _product_dtype(mixture: Mixture) -> torch.dtype:
    """Return the type in which autocast would multiply, for functions that autocast does not support."""
    device = mixture.facets_NFE.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else mixture.facets_NFE.dtype
