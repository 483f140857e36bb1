"""Softmax: the plain output layer."""

from typing import Literal

from torch import nn

from harness.distributions import (
    BinaryLogLoss,
    Compat,
    Mixture,
    facet_map,
    log_epsilon,
    output_layer,
    start_as_embedding_,
    uniform_output_,
    xavier_uniform_,
)
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


@HEADS.register("softmax")
class Softmax(nn.Module):
    """Softmax: the top hidden state, or an affine map of it, is multiplied by the output matrix.

    f = h, or U h + a with `projection`;    log p = log_softmax(W f + b)

    Shapes: top layer h (B, T, D) -> facet f (B, T, 1, E), output matrix W (V, E).
    Args:
        projection: apply an affine map D -> E before the output matrix (the multi-facet poster's "Softmax" row).
        bias: add a bias b for each word.
        tie_weights: use the backbone's input embedding as W.
        loss: the training loss: 'nll', or 'binary', a binary cross-entropy of every word (BinaryLogLoss).
        start: the initialisation. 'embedding': W is a copy of the input embedding, U the identity, and biases are zero,
            so that a pretrained model with tied weights starts unchanged; 'xavier': see Differs.
        compat: {log_epsilon: 1e-8} computes log(p + 1e-8), as the code of the multi-facet poster does in every row.
            None for log p.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: as `start` says.
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
    Raises: ValueError when D differs from E without a projection or with start 'embedding', start 'embedding' has an
        init_range, init_range <= 0, or init_bias is 'uniform' without init_range or without b.
    Source: the usual log-linear output layer; the baseline of Benka et al. (2021).
    Differs: W is Xavier-uniform unless it is tied, as in the code of Benka et al.; biases have torch's Linear default.
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
        compat: Compat | None = None,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
    ):
        super().__init__()
        self.log_epsilon = log_epsilon(compat)
        self.distribution = {"nll": Mixture, "binary": BinaryLogLoss}[loss]
        self.facet = facet_map(dims, projection=projection)
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights)
        if start == "embedding":
            start_as_embedding_(embedding, self.facet, self.output, init_range)
        else:
            xavier_uniform_(self.facet)
        uniform_output_(self.output, init_range, init_bias)

    def forward(self, hidden: Hidden) -> Mixture:
        """Map (B, T, D) top states to a Mixture of one component."""
        facet_BTE = self.facet(hidden.layers[-1])
        weight, bias = self.output.weight, self.output.bias
        return self.distribution(facet_BTE[:, :, None], None, weight, bias, log_epsilon=self.log_epsilon)
