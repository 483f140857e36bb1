"""The head of nGPT (Loshchilov et al., 2024): cosines of the state and the words, with learned scales."""

import math
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from harness.distributions import Mixture, facet_map, output_layer, uniform_output_, xavier_uniform_
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


@HEADS.register("ngpt")
class CosineSoftmax(nn.Module):
    """Head of nGPT: the logit of a word is a cosine, times a scale that is learned.

    f = h, or U h + a with `projection`;    z_x = s_x cos(f, w_x) + b_x;    log p = log_softmax(z)
    s = start sqrt(E) r, r learned from 1 / sqrt(E) on

    Brief: cosines times a learned scale
    Cost: 1 softmax
    Shapes: top layer h (B, T, D) -> facet (B, T, 1, E), output matrix W (V, E), r (V,) or (1,).
    Args:
        scale: 'words': each word has its own s_x; 'one': all words share one.
        scale_start: s at the start.
        projection: apply an affine map D -> E before the output matrix.
        bias: add a bias b for each word.
        tie_weights: use the backbone's input embedding as W.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: an own W is
            Xavier-uniform, and b U(-1/sqrt(E), 1/sqrt(E)).
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
    Raises: ValueError when scale_start <= 0, init_range <= 0, init_bias is 'uniform' without init_range or without b,
        or D differs from E without a projection.
    Source: Loshchilov et al. (2024), arXiv:2410.01131, which was not read; NVIDIA/ngpt, model.py and train.py.
    Differs: the authors divide the rows of W by their norms after each step. Here the rows keep their norms, and the
        logits are computed with the divided rows: the same functions, but not the same steps. The state is divided by
        its norm, as in nGPT, where all states are; this head takes those of any backbone.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        scale: Literal["words", "one"] = "words",
        scale_start: float = 1.0,
        projection: bool = False,
        bias: bool = False,
        tie_weights: bool = False,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
    ):
        super().__init__()
        if not 0 < scale_start < math.inf:
            raise ValueError(f"scale_start must be a finite number above 0, got {scale_start}")
        self.facet = facet_map(dims, projection=projection)
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights)
        self.factor = scale_start * math.sqrt(dims.d_embed)
        num_scales = dims.vocab_size if scale == "words" else 1
        self.scale = nn.Parameter(torch.full((num_scales,), 1 / math.sqrt(dims.d_embed)))
        xavier_uniform_(self.facet)
        uniform_output_(self.output, init_range, init_bias)

    @classmethod
    def label(cls, p) -> str:
        return "affine nGPT" if p.projection else "nGPT"

    def forward(self, hidden: Hidden) -> Mixture:
        """Map (B, T, D) top states to a Mixture of one component: a unit vector, and a matrix of scaled unit rows."""
        facet_BTE = functional.normalize(self.facet(hidden.layers[-1]), dim=-1)
        weight_VE = self.factor * self.scale[:, None] * functional.normalize(self.output.weight)
        return Mixture(facet_BTE[:, :, None], None, weight_VE, self.output.bias)
