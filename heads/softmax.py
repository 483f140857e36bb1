"""Softmax: the plain output layer, also with a matrix of low rank and with capped logits."""

from typing import Literal

from torch import nn

from harness.distributions import (
    BinaryLogLoss,
    Compat,
    Mixture,
    Start,
    facet_map,
    log_epsilon,
    logit_map_of,
    output_layer,
    output_width,
    softcap_of,
    start_as_,
    uniform_output_,
)
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


@HEADS.register("softmax")
class Softmax(nn.Module):
    """Softmax: the top hidden state, or an affine map of it, is multiplied by the output matrix.

    f = h, or U h + a with `projection`;    log p = log_softmax(phi(W f + b))
    phi(z) = z, or c tanh(z / c) with c = `softcap`

    With `projection` and `d_embed` = r the logits are those of the matrix W U, of rank r: the low-rank softmax, the
    control for the rank of the log-probabilities.
    Label: [{tie_weights:tied} ][{projection:affine} ]softmax[, rank {d_embed}]
    Cost: 1 softmax
    Family: plain
    Shapes: top layer h (B, T, D) -> facet f (B, T, 1, E), output matrix W (V, E), U (E, D).
    Args:
        projection: apply an affine map D -> E before the output matrix (the multi-facet poster's "Softmax" row).
        bias: add a bias b for each word.
        tie_weights: use the backbone's input embedding as W.
        d_embed: E; None for the width of the backbone's embedding.
        softcap: c: each logit z becomes c tanh(z / c) before the softmax (SoftCap; Gemma 2 has 30). None: z.
        loss: the training loss: 'nll', or 'binary', a binary cross-entropy of every word (BinaryLogLoss).
        start: the initialisation. 'embedding': W is a copy of the input embedding, U the identity, and biases are zero,
            so that a pretrained model with tied weights starts unchanged; 'pretrained': W, b and c are those of the
            backbone's own output layer, U the identity: the head computes what the model computes, and is the baseline
            of a comparison on a pretrained model; 'xavier': see Differs.
        compat: {log_epsilon: 1e-8} computes log(p + 1e-8), as the code of the multi-facet poster does in every row.
            None for log p.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: as `start` says.
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
    Raises: ValueError when D differs from E without a projection or with another start than
            'xavier', such a start has an
        init_range, init_range <= 0, init_bias is 'uniform' without init_range or without b, d_embed < 1, weights are
        tied or copied and E is not the width of the embedding, or softcap <= 0.
    Source: the usual log-linear output layer; the baseline of Benka et al. (2021). Low rank: Yang et al. (2018),
        arXiv:1711.03953, section 2.2. Soft cap: Bello et al. (2016), arXiv:1611.09940; Gemma 2, arXiv:2408.00118.
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
        start: Start = "xavier",
        compat: Compat | None = None,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
        d_embed: int | None = None,
        softcap: float | None = None,
    ):
        super().__init__()
        softcap = softcap_of(start, dims, softcap)
        self.phi, self.log_epsilon = logit_map_of(softcap), log_epsilon(compat)
        width = output_width(dims, d_embed, tie_weights=tie_weights)
        self.distribution = {"nll": Mixture, "binary": BinaryLogLoss}[loss]
        self.facet = facet_map(dims, projection=projection, width=width)
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights, width=width)
        start_as_(start, dims, embedding, self.facet, self.output, init_range)
        uniform_output_(self.output, init_range, init_bias)

    def forward(self, hidden: Hidden) -> Mixture:
        """Map (B, T, D) top states to a Mixture of one component."""
        facet_BTE = self.facet(hidden.layers[-1])
        weight, bias = self.output.weight, self.output.bias
        return self.distribution(
            facet_BTE[:, :, None], None, weight, bias, logit_map=self.phi, log_epsilon=self.log_epsilon
        )
