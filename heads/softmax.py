"""Softmax: the plain output layer."""

from typing import Literal

from torch import nn

from harness.distributions import BinaryLogLoss, Mixture, facet_map, output_layer, start_as_embedding_, xavier_uniform_
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
        loss: what training minimises: 'nll', or 'binary', the element-wise binary log-loss (BinaryLogLoss).
        start: 'embedding': W starts as a copy of the input embedding, U as the identity, biases at zero, so that a
            pretrained model with tied weights starts as it was; 'xavier': as below.
    Raises: ValueError when D differs from E and there is no projection, or it is to start as the identity.
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
        loss: Literal["nll", "binary"] = "nll",
        start: Literal["xavier", "embedding"] = "xavier",
    ):
        super().__init__()
        self.distribution = {"nll": Mixture, "binary": BinaryLogLoss}[loss]
        self.facet = facet_map(dims, projection=projection)
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights)
        if start == "embedding":
            start_as_embedding_(embedding, self.facet, self.output)
        else:
            xavier_uniform_(embedding, self.facet, self.output)

    def forward(self, hidden: Hidden) -> Mixture:
        """(B, T, D) top states -> a Mixture of one component."""
        facet_BTE = self.facet(hidden.layers[-1])
        return self.distribution(facet_BTE[:, :, None], None, self.output.weight, self.output.bias)
