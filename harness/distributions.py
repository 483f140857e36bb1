"""The distributions that heads return: `Mixture` under every head of the papers, `Logits` for a head that is none; and
the two layers that nearly every head is made of.

Shape letters: see harness/protocols.py.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from harness import kernels
from harness.protocols import HeadDims

LOGIT_MAPS, Bend = kernels.LOGIT_MAPS, kernels.Bend
weighted_mean = kernels.weighted_mean
linear = (
    kernels.linear
)  # for a head that multiplies by the output matrix itself: in the precision that a suite asks for
Compat = dict[Literal["log_epsilon"], float]  # switches that reproduce what published codes do; None, off, by default


def log_prior(scores_BTK: Tensor) -> Tensor:
    """(B, T, K) scores -> (B, T, K) log mixture weights, normalised over K in at least float32."""
    return scores_BTK.to(torch.promote_types(scores_BTK.dtype, torch.float32)).log_softmax(-1)


def log_epsilon(compat: Compat | None) -> float | None:
    """The epsilon of a head's `compat`, or None. Raises ValueError when it is empty or not between 0 and 1."""
    if compat is None:
        return None
    epsilon = compat.get("log_epsilon")
    if epsilon is None or not 0 < epsilon < 1:
        raise ValueError(f"compat: expected a log_epsilon between 0 and 1, got {compat}")
    return epsilon


def facet_map(dims: HeadDims, *, projection: bool) -> nn.Module:
    """The one facet of a single softmax: f = U h + a, U (E, D), with `projection`, h itself without.

    Raises: ValueError when D differs from E and there is no projection.
    """
    d_top = dims.layer_dims[-1]
    if d_top != dims.d_embed and not projection:
        raise ValueError(
            f"projection: the top layer is {d_top} wide and the output embedding {dims.d_embed}; set it to true"
        )
    return nn.Linear(d_top, dims.d_embed) if projection else nn.Identity()


def output_width(dims: HeadDims, d_embed: int | None, *, tie_weights: bool) -> int:
    """E of a head that may choose its own: `d_embed`, or None for the width of the backbone's embedding.

    Raises: ValueError when d_embed < 1, or weights are to be tied at another width than the embedding's.
    """
    width = dims.d_embed if d_embed is None else d_embed
    if width < 1:
        raise ValueError(f"d_embed must be at least 1, got {width}")
    if tie_weights and width != dims.d_embed:
        raise ValueError(f"tie_weights: the embedding is {dims.d_embed} wide, d_embed {width}; they must be equal")
    return width


def output_layer(
    dims: HeadDims, embedding: nn.Embedding, *, bias: bool, tie_weights: bool, width: int | None = None
) -> nn.Linear:
    """The output matrix W (V, E), the input embedding itself with `tie_weights`, and bias b (V,) that facets meet."""
    output = nn.Linear(dims.d_embed if width is None else width, dims.vocab_size, bias=bias)
    if tie_weights:
        output.weight = embedding.weight
    return output


def xavier_uniform_(embedding: nn.Embedding, *layers: nn.Module | None) -> None:
    """Fill the matrices of the linear layers, in their order, all but one that is tied to the embedding. Biases keep
    torch's Linear default. A head calls it last: the draws before it are those of the constructors.
    """
    for layer in layers:
        if isinstance(layer, nn.Linear) and layer.weight is not embedding.weight:
            nn.init.xavier_uniform_(layer.weight)


