"""Direct Output Connection (DOC; Takase et al., 2018)."""

from typing import Literal

import torch
from torch import Tensor, nn

from harness.distributions import (
    Cap,
    Compat,
    Mixture,
    log_epsilon,
    log_prior,
    logit_map_of,
    output_layer,
    output_width,
    uniform_output_,
    xavier_uniform_,
)
from harness.dropout import Dropout
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS

FROM_TOP = ("top", "second", "third")


@HEADS.register("doc")
class DirectOutputConnection(nn.Module):
    """Direct Output Connection (DOC): a mixture of softmaxes whose components read different layers.

    f_m = tanh(A_m h^l(m) + a_m);    pi = softmax(C h^top);    log p = logsumexp_m [ log pi_m + log_softmax(W f_m + b) ]

    The training loss has an additional term, the balance loss, for J > 1 components. It is lambda times the squared
    coefficient of variation of the components' use:
        'paper': beta_m = sum over the batch of pi_m;    (std(beta) / mean(beta))^2, std over the J values, unbiased
        'code':  S_bm = sum over time of pi_m in row b;    var(S) (J - 1) / mean(S)^2, over all B J values, unbiased
    The value of the code has a factor J - 1 and also includes differences between the rows of the batch. Both forms
    couple the rows: with `accumulation` or `data_parallel`, beta and S are computed for each part, and the gradient is
    different.

    Brief: Direct Output Connection: many layers
    Cost: J softmaxes
    Shapes: layers (B, T, D_l) -> facets (B, T, J, E), the top layer's first; prior (B, T, J); output matrix W (V, E).
    Args:
        components: the number of components of each layer, from the top layer down: (15, 5), or with the names top,
            second and third: {top: 15, second: 5}. The two forms give different trial ids. The gate reads the top layer
            only.
        dropout: probability of zeroing a unit of the facets. There is one mask per sequence, for all positions and
            components.
        balance: the form of the balance loss, 'paper' or 'code'.
        balance_weight: lambda; 0 switches the balance loss off.
        bias: add a bias b for each word, shared by all components.
        tie_weights: use the backbone's input embedding as W.
        d_embed: E; None for the width of the backbone's embedding.
        compat: {log_epsilon: 1e-8} computes log(p + 1e-8), as the authors' code does; None for log p.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: an own W is
            Xavier-uniform, and b U(-1/sqrt(E), 1/sqrt(E)).
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
        softcap: c: each logit z becomes c tanh(z / c) before the softmax (SoftCap; Gemma 2 has 30). {a, b, c}: it
            becomes a sigmoid((z + b) / c) (SigmoidCap; modded-nanogpt has 23, 5 and 7.5). None: z.
    Raises: ValueError when softcap <= 0, init_range <= 0, init_bias is 'uniform' without init_range or without b, there
        is no component, a number of components or lambda is negative, more layers are named than the backbone has,
        dropout is not in [0, 1), or weights are tied and E is not the width of the embedding.
    Source: Takase et al. (2018), arXiv:1808.10143, sections 3 and 4; nttcslab-nlp/doc_lm, main.py and model.py (dropout
        0.6, lambda 0.001, components (15, 5)). The paper's form of the balance loss was written from memory and NOT
        CONFIRMED in the paper.
    Differs: the mixture is computed in log space. By default W is untied and matrices are Xavier-uniform; the authors'
        W is tied and U(-0.1, 0.1), with b = 0 (tie_weights and init_range 0.1). Latent biases have torch's default
        initialisation; the authors' start at 0.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        components: dict[Literal["top", "second", "third"], int] | tuple[int, ...] = (15, 5),
        dropout: float = 0.0,
        balance: Literal["paper", "code"] = "paper",
        balance_weight: float = 0.001,
        bias: bool = True,
        tie_weights: bool = False,
        d_embed: int | None = None,
        compat: Compat | None = None,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
        softcap: Cap | None = None,
    ):
        super().__init__()
        if balance_weight < 0:
            raise ValueError(f"balance_weight must be at least 0, got {balance_weight}")
        self.counts = _from_top(components, len(dims.layer_dims))
        self.num_components = sum(self.counts)
        self.balance, self.balance_weight = balance, balance_weight
        self.phi, self.log_epsilon = logit_map_of(softcap), log_epsilon(compat)
        width = output_width(dims, d_embed, tie_weights=tie_weights)
        self.latents = nn.ModuleList(
            nn.Linear(d_layer, count * width)
            for d_layer, count in zip(reversed(dims.layer_dims), self.counts, strict=False)
            if count > 0
        )
        self.dropout = Dropout(dropout)
        several = self.num_components > 1
        self.prior = nn.Linear(dims.layer_dims[-1], self.num_components, bias=False) if several else None
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights, width=width)
        xavier_uniform_(*self.latents, self.prior)
        uniform_output_(self.output, init_range, init_bias)

    @classmethod
    def label(cls, p) -> str:
        counts = p.components
        if isinstance(counts, dict):
            counts = [counts.get(name, 0) for name in FROM_TOP[: _depth(counts)]]
        return f"DOC {'+'.join(map(str, counts))}" + (", log(p + epsilon)" if p.compat else "")

    def forward(self, hidden: Hidden) -> Mixture:
        """Map the states of all layers to a Mixture of J components, with the balance loss."""
        used = [layer for layer, count in zip(reversed(hidden.layers), self.counts, strict=False) if count > 0]
        facets = torch.cat([torch.tanh(latent(h)) for latent, h in zip(self.latents, used, strict=True)], dim=-1)
        facets_BTJE = facets.unflatten(-1, (self.num_components, -1))
        B, _, _, E = facets_BTJE.shape
        facets_BTJE = facets_BTJE * self.dropout(facets_BTJE.new_ones(B, 1, 1, E))
        log_prior_BTJ, balance = None, 0.0
        if self.prior is not None:
            log_prior_BTJ = log_prior(self.prior(hidden.layers[-1]))
            balance = self.balance_weight * self.imbalance(log_prior_BTJ.exp())
        return Mixture(
            facets_BTJE,
            log_prior_BTJ,
            self.output.weight,
            self.output.bias,
            logit_map=self.phi,
            log_epsilon=self.log_epsilon,
            aux_loss=balance,
        )

    def imbalance(self, prior_BTJ: Tensor) -> Tensor:
        """() the squared coefficient of variation of the components' use, in the form `balance`."""
        if self.balance == "code":
            use_BJ = prior_BTJ.sum(1)
            return use_BJ.var() * (self.num_components - 1) / use_BJ.mean() ** 2
        use_J = prior_BTJ.sum((0, 1))
        return use_J.var() / use_J.mean() ** 2


def _from_top(components: dict[str, int] | tuple[int, ...], num_layers: int) -> tuple[int, ...]:
    """Return the number of components of each layer, from the top layer down."""
    if isinstance(components, dict):
        components = tuple(components.get(name, 0) for name in FROM_TOP[: _depth(components)])
    if len(components) > num_layers:
        raise ValueError(f"components: {len(components)} layers are named, but the backbone has {num_layers}")
    if any(number < 0 for number in components) or sum(components) < 1:
        raise ValueError(f"components must be at least 0 each, and at least 1 in total, got {tuple(components)}")
    return tuple(components)


def _depth(components: dict[str, int]) -> int:
    return max((FROM_TOP.index(name) + 1 for name in components), default=0)
