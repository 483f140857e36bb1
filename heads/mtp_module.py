"""The multi-token prediction of DeepSeek-V3: a softmax, and in training a block that predicts one word more."""

from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from harness.distributions import LOGIT_MAPS, facet_map, output_layer, uniform_output_, xavier_uniform_
from harness.fading import LossWeight, Span
from harness.heads.mtp import MultiToken
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


class WithModule(MultiToken):
    """A MultiToken whose second facet is computed from the targets, in training only."""

    def __init__(self, facet_BTE: Tensor, module, share: Tensor | float | None, output: nn.Linear):
        super().__init__([facet_BTE], (share,), output.weight, output.bias, LOGIT_MAPS["identity"])
        self.module = module

    def training_loss(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() the loss of MultiToken."""
        if self.shares[1] is not None:
            self.facets = [self.facets[0], self.module(targets_BT)]
        return super().training_loss(targets_BT, weight_BT)


@HEADS.register("mtp_module")
class PredictionModule(nn.Module):
    """MTP as in DeepSeek-V3: a softmax, and a block that knows the next word and learns the word after it.

    f = h, or U h + a with `projection`;    log p = log_softmax(W f + b)
    g_t = RMSNorm(block(M [RMSNorm(h_t); RMSNorm(Emb(y_t))]));    log q_t = log_softmax(W g_t + b)
    loss = (1 / N) sum_t [ -log p(y_t | t) - lambda log q_t(y_(t+1)) ]

    y_t is the target at t, and Emb the backbone's input embedding. The block is a layer of a transformer encoder, norms
    first, with a causal mask. Tokens with weights count as in MultiToken. Evaluation has p only.

    Brief: MTP by a block that knows the next word
    Cost: 2 softmaxes
    Shapes: top layer h (B, T, D), facets (B, T, E), M (E, D + E) without bias, output matrix W (V, E).
    Args:
        weight: lambda.
        fade: the shares of training at which lambda begins to fall and at which it is 0 (harness.fading.Fade). None: it
            stays.
        num_heads: attention heads of the block; must divide E.
        d_ff: width of the block's feed-forward layer; None for 4 E.
        projection: apply an affine map D -> E before the output matrix.
        bias: add a bias b for each word.
        tie_weights: use the backbone's input embedding as W.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: an own W is
            Xavier-uniform, and b U(-1/sqrt(E), 1/sqrt(E)).
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
    Raises: ValueError when weight < 0, fade is not 0 <= start < end <= 1, num_heads does not divide E, d_ff < 1,
        init_range <= 0, init_bias is 'uniform' without init_range or without b, or D differs from E without a
        projection.
    Source: DeepSeek-AI (2024), arXiv:2412.19437, section 2.2, equations 21 to 25, with D = 1 as there; the norm
        before W is in their weights.
    Differs: lambda is 0.3, then 0.1 in the last third of their training; here it is one number, or falls to 0. Their
        block has latent attention, experts and rotary positions; this one has multi-head attention, ReLU, LayerNorm and
        no positions of its own. Depth 1 only.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        weight: float = 0.3,
        fade: Span | None = None,
        num_heads: int = 1,
        d_ff: int | None = None,
        projection: bool = False,
        bias: bool = True,
        tie_weights: bool = False,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
    ):
        super().__init__()
        D, E = dims.layer_dims[-1], dims.d_embed
        d_ff = 4 * E if d_ff is None else d_ff
        if num_heads < 1 or E % num_heads:
            raise ValueError(f"num_heads must be at least 1 and divide E = {E}, got {num_heads}")
        if d_ff < 1:
            raise ValueError(f"d_ff must be at least 1, got {d_ff}")
        self.share = LossWeight(weight, fade)
        self.facet = facet_map(dims, projection=projection)
        self.of_state, self.of_word, self.of_block = (nn.RMSNorm(width, eps=1e-6) for width in (D, E, E))
        self.merge = nn.Linear(D + E, E, bias=False)
        self.block = nn.TransformerEncoderLayer(E, num_heads, d_ff, dropout=0.0, batch_first=True, norm_first=True)
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights)
        self.__dict__["embedding"] = embedding  # the backbone's: it is no parameter of this module
        xavier_uniform_(self.facet, self.merge)
        uniform_output_(self.output, init_range, init_bias)

    @classmethod
    def label(cls, p) -> str:
        return ("affine " if p.projection else "") + "MTP module" + (", fading" if p.fade else "")

    def ahead(self, h_BTD: Tensor, targets_BT: Tensor) -> Tensor:
        """(B, T, E) g, of which the last position has no target."""
        _, T = targets_BT.shape
        words_BTE = self.embedding(targets_BT).to(h_BTD.dtype)
        x_BTE = self.merge(torch.cat([self.of_state(h_BTD), self.of_word(words_BTE)], dim=-1))
        mask_TT = nn.Transformer.generate_square_subsequent_mask(T, device=h_BTD.device, dtype=h_BTD.dtype)
        return self.of_block(self.block(x_BTE, src_mask=mask_TT, is_causal=True))

    def forward(self, hidden: Hidden) -> WithModule:
        """Map (B, T, D) top states to the distribution of the next word."""
        h_BTD = hidden.layers[-1]
        return WithModule(self.facet(h_BTD), partial(self.ahead, h_BTD), self.share(), self.output)
