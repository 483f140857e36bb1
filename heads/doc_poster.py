"""The row DOC of the multi-facet poster: one facet from each of the top layers. `doc` is the model of Takase et al."""

from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from harness.distributions import (
    Cap,
    Compat,
    Mixture,
    copy_output_,
    log_epsilon,
    log_prior,
    logit_map_of,
    output_layer,
    softcap_of,
    uniform_output_,
)
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS

NOISE = 1e-4


@HEADS.register("doc_poster")
class DirectOutputConnectionPoster(nn.Module):
    """DOC as in the multi-facet poster: each facet reads its own layer, and the gate reads all of these layers.

    f_k = A_k h^l(k) + a_k,  l(k) = L - K + k for k = 1 .. K;    pi = softmax(C [h^(L-K+1); ...; h^L] + c)
    log p = logsumexp_k [ log pi_k + log_softmax(W f_k) ]

    Brief: DOC whose gate reads all layers, too
    Cost: K softmaxes
    Shapes: the K top layers (B, T, D_l), lowest first -> facets (B, T, K, E), prior (B, T, K), output matrix W (V, E).
    Args:
        num_mixtures: K, the number of softmaxes and of layers that are read.
        norm_inputs: apply layer normalisation without parameters to the states below the top layer, which may have
            another scale in some backbones (15 times that of the top one in SmolLM2). The authors do not normalise.
        bias: add a bias for each word.
        tie_weights: use the backbone's input embedding as W; else W is initialised as a copy of it, or W, b and
            the soft cap are those of the output layer that the backbone was pretrained with.
        compat: {log_epsilon: 1e-8} computes log(p + 1e-8), as the authors' code does; None for log p.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: an own W is a copy of
            the input embedding, and b U(-1/sqrt(E), 1/sqrt(E)).
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
        softcap: c: each logit z becomes c tanh(z / c) before the softmax (SoftCap; Gemma 2 has 30). {a, b, c}: it
            becomes a sigmoid((z + b) / c) (SigmoidCap; modded-nanogpt has 23, 5 and 7.5). None: z.
    Raises: ValueError when softcap <= 0, softcap or bias is another than the pretrained one, init_range <= 0, init_bias
        is 'uniform' without init_range or without b, num_mixtures < 1 or the backbone has fewer layers.
    Source: Chang and McCallum (2022), multi-facet softmax, the poster's table 1; laksh-ag/Multi-facet_softmax,
        gpt2_model/modeling_gpt2_multi.py, `individual_hidden_states` (3 facets, 3 layers, window 0).
    Differs: the mixture is computed in log space. If D_l = E, A_k is initialised as the identity plus noise of at most
        5e-5 (no noise for the top layer), else by torch's Linear default. The authors' code overwrites the noise by the
        identity. The model of Takase et al. (`doc`) has tanh, a gate that reads only the top layer, and a balance loss.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        num_mixtures: int = 3,
        norm_inputs: bool = False,
        bias: bool = False,
        tie_weights: bool = False,
        compat: Compat | None = None,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
        softcap: Cap | None = None,
    ):
        super().__init__()
        if num_mixtures < 1:
            raise ValueError(f"num_mixtures must be at least 1, got {num_mixtures}")
        if num_mixtures > len(dims.layer_dims):
            raise ValueError(
                f"num_mixtures: {num_mixtures} layers are read, but the backbone has {len(dims.layer_dims)}"
            )
        read = dims.layer_dims[-num_mixtures:]
        self.num_mixtures, self.norm_inputs = num_mixtures, norm_inputs
        self.phi, self.log_epsilon = logit_map_of(softcap_of("pretrained", dims, softcap)), log_epsilon(compat)
        self.facets = nn.ModuleList(nn.Linear(d_layer, dims.d_embed) for d_layer in read)
        self.prior = nn.Linear(sum(read), num_mixtures) if num_mixtures > 1 else None
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights)
        copy_output_(dims, embedding, self.output)
        with torch.no_grad():
            for k, facet in enumerate(self.facets):
                if facet.in_features == facet.out_features:
                    nn.init.eye_(facet.weight)
                    if k < num_mixtures - 1:
                        facet.weight += NOISE * (torch.rand_like(facet.weight) - 0.5)
                    facet.bias.zero_()
        uniform_output_(self.output, init_range, init_bias)

    @classmethod
    def label(cls, p) -> str:
        return f"DOC {p.num_mixtures}, poster" + (", log(p + epsilon)" if p.compat else "")

    def forward(self, hidden: Hidden) -> Mixture:
        """Map the states of the top K layers to a Mixture of K components."""
        *lower, top = hidden.layers[-self.num_mixtures :]
        read = [functional.layer_norm(h, h.shape[-1:]) if self.norm_inputs else h for h in lower] + [top]
        facets_BTKE = torch.stack([facet(h) for facet, h in zip(self.facets, read, strict=True)], dim=2)
        log_prior_BTK = None if self.prior is None else log_prior(self.prior(torch.cat(read, dim=-1)))
        weight, bias = self.output.weight, self.output.bias
        return Mixture(facets_BTKE, log_prior_BTK, weight, bias, logit_map=self.phi, log_epsilon=self.log_epsilon)
