"""SigSoftmax (Kanai et al., 2018)."""

from typing import Literal

from torch import nn

from harness.distributions import (
    LOGIT_MAPS,
    Compat,
    Mixture,
    Start,
    facet_map,
    log_epsilon,
    output_layer,
    softcap_of,
    start_as_,
    uniform_output_,
)
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


@HEADS.register("sigsoftmax")
class SigSoftmax(nn.Module):
    """SigSoftmax: a softmax whose exponentials are multiplied by the sigmoid of the logits. It adds no parameters.

    f = h, or U h + a with `projection`;    z = W f + b;    p(x) proportional to exp(z_x) sigmoid(z_x)
    log p = log_softmax(z + logsigmoid(z))

    Brief: softmax times the sigmoid of logits
    Cost: 1 softmax
    Shapes: top layer h (B, T, D) -> facet f (B, T, 1, E), output matrix W (V, E).
    It is not shift-invariant: adding a constant to all logits changes the distribution, so the output bias matters.
    Args:
        projection: apply an affine map D -> E before the output matrix (the multi-facet poster's "SigSoftmax" row).
        bias: add a bias b for each word.
        tie_weights: use the backbone's input embedding as W.
        start: the initialisation. 'xavier': matrices are Xavier-uniform; 'identity': the same W; 'embedding': W is a
            copy of the input embedding; 'pretrained': W and b are those of the backbone's own output layer. In the last
            three U is the identity. Because of the sigmoid none computes what a pretrained softmax computes.
        compat: {log_epsilon: 1e-8} computes log(p + 1e-8), as the code of the multi-facet poster does in every row.
            None for log p.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: as `start` says.
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
    Raises: ValueError when D differs from E without a projection or with another start than 'xavier', start 'identity'
        has no projection, start 'embedding' or 'pretrained' has an init_range, init_range <= 0, init_bias is 'uniform'
        without init_range or without b, or the pretrained output layer has a soft cap.
    Source: Kanai et al. (2018), arXiv:1805.10829, section 3.3; Parthiban et al. (2021), equation 1.
    Differs: evaluated in log space. The code of the multi-facet softmax multiplies exp(z - max z) by 1e-20 +
        sigmoid(z), which has an error of 0.12 in probability at logits near -60 in float32. For the mixture (MoSS) use
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
        start: Start = "xavier",
        compat: Compat | None = None,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
    ):
        super().__init__()
        if softcap_of(start, dims, None) is not None:
            raise ValueError("start: the pretrained output layer has a soft cap, which this head does not have")
        self.log_epsilon = log_epsilon(compat)
        self.facet = facet_map(dims, projection=projection)
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights)
        start_as_(start, dims, embedding, self.facet, self.output, init_range)
        uniform_output_(self.output, init_range, init_bias)

    @classmethod
    def label(cls, p) -> str:
        return ("affine " if p.projection else "") + "sigsoftmax" + (", log(p + epsilon)" if p.compat else "")

    def forward(self, hidden: Hidden) -> Mixture:
        """Map (B, T, D) top states to a Mixture of one component with the logit map of SigSoftmax."""
        facet_BTE = self.facet(hidden.layers[-1])
        return Mixture(
            facet_BTE[:, :, None],
            None,
            self.output.weight,
            self.output.bias,
            logit_map=LOGIT_MAPS["sigsoftmax"],
            log_epsilon=self.log_epsilon,
        )
