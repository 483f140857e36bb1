"""The distributions that heads return, and the layers that most heads consist of.

Most heads of the papers return a `Mixture`. A head that is no mixture of softmaxes over one output matrix returns
`Logits`, or a distribution of its own.

Shape letters: see harness/protocols.py.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from harness import kernels
from harness.protocols import HeadDims
from harness.random_streams import substream

__all__ = [
    "LOGIT_MAPS",
    "Bend",
    "BinaryLogLoss",
    "Cap",
    "Compat",
    "HarmonicMap",
    "Logits",
    "Mixture",
    "SigmoidCap",
    "SoftCap",
    "Start",
    "Statistics",
    "WithAuxiliary",
    "copy_output_",
    "facet_map",
    "linear",
    "log_epsilon",
    "log_prior",
    "logit_map_of",
    "output_layer",
    "output_width",
    "softcap_of",
    "start_as_",
    "statistics_of",
    "uniform_output_",
    "weighted_mean",
    "xavier_uniform_",
]
LOGIT_MAPS, Bend, HarmonicMap, SigmoidCap = kernels.LOGIT_MAPS, kernels.Bend, kernels.HarmonicMap, kernels.SigmoidCap
SoftCap, Statistics = kernels.SoftCap, kernels.Statistics
weighted_mean, statistics_of = kernels.weighted_mean, kernels.statistics_of
# A product x W^T + b in the precision that the suite sets. For heads that multiply by the output matrix in their own
# code.
linear = kernels.linear
# Options that reproduce the arithmetic of published code. The default of a head is None: no such option.
Compat = dict[Literal["log_epsilon"], float]
Start = Literal["xavier", "identity", "embedding", "pretrained"]  # of a head's output layer (start_as_)
# The option `softcap` of a head: c of SoftCap, or a, b and c of SigmoidCap.
Cap = float | dict[Literal["a", "b", "c"], float]


def log_prior(scores_BTK: Tensor) -> Tensor:
    """Map scores (B, T, K) to log mixture weights (B, T, K), normalised over K in at least float32."""
    return scores_BTK.to(torch.promote_types(scores_BTK.dtype, torch.float32)).log_softmax(-1)


def log_epsilon(compat: Compat | None) -> float | None:
    """Return the epsilon of a head's `compat`, or None. Raises ValueError when it is missing or not between 0 and 1."""
    if compat is None:
        return None
    epsilon = compat.get("log_epsilon")
    if epsilon is None or not 0 < epsilon < 1:
        raise ValueError(f"compat: expected a log_epsilon between 0 and 1, got {compat}")
    return epsilon


def logit_map_of(softcap: Cap | None, logit_map: str = "identity") -> Callable[[Tensor], Tensor]:
    """Return the logit map of a head's options: that with the name, SoftCap(c), or SigmoidCap(a, b, c).

    Raises: ValueError when a limit or width of softcap is not a finite number above 0, one of a, b and c is missing, or
        it is given beside another map than the identity.
    """
    if softcap is None:
        return LOGIT_MAPS[logit_map]
    if logit_map != "identity":
        raise ValueError(f"softcap: the logit map is {logit_map} already; give one of the two")
    if not isinstance(softcap, dict):
        return SoftCap(softcap)
    if softcap.keys() != {"a", "b", "c"}:
        raise ValueError(f"softcap: expected a number, or a, b and c, got {softcap}")
    return SigmoidCap(**softcap)


