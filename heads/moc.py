"""Mixture of Contexts (Yang et al., 2018): a control for MoS that mixes facets and not distributions."""

from typing import Literal

import torch
from torch import nn

from harness.distributions import (
    Cap,
    Mixture,
    Start,
    log_prior,
    logit_map_of,
    output_layer,
    output_width,
    softcap_of,
    start_as_,
    uniform_output_,
    xavier_uniform_,
)
from harness.dropout import MASKS, Mask
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


@HEADS.register("moc")
class MixtureOfContexts(nn.Module):
    """Mixture of Contexts (MoC): the facets of MoS are mixed first, and then scored by one softmax.

    f_k = act(A_k h + a_k);    pi = softmax(C h (+ c));    log p = log_softmax(W sum_k pi_k f_k + b)

    It has as many parameters as `mos`, but the rank of a softmax: at most E + 1, or E + 2 with a bias.
    Brief: Mixture of Contexts, then one softmax
    Cost: 1 softmax
    Shapes: top layer h (B, T, D) -> one facet (B, T, 1, E), output matrix W (V, E).
    Args:
        num_mixtures: K, the number of facets that are mixed. There is no prior for K = 1.
        dropout: probability of zeroing a unit of a facet in training.
        dropout_mask: 'position': a mask for each position; 'sequence': one for all positions of a segment.
        prior_bias: add a bias c to the prior.
        bias: add a bias b for each word.
        tie_weights: use the backbone's input embedding as W.
        d_embed: E; None for the width of the backbone's embedding.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: an own W is
            Xavier-uniform, and b U(-1/sqrt(E), 1/sqrt(E)).
        start: 'xavier': Xavier-uniform; 'identity': the same W and b; 'embedding': W is a copy of the input embedding,
            and b zero; 'pretrained': W, b and c are those of the backbone's own output layer. In the last three A_k is
            the identity and a_k zero, so that the head starts as a softmax of the state, in the last one as the
            pretrained model. That needs activation 'none'.
        activation: act, the non-linearity of the facets: 'tanh', or 'none'.
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
        softcap: c: each logit z becomes c tanh(z / c) before the softmax (SoftCap; Gemma 2 has 30). {a, b, c}: it
            becomes a sigmoid((z + b) / c) (SigmoidCap; modded-nanogpt has 23, 5 and 7.5). None: z.
    Raises: ValueError when softcap <= 0, init_range <= 0, init_bias is 'uniform' without init_range or without b,
        num_mixtures or d_embed < 1, dropout is not in [0, 1), weights are tied and E is not the width of the
        embedding, or a start that the activation or the pretrained layer does not allow.
    Source: Yang et al. (2018), arXiv:1711.03953, section 3.2; quettabit/awd-lstm-lmkit, moc.py.
    Differs: dropout and initialisation (Xavier-uniform matrices) are those of our `mos`, so that the two heads differ
        only in what is mixed.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        num_mixtures: int = 10,
        dropout: float = 0.0,
        dropout_mask: Mask = "position",
        prior_bias: bool = False,
        bias: bool = True,
        tie_weights: bool = False,
        d_embed: int | None = None,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
        softcap: Cap | None = None,
        activation: Literal["tanh", "none"] = "tanh",
        start: Start = "xavier",
    ):
        super().__init__()
        if num_mixtures < 1:
            raise ValueError(f"num_mixtures must be at least 1, got {num_mixtures}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        if start != "xavier" and activation != "none":
            raise ValueError(f"start: '{start}' needs activation 'none', got '{activation}'")
        d_top = dims.layer_dims[-1]
        self.num_mixtures, self.phi = num_mixtures, logit_map_of(softcap_of(start, dims, softcap))
        self.activation = activation
        width = output_width(dims, d_embed, tie_weights=tie_weights)
        self.latent = nn.Linear(d_top, num_mixtures * width)
        self.dropout = MASKS[dropout_mask](dropout)
        self.prior = nn.Linear(d_top, num_mixtures, bias=prior_bias) if num_mixtures > 1 else None
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights, width=width)
        xavier_uniform_(self.latent, self.prior)
        if start != "xavier":
            start_as_(start, dims, embedding, self.latent, self.output, init_range)
        uniform_output_(self.output, init_range, init_bias)

    @classmethod
    def label(cls, p) -> str:
        return f"MoC {p.num_mixtures}" + (", no tanh" if p.activation == "none" else "")

    @classmethod
    def is_control(cls, **params: object) -> bool:
        """Whether one component is left: a softmax of the facet."""
        return params["num_mixtures"] == 1 and params["softcap"] is None

    def forward(self, hidden: Hidden) -> Mixture:
        """Map (B, T, D) top states to a Mixture of one component, whose facet is a mixture of K facets."""
        h_BTD = hidden.layers[-1]
        facets = self.latent(h_BTD)
        if self.activation == "tanh":
            facets = torch.tanh(facets)
        facets_BTKE = self.dropout(facets).unflatten(-1, (self.num_mixtures, -1))
        if self.prior is not None:
            prior_BTK = log_prior(self.prior(h_BTD)).exp().to(facets_BTKE.dtype)
            facets_BTKE = prior_BTK[:, :, None] @ facets_BTKE
        return Mixture(facets_BTKE, None, self.output.weight, self.output.bias, logit_map=self.phi)
