"""Generalised SigSoftmax (GSS; Parthiban et al., 2021)."""

from typing import Literal

from torch import nn

from harness.distributions import Bend, Mixture, facet_map, output_layer, uniform_output_, xavier_uniform_
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


@HEADS.register("gss")
class GeneralisedSigSoftmax(nn.Module):
    """Generalised SigSoftmax (GSS): a softmax over mapped logits, with slope k far below c and slope 1 far above.

    f = h, or U h + a with `projection`;    z = W f + b
    log p = log_softmax(phi(z)),    phi(z) = k (z - c) + c - (k - 1) softplus(z - c)

    k = 1 is softmax, (c, k) = (0, 2) is SigSoftmax.
    Brief: Generalised SigSoftmax, two slopes
    Cost: 1 softmax
    Shapes: top layer h (B, T, D) -> facet f (B, T, 1, E), output matrix W (V, E). c and k are constants, not learned.
    Args:
        c: the logit at which the slope changes; the authors use -1.5 on both corpora.
        k: the slope far below c; the authors use 2.5 on PTB and 3 on WikiText-2.
        projection: apply an affine map D -> E before the output matrix.
        bias: add a bias b for each word.
        tie_weights: use the backbone's input embedding as W.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: an own W is
            Xavier-uniform, and b U(-1/sqrt(E), 1/sqrt(E)).
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
    Raises: ValueError when init_range <= 0, init_bias is 'uniform' without init_range or without b, k <= 0 (phi must
        increase), or when D differs from E without a projection.
    Source: Parthiban et al. (2021), equations 3 to 5; quettabit/awd-lstm-lmkit.
    Differs: only the initialisation, which is that of `softmax`.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        c: float = -1.5,
        k: float = 2.5,
        projection: bool = False,
        bias: bool = True,
        tie_weights: bool = False,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
    ):
        super().__init__()
        if k <= 0:
            raise ValueError(f"k must be more than 0, got {k}")
        self.phi = Bend(c=c, k=k)
        self.facet = facet_map(dims, projection=projection)
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights)
        xavier_uniform_(self.facet)
        uniform_output_(self.output, init_range, init_bias)

    @classmethod
    def label(cls, p) -> str:
        return "GSS"

    def forward(self, hidden: Hidden) -> Mixture:
        """Map (B, T, D) top states to a Mixture of one component with the logit map phi."""
        facet_BTE = self.facet(hidden.layers[-1])
        return Mixture(facet_BTE[:, :, None], None, self.output.weight, self.output.bias, logit_map=self.phi)
