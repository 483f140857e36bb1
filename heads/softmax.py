"""Softmax: the plain output layer."""

from torch import nn

from harness.distributions import Mixture
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


@HEADS.register("softmax")
class Softmax(nn.Module):
    """Softmax: one facet, the top hidden state itself or an affine map of it, scored against the output matrix.

    f = h, or U h + a with `projection`;    log p = log_softmax(W f + b)

    Shapes: top layer h (B, T, D) -> facet f (B, T, 1, E), output matrix W (V, E).
    Args:
        projection: put an affine map D -> E before the output matrix (the multi-facet poster's "Softmax" row).
        bias: give the output a bias b per word.
        tie_weights: use the backbone's input embedding as W.
    Raises: ValueError when D differs from E and there is no projection.
    Source: the log-linear output layer every paper starts from; seed paper's baseline: Benka et al. (2021).
    Differs: W is Xavier-uniform as in Benka et al.'s code unless tied; the bias keeps torch's Linear default.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        projection: bool = False,
        bias: bool = True,
        tie_weights: bool = False,
    ):
        super().__init__()
        d_top = dims.layer_dims[-1]
        if d_top != dims.d_embed and not projection:
            raise ValueError(
                f"projection: the top layer is {d_top} wide and the output embedding {dims.d_embed}; set it to true"
            )
        self.facet = nn.Linear(d_top, dims.d_embed) if projection else nn.Identity()
        self.output = nn.Linear(dims.d_embed, dims.vocab_size, bias=bias)
        if projection:
            nn.init.xavier_uniform_(self.facet.weight)
        if tie_weights:
            self.output.weight = embedding.weight
        else:
            nn.init.xavier_uniform_(self.output.weight)

    def forward(self, hidden: Hidden) -> Mixture:
        """(B, T, D) top states -> a Mixture of one component."""
        return Mixture(self.facet(hidden.layers[-1]).unsqueeze(2), None, self.output.weight, self.output.bias)
