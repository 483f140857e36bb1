"""Early loss: a softmax of the top layer, and in training one of a layer below, over the same output matrix."""

from functools import partial
from typing import Literal

from torch import Tensor, nn

from harness.distributions import Mixture, WithAuxiliary, facet_map, output_layer, uniform_output_, xavier_uniform_
from harness.fading import LossWeight, Span
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


@HEADS.register("early")
class EarlyLoss(nn.Module):
    """Early loss: a softmax of the top layer whose training loss also has that of a layer below.

    f = h, or U h + a with `projection`;    log p = log_softmax(W f + b);    log q = log_softmax(W (A h^l + c) + b)
    loss = (1 / N) sum_t [ -log p(y_t | t) - lambda log q(y_t | t) ]

    h is the top layer and h^l the layer below it that `layer` names. Evaluation has p only.

    Brief: a loss of a middle layer, too
    Cost: 2 softmaxes
    Shapes: layers h (B, T, D) and h^l (B, T, D_l) -> facets (B, T, E), A (E, D_l), output matrix W (V, E).
    Args:
        layer: the number of the layer, 0 for the lowest of the backbone's; None for the middle one of L, (L - 1) // 2.
        weight: lambda.
        fade: the shares of training at which lambda begins to fall and at which it is 0 (harness.fading.Fade). None: it
            stays. Al-Rfou et al. have [0, l / 2n] for layer l of n.
        projection: apply an affine map D -> E before the output matrix.
        bias: add a bias b for each word.
        tie_weights: use the backbone's input embedding as W.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: an own W is
            Xavier-uniform, and b U(-1/sqrt(E), 1/sqrt(E)).
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
    Raises: ValueError when the layer is not below the top one, weight < 0, fade is not 0 <= start < end <= 1,
        init_range <= 0, init_bias is 'uniform' without init_range or without b, or D differs from E without a
        projection.
    Source: our own definition. Losses of lower layers whose weights fall: Al-Rfou et al. (2018), arXiv:1808.04444,
        section Intermediate Layer Losses; one such loss over the shared output matrix: Chen et al. (2023),
        arXiv:2312.04916 (EE-LLM), without a norm, as here. Neither was read: both are known from descriptions.
    Differs: Al-Rfou et al. have a loss and an output layer for each layer. EE-LLM has weights of 0.1 to 0.5 that stay,
        and no map A.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        layer: int | None = None,
        weight: float = 0.1,
        fade: Span | None = None,
        projection: bool = False,
        bias: bool = True,
        tie_weights: bool = False,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
    ):
        super().__init__()
        top = len(dims.layer_dims) - 1
        self.layer = top // 2 if layer is None else layer
        if not 0 <= self.layer < top:
            raise ValueError(f"layer must be below the top one, which is {top} of this backbone, got {self.layer}")
        self.share = LossWeight(weight, fade)
        self.facet = facet_map(dims, projection=projection)
        self.early = nn.Linear(dims.layer_dims[self.layer], dims.d_embed)
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights)
        xavier_uniform_(self.facet, self.early)
        uniform_output_(self.output, init_range, init_bias)

    @classmethod
    def label(cls, p) -> str:
        name = "early loss" + ("" if p.layer is None else f" of layer {p.layer}")
        return ("affine " if p.projection else "") + name + (", fading" if p.fade else "")

    def early_loss(self, h_BTD: Tensor, targets_BT: Tensor, weight_BT: Tensor | None) -> Tensor:
        """() the mean of -log q(y_t | t)."""
        facet_BTE = self.early(h_BTD)
        early = Mixture(facet_BTE[:, :, None], None, self.output.weight, self.output.bias)
        return early.mean_nll(targets_BT, weight_BT)

    def forward(self, hidden: Hidden) -> WithAuxiliary:
        """Map (B, T, D) top states to the distribution of the next word."""
        auxiliary = partial(self.early_loss, hidden.layers[self.layer])
        return WithAuxiliary(self.facet(hidden.layers[-1]), self.output, self.share(), auxiliary)