class Mixture(kernels.Tensors):
    """A prior-weighted sum of K softmaxes over one output matrix. The methods evaluate it.

    Component k has P_k facets (P_k = 1 unless `partitions` is given), and F = sum_k P_k. Then

        z_k[x]    = f_{k, x mod P_k} . w_x + b_x            each word x is scored by one facet of the component
        log p_k   = log_softmax(phi(z_k))                   phi: the logit map
        log p(x)  = logsumexp_k [ log pi_k + log p_k(x) ]

    Shapes: facets (B, T, F, E); log_prior (B, T, K), normalised over K, or None for K = 1; weight (V, E); bias (V,).
    Args:
        facets_BTFE: the vectors that are multiplied by the output matrix, in the order of the components. The head has
            projected them to width E.
        log_prior_BTK: log mixture weights; None when there is one component.
        weight_VE: the output matrix shared by all components.
        bias_V: the output bias shared by all components, or None.
        partitions: P_k for each component; word x belongs to facet x mod P_k of component k. Default: all 1.
        logit_map: phi, an increasing function that is applied to each logit, in at least float32. LOGIT_MAPS has those
            with names.
        log_epsilon: if it is a number, log p(x) becomes log(p(x) + epsilon). Published code computes this; such
            "probabilities" sum to 1 + V epsilon. None: exact log-probabilities.
        aux_loss: () a tensor that is added to the training loss only.
    Attributes:
        z_loss: beta; the training loss has beta mean_k (log Z_k)^2 in addition, a mean over tokens as mean_nll. Z_k =
            sum_x exp(phi(z_k[x])) is the normaliser of component k. The mean over components has no gradient for the
            prior, so the term does not move weight from one component to another. Training sets it (`train.z_loss`);
            de Brebisson and Vincent (2016), arXiv:1604.08859; Chowdhery et al. (2022), arXiv:2204.02311, section 5.
    Raises: ValueError when a tensor has another shape than this, when the numbers of facets, prior weights and
        partitions do not agree, or when there are more partitions than words.
    Source: Yang et al. (2018), arXiv:1711.03953, section 2.3; partitions: Chang and McCallum's multi-facet softmax;
        sigsoftmax: Kanai et al. (2018), arXiv:1805.10829.
    Differs: the mixture is computed in log space. The authors' code computes log(p + 1e-8); `log_epsilon` gives that.
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
        _require_shapes(facets_BTFE, log_prior_BTK, weight_VE, bias_V)
        B, T, F, E = facets_BTFE.shape
        K = 1 if log_prior_BTK is None else log_prior_BTK.shape[-1]
        partitions = (1,) * K if partitions is None else partitions
        if len(partitions) != K or sum(partitions) != F or min(partitions) < 1:
            raise ValueError(f"{F} facets and {K} log-prior weights do not fit partitions {partitions}")
        if max(partitions) > len(weight_VE):
            raise ValueError(f"partitions {partitions} are more than the {len(weight_VE)} words")
        super().__init__(
            facets_BTFE.reshape(B * T, F, E),
            None if log_prior_BTK is None else log_prior_BTK.reshape(B * T, K),
            weight_VE,
            bias_V,
            partitions,
            logit_map,
            log_epsilon,
        )
        self.shape, self.aux_loss = (B, T), aux_loss
        self.z_loss = 0.0

    def part(self, tokens: slice) -> "Mixture":
        """Return the Mixture of a range of the N = B T tokens, as a batch of one row, without the auxiliary loss."""
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
        """() mean_nll + z-loss + aux_loss."""
        weight_N = None if weight_BT is None else weight_BT.reshape(-1)
        return kernels.mean_nll(self, targets_BT.reshape(-1), weight_N, z_loss=self.z_loss) + self.aux_loss

    def z_term(self, weight_BT: Tensor | None = None) -> Tensor | float:
        """() the z-loss alone, for a training loss that is no mean_nll; 0 without it."""
        if self.z_loss == 0:
            return 0.0
        squares_N = kernels.log_normaliser(self).square().mean(1)
        return self.z_loss * weighted_mean(squares_N.view(self.shape), weight_BT)

    def mean_nll(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() nats: sum(weight * nll) / sum(weight); the plain mean without weights."""
        weight_N = None if weight_BT is None else weight_BT.reshape(-1)
        return kernels.mean_nll(self, targets_BT.reshape(-1), weight_N)

    def nll(self, targets_BT: Tensor) -> Tensor:
        """(B, T) nats, exact."""
        return kernels.nll(self, targets_BT.reshape(-1)).view(self.shape)

    def log_probs(self) -> Tensor:
        """(B, T, V) log-probabilities in nats, normalised over V (but see `log_epsilon`)."""
        return kernels.log_probs(self).view(*self.shape, -1)

    def statistics(self) -> Statistics:
        """Log-normalisers, entropy and the most probable word, without gradients, at the cost of `nll`. They are of the
        distribution without `log_epsilon`.
        """
        return Statistics(*(values.unflatten(0, self.shape) for values in kernels.statistics(self)))


