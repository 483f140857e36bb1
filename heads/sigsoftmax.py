"""SigSoftmax (Kanai et al., 2018)."""

from typing import Literal

from torch import nn

from harness.distributions import LOGIT_MAPS, Mixture, facet_map, output_layer, start_as_embedding_, xavier_uniform_
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


@HEADS.register("sigsoftmax")
class SigSoftmax(nn.Module):
    """SigSoftmax: a softmax whose exponentials are multiplied by the sigmoid of the logits. It has no parameters more.

    f = h, or U h + a with `projection`;    z = W f + b;    p(x) proportional to exp(z_x) sigmoid(z_x)
    log p = log_softmax(z + logsigmoid(z))

    Shapes: top layer h (B, T, D) -> facet f (B, T, 1, E), output matrix W (V, E).
    Not shift-invariant: the level of the logits matters, and with it the output bias.
    Args:
        projection: put an affine map D -> E before the output matrix (the multi-facet poster's "SigSoftmax" row).
        bias: give the output a bias b per word.
        tie_weights: use the backbone's input embedding as W.
        start: 'xavier': matrices Xavier-uniform; 'embedding': W starts as a copy of the input embedding, U as the
            identity, biases at zero. The sigmoid makes even that another model than a pretrained softmax.
    Raises: ValueError when D differs from E and there is no projection, or it is to start as the identity.
    Source: Kanai et al. (2018), arXiv:1805.10829, section 3.3; Parthiban et al. (2021), equation 1.
    Differs: evaluated in log space. The multi-facet authors' code multiplies exp(z - max z) by 1e-20 + sigmoid(z),
        which is wrong by 0.12 in probability at logits near -60 in float32. The mixture (MoSS):
        `mos` with this logit_map.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        projection: bool = False,
        bias: bool = True,
        tie_weights: bool = False,
        start: Literal["xavier", "embedding"] = "xavier",
    ):
        super().__init__()
        self.facet = facet_map(dims, projection=projection)
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights)
        if start == "embedding":
            start_as_embedding_(embedding, self.facet, self.output)
        else:
            xavier_uniform_(embedding, self.facet, self.output)

    def forward(self, hidden: Hidden) -> Mixture:
        """(B, T, D) top states -> a Mixture of one component under the sigsoftmax map."""
        facet_BTE = self.facet(hidden.layers[-1])
        phi = LOGIT_MAPS["sigsoftmax"]
        return Mixture(facet_BTE[:, :, None], None, self.output.weight, self.output.bias, logit_map=phi)
