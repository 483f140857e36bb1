"""Token-order prediction (Zuhri et al., 2025): a softmax, and in training a second one that ranks the words to come."""

from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.distributions import (
    WithAuxiliary,
    facet_map,
    linear,
    output_layer,
    uniform_output_,
    weighted_mean,
    xavier_uniform_,
)
from harness.fading import LossWeight, Span
from harness.protocols import NO_TOKEN, HeadDims, Hidden
from harness.registry import HEADS


def words_ahead(targets_BT: Tensor, weight_BT: Tensor | None, window: int) -> tuple[Tensor, Tensor]:
    """(B, T, W) y_t .. y_(t+W-1) for each position t, and (B, T, W) whether a word occurs there for the first time.

    It does not beyond the end of the segment, nor does a token of weight 0.
    """
    _, T = targets_BT.shape
    known_BT = targets_BT if weight_BT is None else targets_BT.masked_fill(weight_BT == 0, NO_TOKEN)
    words_BTW = functional.pad(known_BT, (0, window), value=NO_TOKEN).unfold(1, window, 1)[:, :T]
    again = [(words_BTW[..., :k] == words_BTW[..., k, None]).any(-1) for k in range(window)]
    return words_BTW.clamp(min=0), (words_BTW != NO_TOKEN) & ~torch.stack(again, dim=-1)


@HEADS.register("token_order")
class TokenOrder(nn.Module):
    """Token-order prediction (TOP): a softmax, and a second output matrix that learns which words come sooner.

    f = h, or U h + a with `projection`;    log p = log_softmax(W f + b);    log q = log_softmax(R f)
    s_v = window - d_v, d_v the distance of the next occurrence of word v, 1 for y_t; -inf without one within window
    loss = (1 / N) sum_t [ -log p(y_t | t) - lambda sum_v softmax(s)_v log q(v | t) ]

    Of softmax(s) the word at distance d has exp(-d), normalised over the different words: no (B, T, V) target is made.
    A position counts with the weight of y_t, and tokens of weight 0 are no occurrences. Evaluation has p only.

    Brief: TOP, ranks the words to come
    Cost: 2 softmaxes
    Shapes: top layer h (B, T, D) -> facet (B, T, E), output matrix W (V, E), R (V, E) without bias.
    Args:
        window: how many words ahead count. What is beyond 16 has less than 1e-6 of softmax(s).
        weight: lambda.
        fade: the shares of training at which lambda begins to fall and at which it is 0 (harness.fading.Fade). None: it
            stays.
        projection: apply an affine map D -> E before the output matrix.
        bias: add a bias b for each word.
        tie_weights: use the backbone's input embedding as W.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: an own W is
            Xavier-uniform, and b U(-1/sqrt(E), 1/sqrt(E)).
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
    Raises: ValueError when window < 1, weight < 0, fade is not 0 <= start < end <= 1, init_range <= 0, init_bias is
        'uniform' without init_range or without b, or D differs from E without a projection.
    Source: Zuhri et al. (2025), arXiv:2508.19228, section 4.1, algorithm 1 and equations 9 and 10;
        zaydzuhri/token-order-prediction at commit b347f48.
    Differs: the authors' window is as long as the segment, and they read so many words beyond it; here the segment's
        last positions have fewer words.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        window: int = 16,
        weight: float = 1.0,
        fade: Span | None = None,
        projection: bool = False,
        bias: bool = True,
        tie_weights: bool = False,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
    ):
        super().__init__()
        if window < 1:
            raise ValueError(f"window must be at least 1, got {window}")
        self.window, self.share = window, LossWeight(weight, fade)
        self.facet = facet_map(dims, projection=projection)
        xavier_uniform_(self.facet)  # before the draws whose number depends on V
        self.unembedding = nn.Linear(dims.d_embed, dims.vocab_size, bias=False)
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights)
        xavier_uniform_(self.unembedding)
        uniform_output_(self.output, init_range, init_bias)

    @classmethod
    def label(cls, p) -> str:
        return ("affine " if p.projection else "") + "TOP" + (", fading" if p.fade else "")

    def order_loss(self, facet_BTE: Tensor, targets_BT: Tensor, weight_BT: Tensor | None) -> Tensor:
        """() the mean of -sum_v softmax(s)_v log q(v | t)."""
        words_BTW, first_BTW = words_ahead(targets_BT, weight_BT, self.window)
        z_BTV = linear(facet_BTE, self.unembedding.weight)
        logp_BTV = z_BTV.to(torch.promote_types(z_BTV.dtype, torch.float32)).log_softmax(-1)
        near_W = torch.arange(self.window, device=z_BTV.device).neg().to(logp_BTV.dtype).exp()
        share_BTW = first_BTW * near_W
        # At least 1 by the next word. Only without it, where a position has weight 0, the sum may be less.
        share_BTW = share_BTW / share_BTW.sum(-1, keepdim=True).clamp(min=1)
        return weighted_mean(-(share_BTW * logp_BTV.gather(-1, words_BTW)).sum(-1), weight_BT)

    def forward(self, hidden: Hidden) -> WithAuxiliary:
        """Map (B, T, D) top states to the distribution of the next word."""
        facet_BTE = self.facet(hidden.layers[-1])
        return WithAuxiliary(facet_BTE, self.output, self.share(), partial(self.order_loss, facet_BTE))