class BinaryLogLoss(Mixture):
    """A Mixture whose training loss is the binary cross-entropy of every word against the one-hot target.

    loss = mean over tokens of  -log p(y) - sum_{x != y} log(1 - p(x))

    nll, mean_nll and log_probs are those of the Mixture.
    Computes the whole distribution: N x V floats of memory. p is limited to 1 - 1e-7, so a wrong word with probability
    1 costs 16 nats and not infinity.
    Source: the TensorFlow code of a Chinese note that compares NCE with MoS, known from second-hand descriptions; the
        note prints no numbers. The loss is not a likelihood. It is here to make that comparison reproducible.
    """

    MAX_PROBABILITY = 1 - 1e-7

    def training_loss(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() the mean binary cross-entropy, averaged in the same way as mean_nll, plus z-loss and aux_loss."""
        logp_BTV = self.log_probs()
        others_BTV = torch.log1p(-logp_BTV.exp().clamp(max=self.MAX_PROBABILITY))
        at = targets_BT[..., None]
        loss_BT = (others_BTV.gather(-1, at) - logp_BTV.gather(-1, at)).squeeze(-1) - others_BTV.sum(-1)
        return weighted_mean(loss_BT, weight_BT) + self.z_term(weight_BT) + self.aux_loss


class WithAuxiliary(Mixture):
    """A softmax whose training loss has one more term.

    loss = mean_nll + z-loss + lambda auxiliary(targets, weight)

    nll, mean_nll and log_probs are those of the softmax.
    Shapes: facet (B, T, E); output: a layer with weight (V, E) and bias (V,) or None.
    Args:
        share: lambda, a number or a () tensor; None leaves the term out.
        auxiliary: maps targets (B, T) and token weights (B, T) or None to a () loss. It is called in training only.
    """

    def __init__(
        self,
        facet_BTE: Tensor,
        output: nn.Linear,
        share: Tensor | float | None,
        auxiliary: Callable[[Tensor, Tensor | None], Tensor],
    ):
        super().__init__(facet_BTE[:, :, None], None, output.weight, output.bias)
        self.share, self.auxiliary = share, auxiliary

    def training_loss(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() the loss above."""
        loss = super().training_loss(targets_BT, weight_BT)
        if self.share is None:
            return loss
        return loss + (self.share * self.auxiliary(targets_BT, weight_BT)).to(loss.dtype)


class Logits:
    """A distribution that is given by its logits: log p = log_softmax(z). For heads that are not a Mixture.

    Shapes: z (B, T, V). The softmax is computed in at least float32, also for logits of a narrower type.
    Attributes:
        z_loss: as that of Mixture, with one component.
    Raises: ValueError when z has another number of dimensions.
    """

    def __init__(self, z_BTV: Tensor, *, aux_loss: Tensor | float = 0.0):
        if z_BTV.dim() != 3:
            raise ValueError(f"logits must be (B, T, V), got {tuple(z_BTV.shape)}")
        self.z_BTV, self.aux_loss, self.z_loss = z_BTV, aux_loss, 0.0

    def training_loss(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() mean_nll + z-loss + aux_loss."""
        loss = self.mean_nll(targets_BT, weight_BT) + self.aux_loss
        if self.z_loss:
            loss = loss + self.z_loss * weighted_mean(self._wide().logsumexp(-1).square(), weight_BT)
        return loss

    def mean_nll(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() nats: sum(weight * nll) / sum(weight); the plain mean without weights."""
        return weighted_mean(self.nll(targets_BT), weight_BT)

    def nll(self, targets_BT: Tensor) -> Tensor:
        """(B, T) nats, exact."""
        return -self.log_probs().gather(-1, targets_BT[..., None]).squeeze(-1)

    def log_probs(self) -> Tensor:
        """(B, T, V) nats, normalised over V."""
        return self._wide().log_softmax(-1)

    @torch.no_grad()
    def statistics(self) -> Statistics:
        """Log-normaliser, entropy and the most probable word, without gradients."""
        return statistics_of(self.log_probs(), self._wide().logsumexp(-1, keepdim=True))

    def _wide(self) -> Tensor:
        """(B, T, V) the logits in at least float32."""
        return self.z_BTV.to(torch.promote_types(self.z_BTV.dtype, torch.float32))


def _require_shapes(
    facets_BTFE: Tensor, log_prior_BTK: Tensor | None, weight_VE: Tensor, bias_V: Tensor | None
) -> None:
    """Raise ValueError with the expected shape of the first argument of a Mixture that has another one."""
    facets, weight = tuple(facets_BTFE.shape), tuple(weight_VE.shape)
    if len(facets) != 4:
        hint = "; for one facet add .unsqueeze(2)" if len(facets) == 3 else ""
        raise ValueError(f"facets must be (B, T, K, E), got {facets}{hint}")
    if log_prior_BTK is not None and (log_prior_BTK.dim() != 3 or tuple(log_prior_BTK.shape[:2]) != facets[:2]):
        found = tuple(log_prior_BTK.shape)
        raise ValueError(f"the log prior must be (B, T, K) with B, T = {facets[:2]} as the facets have, got {found}")
    if len(weight) != 2 or weight[1] != facets[3]:
        raise ValueError(f"the output matrix must be (V, E) with E = {facets[3]} as the facets have, got {weight}")
    if bias_V is not None and tuple(bias_V.shape) != weight[:1]:
        raise ValueError(
            f"the output bias must be (V,) = {weight[:1]} as the output matrix has, got {tuple(bias_V.shape)}"
        )


def facet_map(dims: HeadDims, *, projection: bool, width: int | None = None) -> nn.Module:
    """Return the layer that makes the one facet of a single softmax: f = U h + a with `projection`, else
    f = h; U has the shape (E, D).

    Args:
        width: E; None for the width of the backbone's embedding.
    Raises: ValueError when D differs from E and there is no projection.
    """
    d_top, width = dims.layer_dims[-1], dims.d_embed if width is None else width
    if d_top != width and not projection:
        raise ValueError(
            f"projection: the top layer has width {d_top}, the output embedding {width}; set projection to true"
        )
    return nn.Linear(d_top, width) if projection else nn.Identity()


def output_width(dims: HeadDims, d_embed: int | None, *, tie_weights: bool) -> int:
    """Return E, the width of a head's output embedding: `d_embed`, or if it is None the width of the backbone's.

    Raises: ValueError when d_embed < 1, or weights are tied and the width differs from the embedding's.
    """
    width = dims.d_embed if d_embed is None else d_embed
    if width < 1:
        raise ValueError(f"d_embed must be at least 1, got {width}")
    if tie_weights and width != dims.d_embed:
        raise ValueError(f"tie_weights: the embedding has width {dims.d_embed}, d_embed is {width}; they must be equal")
    return width


def output_layer(
    dims: HeadDims, embedding: nn.Embedding, *, bias: bool, tie_weights: bool, width: int | None = None
) -> nn.Linear:
    """Return the output layer: matrix W (V, E) and bias b (V,). With `tie_weights` W is the backbone's input embedding.

    An own W is Xavier-uniform, and b has the default of torch's Linear, U(-1/sqrt(E), 1/sqrt(E)). Both are drawn from a
    stream of their own, 'output': under one seed all heads start with the same W and b if V and E are the same. The
    other draws of a head do not depend on the output layer.

    Args:
        width: E; None for the width of the backbone's embedding.
    """
    with substream("output"):
        output = nn.Linear(dims.d_embed if width is None else width, dims.vocab_size, bias=bias)
    with substream("output"):  # from its start, so that W is the same with and without b
        nn.init.xavier_uniform_(output.weight)
    if tie_weights:
        output.weight = embedding.weight
    return output


def xavier_uniform_(*layers: nn.Module | None) -> None:
    """Initialise the matrices of linear layers, in the given order, by torch's Xavier-uniform rule.

    For the layers of a head except its output layer, which `output_layer` initialises. Modules without a matrix are
    left out, as is None. Biases keep the default of torch's Linear. A head calls this as the last step of its
    constructor, because the order of random draws decides the initial weights.
    """
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)


def uniform_output_(output: nn.Linear, init_range: float | None, init_bias: str = "zero") -> None:
    """Initialise an output layer by the options of a head: W is U(-r, r), r = `init_range`; without it nothing is done.

    If W is tied, this sets the embedding. The draws are from the stream of `output_layer`, so W and b are the same
    under all heads of one seed, V, E and r, tied or not. A head calls this after every other initialisation.

    Args:
        init_bias: 'uniform' for b in U(-r, r); else b is 0.
    Raises: ValueError when init_range <= 0, or b is to be uniform and there is no init_range or no b.
    """
    if init_bias == "uniform" and (init_range is None or output.bias is None):
        raise ValueError("init_bias: 'uniform' needs an init_range, and a head with a bias")
    if init_range is None:
        return
    if init_range <= 0:
        raise ValueError(f"init_range must be more than 0, got {init_range}")
    with substream("output"):
        nn.init.uniform_(output.weight, -init_range, init_range)
        output.weight.changed_by = "init_range"  # see build_head in harness/model.py
        if init_bias == "uniform":
            nn.init.uniform_(output.bias, -init_range, init_range)
        elif output.bias is not None:
            nn.init.zeros_(output.bias)


def softcap_of(start: Start, dims: HeadDims, softcap: Cap | None) -> Cap | None:
    """Return the soft cap of a head's logits: its option, or with start 'pretrained' that of the pretrained layer.

    Raises: ValueError when both are given and differ.
    """
    pretrained = None if start != "pretrained" or dims.pretrained is None else dims.pretrained.softcap
    if None not in (softcap, pretrained) and softcap != pretrained:
        raise ValueError(f"softcap: the pretrained output layer has {pretrained:g}; leave it out, got {softcap}")
    return pretrained if softcap is None else softcap


def start_as_(
    start: Start,
    dims: HeadDims,
    embedding: nn.Embedding,
    facet: nn.Module,
    output: nn.Linear,
    init_range: float | None = None,
) -> None:
    """Initialise a head with one facet, or with K facets that are all alike. A head calls this after its other layers
    are initialised.

    'xavier': the facet layer by torch's Xavier-uniform rule; the output layer stays as it is.
    'identity': the output layer stays as it is, too: the head starts as one without a facet layer.
    'embedding': W is a copy of the input embedding, and biases are zero: what a model with tied weights computes.
    'pretrained': W, b and the soft cap are those of the backbone's pretrained output layer: what the model computes.
    In the last three the facet layer is the identity, K times. A bias that only the head has starts at zero in the last
    two.

    Args:
        init_range: the option of the head; it contradicts the last two.
    Raises: ValueError when the facet layer's input and output, or W and what it copies, have different widths, when
        'identity' has no facet layer, when the last two have an init_range, when there is no pretrained output layer,
        or when it has a bias and the head has none.
    """
    if start == "xavier":
        xavier_uniform_(facet)
        return
    if start == "identity":
        if not isinstance(facet, nn.Linear):
            raise ValueError("start: 'identity' is of a map before the output matrix; set projection to true")
        _identity_(facet, output.in_features, start, "output matrix")
        return
    if init_range is not None:
        raise ValueError(f"init_range: start '{start}' gives the output matrix its values; give one of the two")
    if start == "pretrained" and dims.pretrained is None:
        raise ValueError("start: 'pretrained' needs a backbone with pretrained weights and an output layer of its own")
    what = "input embedding" if start == "embedding" else "pretrained output layer"
    weight, bias = embedding.weight, None
    if start == "pretrained":
        weight, bias = dims.pretrained.weight, dims.pretrained.bias
    if output.in_features != weight.shape[1]:
        widths = f"{weight.shape[1]}, the output matrix {output.in_features}"
        raise ValueError(f"start: '{start}' copies the {what}, which has width {widths}")
    if output.weight is embedding.weight and not weight.is_meta and not torch.equal(weight, embedding.weight):
        raise ValueError("tie_weights: the pretrained output matrix is not the input embedding; leave tie_weights out")
    if bias is not None and output.bias is None:
        raise ValueError("bias: the pretrained output layer has one; set bias to true")
    _identity_(facet, output.in_features, start, what)
    with torch.no_grad():
        output.weight.copy_(weight)
        if bias is not None:
            output.bias.copy_(bias)
        elif output.bias is not None:
            nn.init.zeros_(output.bias)


def _identity_(facet: nn.Module, width: int, start: Start, what: str) -> None:
    """Initialise a facet layer as the identity, K times. `what` has the width."""
    if not isinstance(facet, nn.Linear):
        return
    if facet.out_features % facet.in_features or width != facet.in_features:
        widths = f"{facet.in_features} to {facet.out_features}"
        raise ValueError(f"start: '{start}' needs a top layer of the width of the {what}, the projection maps {widths}")
    with torch.no_grad():
        for each in facet.weight.split(facet.in_features):
            nn.init.eye_(each)
        nn.init.zeros_(facet.bias)


def copy_output_(dims: HeadDims, embedding: nn.Embedding, output: nn.Linear) -> None:
    """Set W and b to those of the backbone's pretrained output layer; without one W to a copy of the input embedding.

    Raises: ValueError when that layer has a bias and the head has none.
    """
    bias = None if dims.pretrained is None else dims.pretrained.bias
    if bias is not None and output.bias is None:
        raise ValueError("bias: the pretrained output layer has one; set bias to true")
    with torch.no_grad():
        output.weight.copy_(embedding.weight if dims.pretrained is None else dims.pretrained.weight)
        if bias is not None:
            output.bias.copy_(bias)
