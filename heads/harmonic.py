"""The head of the harmonic loss (Baek et al., 2025): a word is as probable as its vector is near to the state."""

import math

import torch
from torch import nn

from harness.distributions import HarmonicMap, Mixture, facet_map, output_layer, uniform_output_, xavier_uniform_
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS

LEAST_NORM = 1e-30  # the square of a state's norm is at least this, so that it can be divided by


@HEADS.register("harmonic")
class HarmonicSoftmax(nn.Module):
    """Harmonic head: probabilities by the inverse distances between the state and the vectors of the words.

    f = h, or U h + a with `projection`;    d_x = || f - w_x ||;    p(x) = d_x^-n / sum_v d_v^-n
    log p = log_softmax(phi(z)),    phi(z) = -(n / 2) log(1 - z),    z_x = (2 f . w_x - w_x . w_x) / (f . f)

    With z all of it is one product of [2 f / (f . f), 1 / (f . f)] and [w_x, -w_x . w_x], so that logits need not be
    stored: 1 - z_x is d_x^2 / (f . f), and p does not change when all distances are divided by one number.
    Brief: probabilities by inverse distances
    Cost: 1 softmax
    Shapes: top layer h (B, T, D) -> facet (B, T, 1, E + 1), output matrix W (V, E), evaluated as (V, E + 1). No bias.
    Args:
        exponent: n, the harmonic exponent; None for sqrt(E).
        projection: apply an affine map D -> E before the output matrix.
        tie_weights: use the backbone's input embedding as W.
        init_range: r: W starts as U(-r, r), also if it is tied. None: an own W is Xavier-uniform.
    Raises: ValueError when exponent <= 0, init_range <= 0, or D differs from E without a projection.
    Source: Baek et al. (2025), arXiv:2502.01628; KindXiaoming/grow-crystals, README.md and GPT2/model_l2loss.py, which
        suggests 1, sqrt(E) and E for the power of 1 / d^2. The paper itself was not read.
    Differs: the authors' GPT-2 ties W and starts it normal, has the power E of d^2, and adds 0.01 / V to each
        probability. Squares of distances below 2^-23 of f . f count as that (HarmonicMap). With products in bfloat16 an
        error of d^2 is multiplied by n / 2. The z-loss takes distances relative to the norm of f.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        exponent: float | None = None,
        projection: bool = False,
        tie_weights: bool = False,
        init_range: float | None = None,
    ):
        super().__init__()
        if exponent is not None and not 0 < exponent < math.inf:
            raise ValueError(f"exponent must be a finite number above 0, got {exponent}")
        self.phi = HarmonicMap(math.sqrt(dims.d_embed) if exponent is None else exponent)
        self.facet = facet_map(dims, projection=projection)
        self.output = output_layer(dims, embedding, bias=False, tie_weights=tie_weights)
        xavier_uniform_(self.facet)
        uniform_output_(self.output, init_range)

    @classmethod
    def label(cls, p) -> str:
        return "harmonic" + (f", n {p.exponent:g}" if p.exponent else "")

    def forward(self, hidden: Hidden) -> Mixture:
        """Map (B, T, D) top states to a Mixture of one component with the logit map phi."""
        f_BTE, w_VE = self.facet(hidden.layers[-1]), self.output.weight
        scale_BT1 = 1 / f_BTE.square().sum(-1, keepdim=True).clamp(min=LEAST_NORM)
        facet_BTC = torch.cat([2 * f_BTE * scale_BT1, scale_BT1], dim=-1)
        weight_VC = torch.cat([w_VE, -w_VE.square().sum(1, keepdim=True)], dim=1)
        return Mixture(facet_BTC[:, :, None], None, weight_VC, logit_map=self.phi)
