"""Mixture of Softmaxes (Yang et al., 2018)."""

from typing import Literal

import torch
from torch import nn

from harness.distributions import Mixture, log_prior
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


@HEADS.register("mos")
class MixtureOfSoftmaxes(nn.Module):
    """Mixture of Softmaxes (MoS): a prior-weighted sum of K softmaxes over one output matrix.

    f_k = act(A_k h + a_k);    pi = softmax(C h (+ c));    log p = logsumexp_k [ log pi_k + log_softmax(W f_k + b) ]

    Shapes: top layer h (B, T, D) -> facets f (B, T, K, E), prior pi (B, T, K), output matrix W (V, E).
    Args:
        num_mixtures: K, the number of softmaxes ('#S' in tables; `n_experts` in the authors' code). No prior for K=1.
        dropout: probability of zeroing a unit of f in training, independently at each position.
        activation: act, the non-linearity of the facets: 'tanh' (Yang, Benka) or 'none' (the multi-facet poster).
        prior_bias: give the prior a bias c.
        bias: give the output a bias b per word, shared by all components.
        tie_weights: use the backbone's input embedding as W.
    Raises: ValueError when num_mixtures < 1 or dropout is not in [0, 1).
    Source: Yang et al. (2018), arXiv:1711.03953, section 2.3; zihangdai/mos, model.py; Benka et al. (2021) and
        ChrisBenka/Transformer_MOS, whose settings (plain dropout, untied Xavier-uniform W) are followed here.
    Differs: mixes in log space, the authors' codes take log(p + 1e-8); zihangdai/mos draws one dropout mask per
        sequence, we draw one per position as Benka et al. do.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        num_mixtures: int = 10,
        dropout: float = 0.0,
        activation: Literal["tanh", "none"] = "tanh",
        prior_bias: bool = False,
        bias: bool = True,
        tie_weights: bool = False,
    ):
        super().__init__()
        if num_mixtures < 1:
            raise ValueError(f"num_mixtures must be at least 1, got {num_mixtures}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        d_top = dims.layer_dims[-1]
        self.num_mixtures, self.d_embed, self.activation = num_mixtures, dims.d_embed, activation
        self.latent = nn.Linear(d_top, num_mixtures * dims.d_embed)
        self.dropout = nn.Dropout(dropout)
        self.prior = nn.Linear(d_top, num_mixtures, bias=prior_bias) if num_mixtures > 1 else None
        self.output = nn.Linear(dims.d_embed, dims.vocab_size, bias=bias)
        nn.init.xavier_uniform_(self.latent.weight)
        if self.prior is not None:
            nn.init.xavier_uniform_(self.prior.weight)
        if tie_weights:
            self.output.weight = embedding.weight
        else:
            nn.init.xavier_uniform_(self.output.weight)

    def forward(self, hidden: Hidden) -> Mixture:
        """(B, T, D) top states -> a Mixture of K components."""
        h_BTD = hidden.layers[-1]
        facets = self.latent(h_BTD)
        if self.activation == "tanh":
            facets = torch.tanh(facets)
        facets_BTKE = self.dropout(facets).unflatten(-1, (self.num_mixtures, self.d_embed))
        log_prior_BTK = None if self.prior is None else log_prior(self.prior(h_BTD))
        return Mixture(facets_BTKE, log_prior_BTK, self.output.weight, self.output.bias)
