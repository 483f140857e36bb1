"""Mixture of Softmaxes (Yang et al., 2018), with the sigsoftmax variant and other gates as controls."""

from typing import Literal

import torch
from torch import Tensor, nn

from harness.distributions import (
    BinaryLogLoss,
    Cap,
    Compat,
    Mixture,
    Start,
    log_epsilon,
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


@HEADS.register("mos")
class MixtureOfSoftmaxes(nn.Module):
    """Mixture of Softmaxes (MoS): a prior-weighted sum of K softmaxes over one output matrix.

    f_k = act(A_k h + a_k);    pi = softmax(C h (+ c));    z_k = W f_k + b
    log p = logsumexp_k [ log pi_k + log_softmax(phi(z_k)) ]

    Brief: Mixture of Softmaxes, a weighted sum
    Cost: K softmaxes
    Shapes: top layer h (B, T, D) -> facets f (B, T, K, E), prior pi (B, T, K), output matrix W (V, E).
    Args:
        num_mixtures: K, the number of softmaxes ('#S' in tables; `n_experts` in the authors' code). There is no
            prior for K = 1.
        dropout: probability of zeroing a unit of f in training.
        dropout_mask: 'position': a mask for each position; 'sequence': one for all positions of a segment, as in
            zihangdai/mos.
        activation: act, the non-linearity of the facets: 'tanh' (Yang et al., Benka et al.) or 'none' (the multi-facet
            poster).
        prior_bias: add a bias c to the prior.
        bias: add a bias b for each word, shared by all components.
        tie_weights: use the backbone's input embedding as W.
        d_embed: E; None for the width of the backbone's embedding.
        logit_map: phi: 'identity', 'sigsoftmax' (MoSS, the mixture of SigSoftmax) or 'stablemax' (StableMax).
        gate: 'learned': pi as above; 'constant': pi = 1/K; 'static': pi = softmax(c) with one learned vector c, which
            does not depend on the context.
        loss: the training loss: 'nll', or 'binary', a binary cross-entropy of every word (BinaryLogLoss).
        compat: {log_epsilon: 1e-8} computes log(p + 1e-8), as the authors' code does; None for log p.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: an own W is
            Xavier-uniform, and b U(-1/sqrt(E), 1/sqrt(E)).
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
        start: 'xavier': see Differs; 'identity': the same W and b; 'embedding': W is a copy of the input embedding,
            and b zero; 'pretrained': W, b and c are those of the backbone's own output layer. In the last three A_k is
            the identity and a_k zero, so that the head starts as one softmax of the state, in the last one as the
            pretrained model. That needs activation 'none'.
        softcap: c: each logit z becomes c tanh(z / c) before the softmax (SoftCap; Gemma 2 has 30). {a, b, c}: it
            becomes a sigmoid((z + b) / c) (SigmoidCap; modded-nanogpt has 23, 5 and 7.5). Not with
            another logit_map. None: z.
    Raises: ValueError when softcap <= 0 or beside another logit_map, init_range <= 0, init_bias is 'uniform' without
        init_range or without b, num_mixtures or d_embed < 1, dropout is not in [0, 1), a prior bias is set for a gate
        that is not learned, weights are tied and E is not the width of the embedding, or a start that the activation,
        the gate or the pretrained layer does not allow.
    Source: Yang et al. (2018), arXiv:1711.03953, section 2.3; zihangdai/mos, model.py; Benka et al. (2021) and
        ChrisBenka/Transformer_MOS, whose settings (dropout per position, untied Xavier-uniform W) are used here. MoSS:
        Kanai et al. (2018), section 3.4. StableMax: Prieto et al. (2025), arXiv:2501.04697. Gates: Orhan's note on
        degeneracy (constant), the multi-facet code (static).
    Differs: the mixture is computed in log space; the authors' code computes log(p + 1e-8) (see `compat`).
        By default there is a dropout mask for each position, as in Benka et al. zihangdai/mos is dropout_mask
        'sequence', tie_weights and init_range 0.1, but for its Xavier-uniform A and C, which are torch's default there.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        num_mixtures: int = 10,
        dropout: float = 0.0,
        dropout_mask: Mask = "position",
        activation: Literal["tanh", "none"] = "tanh",
        prior_bias: bool = False,
        bias: bool = True,
        tie_weights: bool = False,
        d_embed: int | None = None,
        logit_map: Literal["identity", "sigsoftmax", "stablemax"] = "identity",
        gate: Literal["learned", "constant", "static"] = "learned",
        loss: Literal["nll", "binary"] = "nll",
        compat: Compat | None = None,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
        softcap: Cap | None = None,
        start: Start = "xavier",
    ):
        super().__init__()
        if num_mixtures < 1:
            raise ValueError(f"num_mixtures must be at least 1, got {num_mixtures}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        if prior_bias and gate != "learned":
            raise ValueError(f"prior_bias is possible for gate 'learned' only, got gate '{gate}'")
        if start != "xavier" and activation != "none":
            raise ValueError(f"start: '{start}' needs activation 'none', got '{activation}'")
        if start != "xavier" and num_mixtures > 1 and gate != "learned" and not dropout:
            raise ValueError(f"start: '{start}' with gate '{gate}' needs dropout: equal components stay equal")
        softcap = softcap_of(start, dims, softcap)
        d_top = dims.layer_dims[-1]
        self.num_mixtures, self.activation = num_mixtures, activation
        self.phi, self.log_epsilon = logit_map_of(softcap, logit_map), log_epsilon(compat)
        self.distribution = {"nll": Mixture, "binary": BinaryLogLoss}[loss]
        width = output_width(dims, d_embed, tie_weights=tie_weights)
        self.latent = nn.Linear(d_top, num_mixtures * width)
        self.dropout = MASKS[dropout_mask](dropout)
        self.prior = self.static_prior = None
        if num_mixtures > 1 and gate == "learned":
            self.prior = nn.Linear(d_top, num_mixtures, bias=prior_bias)
        elif num_mixtures > 1 and gate == "static":
            self.static_prior = nn.Parameter(torch.zeros(num_mixtures))
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights, width=width)
        xavier_uniform_(self.latent, self.prior)
        if start != "xavier":
            start_as_(start, dims, embedding, self.latent, self.output, init_range)
        uniform_output_(self.output, init_range, init_bias)

    @classmethod
    def label(cls, p) -> str:
        name = f"MoSS {p.num_mixtures}" if p.logit_map == "sigsoftmax" else f"MoS {p.num_mixtures}"
        name += ", stablemax" if p.logit_map == "stablemax" else ""
        name += f", {p.gate} gate" if p.gate in ("constant", "static") else ""
        name += ", binary loss" if p.loss == "binary" else ""
        name += ", no tanh" if p.activation == "none" else ""
        return name + (", log(p + epsilon)" if p.compat else "")

    @classmethod
    def is_control(cls, **params: object) -> bool:
        """Whether one component is left: a softmax of the facet."""
        plain = params["softcap"] is None and params["compat"] is None
        same_map = params["logit_map"] == "identity" and params["loss"] == "nll"
        return params["num_mixtures"] == 1 and plain and same_map

    def forward(self, hidden: Hidden) -> Mixture:
        """Map (B, T, D) top states to a Mixture of K components."""
        h_BTD = hidden.layers[-1]
        facets = self.latent(h_BTD)
        if self.activation == "tanh":
            facets = torch.tanh(facets)
        facets_BTKE = self.dropout(facets).unflatten(-1, (self.num_mixtures, -1))
        return self.distribution(
            facets_BTKE,
            self._log_prior(h_BTD),
            self.output.weight,
            self.output.bias,
            logit_map=self.phi,
            log_epsilon=self.log_epsilon,
        )

    def _log_prior(self, h_BTD: Tensor) -> Tensor | None:
        """(B, T, K) the log mixture weights, or None for one component."""
        if self.num_mixtures == 1:
            return None
        if self.prior is not None:
            return log_prior(self.prior(h_BTD))
        scores_K = h_BTD.new_zeros(self.num_mixtures) if self.static_prior is None else self.static_prior
        return log_prior(scores_K).expand(*h_BTD.shape[:2], -1)
