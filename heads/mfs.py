"""Multi-facet softmax (MFS; Chang and McCallum), and the rows of the poster that are special cases of it."""

from typing import Literal

import torch
from torch import Tensor, nn
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


@HEADS.register("mfs")
class MultiFacetSoftmax(nn.Module):
    """Multi-facet softmax (MFS): a mixture of softmaxes that reads several hidden states.

    The first component has one facet for each partition of the vocabulary.

    block_t = [ h^l_{t-j} ]  for l = L, L-1, .. (H layers), within each j = 0 .. w; zeros before the segment's start
    q_t     = [ h^L_t ; gelu(L_h block_t) ], or only h^L_t if the block has nothing else (H = 1, w = 0)
    f_i     = A_i q + a_i,  i = 1 .. P + K - 1;    pi = softmax(C q + c)
    z_1[x]  = f_{1 + x mod P} . w_x;    z_k[x] = f_{P+k-1} . w_x for k > 1
    log p   = logsumexp_k [ log pi_k + log_softmax(z_k) ]

    The rows of the poster as (K, H, w, P): Softmax (1, 1, 0, 1), Softmax + Multi-input (1, 3, 2, 1), Softmax +
    Multi-partition (1, 1, 0, 4), MoS (K, 1, 0, 1), MFS without Multi-partition (3, 3, 2, 1), MFS without Multi-input
    (3, 1, 0, 4), MFS (3, 3, 2, 4).

    Brief: multi-facet softmax of several states
    Cost: K softmaxes
    Shapes: the H top layers (B, T, D_l) -> facets (B, T, P + K - 1, E), prior (B, T, K), output matrix W (V, E);
        L_h maps (w + 1) sum_l D_l -> E; gelu in its tanh approximation.
    Args:
        num_mixtures: K ('#S').
        num_input_layers: H, the number of top layers that are read. With the window these are '#I' = H (w + 1) hidden
            states. None: 3, as in the poster, or all layers if the backbone has fewer.
        window: w, the number of previous positions that are read.
        num_partitions: P ('#P'): word x is scored by facet x mod P of the first softmax. If the vocabulary is ordered
            by frequency or first appearance, the partitions get equal shares of the frequent words.
        norm_inputs: apply layer normalisation without parameters to the states of the block below the top layer, which
            may have another scale in some backbones. The authors do not normalise.
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
        is 'uniform' without init_range or without b, a number is too small, there are more partitions than words, or
        the backbone has fewer layers than num_input_layers.
    Source: Chang and McCallum (2022), multi-facet softmax, the poster's figure 2 and table 1;
        laksh-ag/Multi-facet_softmax, gpt2_model/modeling_gpt2_multi.py (mode `even_last_2`).
    Differs: the mixture is computed in log space. The unused second layer after L_h is left out, and there is no gate
        for K = 1. If D = E, A_i is initialised as [identity, 0] plus noise of at most 5e-5 (no noise for the last
        facet), else by torch's Linear default. The authors' code overwrites the noise by the identity, so without
        Multi-input all of its facets are equal at the start.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        num_mixtures: int = 3,
        num_input_layers: int | None = None,
        window: int = 2,
        num_partitions: int = 4,
        norm_inputs: bool = False,
        bias: bool = False,
        tie_weights: bool = False,
        compat: Compat | None = None,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
        softcap: Cap | None = None,
    ):
        super().__init__()
        if num_input_layers is None:
            num_input_layers = min(3, len(dims.layer_dims))
        counts = {"num_mixtures": num_mixtures, "num_input_layers": num_input_layers, "num_partitions": num_partitions}
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"{name} must be at least 1, got {count}")
        if window < 0:
            raise ValueError(f"window must be at least 0, got {window}")
        if num_partitions > dims.vocab_size:
            raise ValueError(f"num_partitions must be at most V = {dims.vocab_size}, got {num_partitions}")
        if num_input_layers > len(dims.layer_dims):
            raise ValueError(
                f"num_input_layers: {num_input_layers} are read, but the backbone has {len(dims.layer_dims)}"
            )
        self.num_input_layers, self.window, self.norm_inputs = num_input_layers, window, norm_inputs
        self.phi, self.log_epsilon = logit_map_of(softcap_of("pretrained", dims, softcap)), log_epsilon(compat)
        d_top, d_block = dims.layer_dims[-1], (window + 1) * sum(dims.layer_dims[-num_input_layers:])
        d_query = d_top if d_block == d_top else d_top + dims.d_embed
        self.block = None if d_block == d_top else nn.Linear(d_block, dims.d_embed)
        num_facets = num_partitions + num_mixtures - 1
        self.facets = nn.ModuleList(nn.Linear(d_query, dims.d_embed) for _ in range(num_facets))
        self.partitions = (num_partitions,) + (1,) * (num_mixtures - 1)
        self.prior = nn.Linear(d_query, num_mixtures) if num_mixtures > 1 else None
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights)
        copy_output_(dims, embedding, self.output)
        with torch.no_grad():
            if d_top == dims.d_embed:
                self._start_facets_as_the_top_state()
        uniform_output_(self.output, init_range, init_bias)

    @classmethod
    def label(cls, p) -> str:
        name = f"MFS {p.num_mixtures}"
        name += f", {p.num_partitions} partitions" if p.num_partitions not in (4, "") else ""
        return name + (", log(p + epsilon)" if p.compat else "")

    def _start_facets_as_the_top_state(self) -> None:
        """Initialise A_i as [identity, 0] plus noise. W is a copy of the embedding, so the model starts as the
        pretrained one, except for the noise.
        """
        for i, facet in enumerate(self.facets, start=1):
            nn.init.eye_(facet.weight)
            if i < len(self.facets):
                facet.weight += NOISE * (torch.rand_like(facet.weight) - 0.5)
            facet.bias.zero_()

    def forward(self, hidden: Hidden) -> Mixture:
        """Map the states of the top H layers to a Mixture of K components, of which the first has P facets."""
        query = hidden.layers[-1]
        if self.block is not None:
            read = functional.gelu(self.block(self.input_block(hidden)), approximate="tanh")
            query = torch.cat([query, read], dim=-1)
        facets_BTFE = torch.stack([facet(query) for facet in self.facets], dim=2)
        log_prior_BTK = None if self.prior is None else log_prior(self.prior(query))
        return Mixture(
            facets_BTFE,
            log_prior_BTK,
            self.output.weight,
            self.output.bias,
            partitions=self.partitions,
            logit_map=self.phi,
            log_epsilon=self.log_epsilon,
        )

    def input_block(self, hidden: Hidden) -> Tensor:
        """(B, T, (w + 1) sum_l D_l): the layers from the top down, and for each layer the positions t, t - 1, .. t -
        w.
        """
        states = []
        for depth, h_BTD in enumerate(reversed(hidden.layers[-self.num_input_layers :])):
            T = h_BTD.shape[1]
            if self.norm_inputs and depth > 0:
                h_BTD = functional.layer_norm(h_BTD, h_BTD.shape[-1:])
            states += [functional.pad(h_BTD, (0, 0, offset, 0))[:, :T] for offset in range(self.window + 1)]
        return torch.cat(states, dim=-1)
