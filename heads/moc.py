"""Mixture of Contexts (Yang et al., 2018): the control without the mixture of distributions."""

import torch
from torch import nn

from harness.distributions import Mixture, log_prior, output_layer, output_width, xavier_uniform_
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


@HEADS.register("moc")
class MixtureOfContexts(nn.Module):
    """Mixture of Contexts (MoC): the facets of MoS are mixed first, then scored by one softmax.

    f_k = tanh(A_k h + a_k);    pi = softmax(C h (+ c));    log p = log_softmax(W sum_k pi_k f_k + b)

    As many parameters as `mos`, but the rank of a softmax: at most E + 1, with a bias E + 2.
    Shapes: top layer h (B, T, D) -> one facet (B, T, 1, E), output matrix W (V, E).
    Args:
        num_mixtures: K, the number of facets that are mixed. No prior for K=1.
        dropout: probability of zeroing a unit of a facet in training, independently at each position.
        prior_bias: give the prior a bias c.
        bias: give the output a bias b per word.
        tie_weights: use the backbone's input embedding as W.
        d_embed: E; None is the width of the backbone's embedding.
    Raises: ValueError when num_mixtures or d_embed < 1, dropout is not in [0, 1), or weights are to be tied at another
        width than the embedding's.
    Source: Yang et al. (2018), arXiv:1711.03953, section 3.2; quettabit/awd-lstm-lmkit, moc.py.
    Differs: plain dropout and Xavier-uniform matrices, as our `mos`, so that the two differ in the mixing alone.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        num_mixtures: int = 10,
        dropout: float = 0.0,
        prior_bias: bool = False,
        bias: bool = True,
        tie_weights: bool = False,
        d_embed: int | None = None,
    ):
        super().__init__()
        if num_mixtures < 1:
            raise ValueError(f"num_mixtures must be at least 1, got {num_mixtures}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        d_top = dims.layer_dims[-1]
        self.num_mixtures = num_mixtures
        width = output_width(dims, d_embed, tie_weights=tie_weights)
        self.latent = nn.Linear(d_top, num_mixtures * width)
        self.dropout = nn.Dropout(dropout)
        self.prior = nn.Linear(d_top, num_mixtures, bias=prior_bias) if num_mixtures > 1 else None
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights, width=width)
        xavier_uniform_(embedding, self.latent, self.prior, self.output)

    def forward(self, hidden: Hidden) -> Mixture:
        """(B, T, D) top states -> a Mixture of one component, its facet mixed of K."""
        h_BTD = hidden.layers[-1]
        facets_BTKE = self.dropout(torch.tanh(self.latent(h_BTD))).unflatten(-1, (self.num_mixtures, -1))
        if self.prior is not None:
            prior_BTK = log_prior(self.prior(h_BTD)).exp().to(facets_BTKE.dtype)
            facets_BTKE = prior_BTK[:, :, None] @ facets_BTKE
        return Mixture(facets_BTKE, None, self.output.weight, self.output.bias)
