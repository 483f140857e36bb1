"""Mixtape (Yang et al., 2019): a gate for each word that mixes logits, before one softmax."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.distributions import Logits, linear, output_layer, uniform_output_, xavier_uniform_
from harness.dropout import Dropout
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS

NUM_MIXTURES, NUM_SIGMOIDS = 4, 3


@HEADS.register("mixtape")
class Mixtape(nn.Module):
    """Mixtape: the logit of each word is a mixture of four scores by the word's own gate; then one softmax.

    f_k = tanh(H_k h),  k = 1 .. 4;    log p = log_softmax_x( sum_k pi_{x,k} f_k . w_x + b_x )
    l_{x,i} = v_x . tanh(U_i h) + u_i . h + e_{x,i},  i = 1 .. 3;    (s, s', s'') = sigmoid(l_x)
    pi_x = (s s', s (1 - s'), (1 - s) s'', (1 - s) (1 - s''))                    a tree of sigmoids; it needs no
    normaliser The most frequent words have their own v_x and e_x. All other words share one gate.

    Brief: logits mixed word by word, one softmax
    Cost: 1.3 softmaxes
    Shapes: top layer h (B, T, D) -> facets (B, T, 4, E); gates of the R words with own gates and the shared gate (B, T,
        R + 1, 4); output matrix W (V, E). For the words with the shared gate, one mixed facet per token is scored.
    Args:
        d_gate: the width of v_x.
        own_gates: the fraction of the vocabulary that has own gates: the most frequent words of the training split.
            With 0 all words share one gate, and the rank is that of a softmax.
        dropout: probability of zeroing a unit of f in training, independently at each position.
        bias: add a bias b for each word.
        tie_weights: use the backbone's input embedding as W.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: an own W is
            Xavier-uniform, and b U(-1/sqrt(E), 1/sqrt(E)).
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
    Raises: ValueError when init_range <= 0, init_bias is 'uniform' without init_range or without b, d_gate < 1,
        own_gates is not in [0, 1], or dropout not in [0, 1). RuntimeError in `forward` when the head was built without
        the token counts of the training split.
    Source: Yang, Luong, Salakhutdinov and Le (2019), "Mixtape: Breaking the Softmax Bottleneck Efficiently", NeurIPS;
        read: the abstract and descriptions by others; not the paper.
    Differs: NOT CONFIRMED in the paper: there are three U and u (one for each sigmoid) and not four; d_gate = 32; one
        tenth of the vocabulary has own gates; f has no bias and the dropout of `mos`; the initialisation
        (Xavier-uniform matrices, v with standard deviation 0.1, e = 0). Speed: the paper reports 20 to 34 % more time
        than a softmax; this implementation takes about three times the time of a softmax on a CPU core at V = 10,000.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        d_gate: int = 32,
        own_gates: float = 0.1,
        dropout: float = 0.0,
        bias: bool = True,
        tie_weights: bool = False,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
    ):
        super().__init__()
        if d_gate < 1:
            raise ValueError(f"d_gate must be at least 1, got {d_gate}")
        if not 0 <= own_gates <= 1:
            raise ValueError(f"own_gates must be in [0, 1], got {own_gates}")
        d_top, V = dims.layer_dims[-1], dims.vocab_size
        self.num_own = round(own_gates * V)
        self.latent = nn.Linear(d_top, NUM_MIXTURES * dims.d_embed, bias=False)
        self.dropout = Dropout(dropout)
        self.gate_hidden = nn.Linear(d_top, NUM_SIGMOIDS * d_gate, bias=False)
        self.gate_context = nn.Linear(d_top, NUM_SIGMOIDS, bias=False)
        self.gate_word = nn.Parameter(0.1 * torch.randn(self.num_own + 1, d_gate))  # the last row is the shared gate
        self.gate_bias = nn.Parameter(torch.zeros(self.num_own + 1, NUM_SIGMOIDS))
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights)
        xavier_uniform_(self.latent, self.gate_hidden, self.gate_context)
        uniform_output_(self.output, init_range, init_bias)
        counts = dims.token_counts
        by_frequency = None if counts is None else torch.argsort(counts, descending=True, stable=True)
        self.register_buffer("by_frequency", by_frequency)

    @classmethod
    def label(cls, p) -> str:
        return "Mixtape"

    def forward(self, hidden: Hidden) -> Logits:
        """Map (B, T, D) top states to the mixed logits, (B, T, V)."""
        if self.by_frequency is None:
            raise RuntimeError("mixtape needs HeadDims.token_counts: the most frequent words have their own gates")
        h_BTD = hidden.layers[-1]
        facets_BTKE = self.dropout(torch.tanh(self.latent(h_BTD))).unflatten(-1, (NUM_MIXTURES, -1))
        gates_BTRK = self.gates(h_BTD)
        own, rest = self.by_frequency[: self.num_own], self.by_frequency[self.num_own :]
        weight_VE = self.output.weight
        scores_BTKR = linear(facets_BTKE, weight_VE[own])
        own_BTR = (gates_BTRK[:, :, :-1] * scores_BTKR.mT).sum(-1)
        mixed_BTE = torch.einsum("btk,btke->bte", gates_BTRK[:, :, -1], facets_BTKE)
        z_sorted_BTV = torch.cat([own_BTR, linear(mixed_BTE, weight_VE[rest])], dim=-1)
        z_BTV = z_sorted_BTV.index_select(-1, torch.argsort(self.by_frequency))
        return Logits(z_BTV if self.output.bias is None else z_BTV + self.output.bias)

    def gates(self, h_BTD: Tensor) -> Tensor:
        """(B, T, R + 1, 4): pi of the words with own gates, the most frequent first, and then the shared pi."""
        hidden_BTSG = torch.tanh(self.gate_hidden(h_BTD)).unflatten(-1, (NUM_SIGMOIDS, -1))
        scores_BTRS = functional.linear(hidden_BTSG, self.gate_word).mT
        scores_BTRS = scores_BTRS + self.gate_context(h_BTD)[:, :, None] + self.gate_bias
        root, left, right = torch.sigmoid(scores_BTRS).unbind(-1)
        return torch.stack([root * left, root * (1 - left), (1 - root) * right, (1 - root) * (1 - right)], dim=-1)
