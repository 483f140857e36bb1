"""The distributions that heads return: `Mixture` under every head of the papers, `Logits` for a head that is none.

Shape letters: see harness/protocols.py.
"""

import torch
from torch import Tensor

from harness import kernels


def log_prior(scores_BTK: Tensor) -> Tensor:
    """(B, T, K) scores -> (B, T, K) log mixture weights, normalised over K in at least float32."""
    return scores_BTK.to(torch.promote_types(scores_BTK.dtype, torch.float32)).log_softmax(-1)


class Mixture:
    """A prior-weighted sum of K softmaxes over one output matrix, not yet evaluated.

    With component k made of P_k facets (P_k = 1 unless `partitions` says otherwise; F = sum_k P_k),

        z_k[x]    = f_{k, x mod P_k} . w_x + b_x            the facet that owns word x scores it
        log p_k   = log_softmax(phi(z_k))                   phi: the logit map
        log p(x)  = logsumexp_k [ log pi_k + log p_k(x) ]

    Shapes: facets (B, T, F, E); log_prior (B, T, K), normalised over K, or None for K = 1; weight (V, E); bias (V,).
    Args:
        facets_BTFE: the vectors scored against the output matrix, component by component, projected by the head.
        log_prior_BTK: log mixture weights; None when there is one component.
        weight_VE: the output matrix shared by all components.
        bias_V: the output bias shared by all components, or None.
        partitions: P_k for each component; word x belongs to facet x mod P_k of component k. Default: all 1.
        logit_map: name of phi: "identity" (softmax) or "sigsoftmax" (z + logsigmoid(z)).
        aux_loss: () tensor added to the training loss only.
    Raises: ValueError when the facets, the prior and the partitions do not agree, or the logit map is unknown.
    Source: Yang et al. (2018), arXiv:1711.03953, section 2.3; partitions: Chang and McCallum's multi-facet softmax;
        sigsoftmax: Kanai et al. (2018), arXiv:1805.10829.
    Differs: mixes in log space; the authors' codes take log(p + 1e-8).
    """

    def __init__(
        self,
        facets_BTFE: Tensor,
        log_prior_BTK: Tensor | None,
        weight_VE: Tensor,
        bias_V: Tensor | None = None,
        *,
        partitions: tuple[int, ...] | None = None,
        logit_map: str = "identity",
        aux_loss: Tensor | float = 0.0,
    ):
        B, T, F, E = facets_BTFE.shape
        K = 1 if log_prior_BTK is None else log_prior_BTK.shape[-1]
        partitions = (1,) * K if partitions is None else tuple(partitions)
        if len(partitions) != K or sum(partitions) != F or min(partitions) < 1:
            raise ValueError(f"{F} facets and {K} log-prior weights do not fit partitions {partitions}")
        if logit_map not in kernels.LOGIT_MAPS:
            raise ValueError(f"logit_map must be one of {', '.join(kernels.LOGIT_MAPS)}, got '{logit_map}'")
        self.shape = (B, T)
        self.facets_NFE = facets_BTFE.reshape(B * T, F, E)
        self.log_prior_NK = None if log_prior_BTK is None else log_prior_BTK.reshape(B * T, K)
        self.weight_VE, self.bias_V = weight_VE, bias_V
        self.partitions, self.logit_map, self.aux_loss = partitions, logit_map, aux_loss

    def training_loss(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() mean_nll + aux_loss."""
        return self.mean_nll(targets_BT, weight_BT) + self.aux_loss

    def mean_nll(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() nats: sum(weight * nll) / sum(weight); the plain mean without weights."""
        weight_N = None if weight_BT is None else weight_BT.reshape(-1)
        return kernels.mean_nll(self, targets_BT.reshape(-1), weight_N)

    def nll(self, targets_BT: Tensor) -> Tensor:
        """(B, T) nats, exact."""
        return kernels.nll(self, targets_BT.reshape(-1)).view(self.shape)

    def log_probs(self) -> Tensor:
        """(B, T, V) nats, normalised over V."""
        return kernels.log_probs(self).view(*self.shape, -1)


class Logits:
    """A distribution given by its logits: log p = log_softmax(z). For heads that are no Mixture.

    Shapes: z (B, T, V). The log-sum-exp is taken in at least float32 whatever the logits' type.
    """

    def __init__(self, z_BTV: Tensor, *, aux_loss: Tensor | float = 0.0):
        self.z_BTV, self.aux_loss = z_BTV, aux_loss

    def training_loss(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() mean_nll + aux_loss."""
        return self.mean_nll(targets_BT, weight_BT) + self.aux_loss

    def mean_nll(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() nats: sum(weight * nll) / sum(weight); the plain mean without weights."""
        return kernels.weighted_mean(self.nll(targets_BT), weight_BT)

    def nll(self, targets_BT: Tensor) -> Tensor:
        """(B, T) nats, exact."""
        return -self.log_probs().gather(-1, targets_BT[..., None])[..., 0]

    def log_probs(self) -> Tensor:
        """(B, T, V) nats, normalised over V."""
        return self.z_BTV.to(torch.promote_types(self.z_BTV.dtype, torch.float32)).log_softmax(-1)