def start_as_embedding_(embedding: nn.Embedding, facet: nn.Module, output: nn.Linear) -> None:
    """W a copy of the input embedding, the single facet the top state itself, biases zero: over a pretrained model with
    tied weights a head so starts as the model was. A head calls it last.

    Raises: ValueError when the facet maps to another width.
    """
    with torch.no_grad():
        if isinstance(facet, nn.Linear):
            if facet.in_features != facet.out_features:
                widths = f"{facet.in_features} to {facet.out_features}"
                raise ValueError(
                    f"start: 'embedding' needs layers as wide as the embedding, the projection is {widths}"
                )
            nn.init.eye_(facet.weight)
            nn.init.zeros_(facet.bias)
        output.weight.copy_(embedding.weight)
        if output.bias is not None:
            nn.init.zeros_(output.bias)


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
        logit_map: phi, an element-wise increasing function of at least float32 logits; LOGIT_MAPS has the named ones.
        log_epsilon: with a number, log p(x) becomes log(p(x) + epsilon): what the published codes compute, whose
            "probabilities" sum to 1 + V epsilon. None: exact.
        aux_loss: () tensor added to the training loss only.
    Raises: ValueError when the facets, the prior and the partitions do not agree, or a facet would have no words.
    Source: Yang et al. (2018), arXiv:1711.03953, section 2.3; partitions: Chang and McCallum's multi-facet softmax;
        sigsoftmax: Kanai et al. (2018), arXiv:1805.10829.
    Differs: mixes in log space; the authors' codes take log(p + 1e-8), here `log_epsilon`.
    """

    def __init__(
        self,
        facets_BTFE: Tensor,
        log_prior_BTK: Tensor | None,
        weight_VE: Tensor,
        bias_V: Tensor | None = None,
        *,
        partitions: tuple[int, ...] | None = None,
        logit_map: Callable[[Tensor], Tensor] = LOGIT_MAPS["identity"],
        log_epsilon: float | None = None,
        aux_loss: Tensor | float = 0.0,
    ):
        B, T, F, E = facets_BTFE.shape
        K = 1 if log_prior_BTK is None else log_prior_BTK.shape[-1]
        partitions = (1,) * K if partitions is None else partitions
        if len(partitions) != K or sum(partitions) != F or min(partitions) < 1:
            raise ValueError(f"{F} facets and {K} log-prior weights do not fit partitions {partitions}")
        if max(partitions) > len(weight_VE):
            raise ValueError(f"partitions {partitions} leave a facet without words: there are {len(weight_VE)}")
        self.shape = (B, T)
        self.facets_NFE = facets_BTFE.reshape(B * T, F, E)
        self.log_prior_NK = None if log_prior_BTK is None else log_prior_BTK.reshape(B * T, K)
        self.weight_VE, self.bias_V = weight_VE, bias_V
        self.partitions, self.logit_map, self.log_epsilon, self.aux_loss = partitions, logit_map, log_epsilon, aux_loss

    def part(self, tokens: slice) -> "Mixture":
        """The tokens of that range of 0 .. N, as a batch of one row, without the auxiliary loss."""
        return Mixture(
            self.facets_NFE[None, tokens],
            None if self.log_prior_NK is None else self.log_prior_NK[None, tokens],
            self.weight_VE,
            self.bias_V,
            partitions=self.partitions,
            logit_map=self.logit_map,
            log_epsilon=self.log_epsilon,
        )

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
        """(B, T, V) nats, normalised over V (over log_epsilon, see there)."""
        return kernels.log_probs(self).view(*self.shape, -1)


class BinaryLogLoss(Mixture):
    """A Mixture trained on the element-wise binary log-loss over the one-hot target instead of its likelihood.

    loss = mean over tokens of  -log p(y) - sum_{x != y} log(1 - p(x));    nll, mean_nll, log_probs: the Mixture's

    Builds the whole distribution, N x V floats. p is kept below 1 - 1e-7, so that a word other than the target that
    takes all probability costs 16 nats, not infinity.
    Source: the TensorFlow code of a Chinese note that compares NCE with MoS, at second hand; it prints no numbers. It
        is no likelihood; for the record only.
    """

    MAX_PROBABILITY = 1 - 1e-7

    def training_loss(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() the binary log-loss, averaged as mean_nll is, + aux_loss."""
        logp_BTV = self.log_probs()
        others_BTV = torch.log1p(-logp_BTV.exp().clamp(max=self.MAX_PROBABILITY))
        at = targets_BT[..., None]
        loss_BT = (others_BTV.gather(-1, at) - logp_BTV.gather(-1, at)).squeeze(-1) - others_BTV.sum(-1)
        return weighted_mean(loss_BT, weight_BT) + self.aux_loss


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
        return weighted_mean(self.nll(targets_BT), weight_BT)

    def nll(self, targets_BT: Tensor) -> Tensor:
        """(B, T) nats, exact."""
        return -self.log_probs().gather(-1, targets_BT[..., None]).squeeze(-1)

    def log_probs(self) -> Tensor:
        """(B, T, V) nats, normalised over V."""
        return self.z_BTV.to(torch.promote_types(self.z_BTV.dtype, torch.float32)).log_softmax(-1)
