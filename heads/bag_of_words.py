"""Bag-of-words prediction (Mahajan et al., 2025): a softmax, and in training which words occur soon after the next."""

import math
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.distributions import WithAuxiliary, facet_map, linear, output_layer, uniform_output_, xavier_uniform_
from harness.fading import LossWeight, Span
from harness.heads.token_order import words_ahead
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


@HEADS.register("bag_of_words")
class BagOfWords(nn.Module):
    """Bag of the words to come: a softmax, and a second output layer that learns which words occur after the next one.

    f = h, or U h + a with `projection`;    log p = log_softmax(W f + b);    z = R f + r
    a_v = 1 if word v is one of y_(t+1) .. y_(t+window-1), else 0
    loss = (1 / N) sum_t [ -log p(y_t | t) - lambda sum_v ( a_v log sigmoid(z_v) + (1 - a_v) log(1 - sigmoid(z_v)) ) ]

    The last position, after which no word is known, has the first term only. The second counts with the weight of
    y_(t+1), tokens of weight 0 are in no bag, and N is the sum of the weights. Evaluation has p only.

    Brief: learns which words come soon
    Cost: 2 softmaxes
    Shapes: top layer h (B, T, D) -> facet (B, T, E), output matrix W (V, E), R (V, E), r (V,).
    Args:
        window: how many words ahead the bag ends, the next word counted, which is not in it.
        weight: lambda.
        fade: the shares of training at which lambda begins to fall and at which it is 0 (harness.fading.Fade). None: it
            stays.
        projection: apply an affine map D -> E before the output matrix.
        bias: add a bias b for each word.
        tie_weights: use the backbone's input embedding as W.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: an own W is
            Xavier-uniform, and b U(-1/sqrt(E), 1/sqrt(E)).
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
    Raises: ValueError when window < 2, weight < 0, fade is not 0 <= start < end <= 1, init_range <= 0, init_bias is
        'uniform' without init_range or without b, or D differs from E without a projection.
    Source: Mahajan et al. (2025), arXiv:2510.14751, the hand-crafted summary (FSP-BoW), known from descriptions that
        print its equations; the paper itself was not read. They name windows of 12 and 100.
    Differs: the words have weights w(v) there, as tf-idf, which no description defines; here all are 1. So the loss is
        larger, and the default of lambda, which is 1 there, is ours. r, which starts at log((window - 1) / V), is ours,
        too. Words beyond the end of the segment count as absent.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        window: int = 12,
        weight: float = 0.1,
        fade: Span | None = None,
        projection: bool = False,
        bias: bool = True,
        tie_weights: bool = False,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
    ):
        super().__init__()
        if window < 2:
            raise ValueError(f"window must be at least 2, got {window}")
        self.window, self.share = window, LossWeight(weight, fade)
        self.facet = facet_map(dims, projection=projection)
        xavier_uniform_(self.facet)  # before the draws whose number depends on V
        self.unembedding = nn.Linear(dims.d_embed, dims.vocab_size)
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights)
        xavier_uniform_(self.unembedding)
        nn.init.constant_(self.unembedding.bias, math.log((window - 1) / dims.vocab_size))
        uniform_output_(self.output, init_range, init_bias)

    @classmethod
    def label(cls, p) -> str:
        name = f"bag of {p.window - 1} words"
        return ("affine " if p.projection else "") + name + (", fading" if p.fade else "")

    def bag_loss(self, facet_BTE: Tensor, targets_BT: Tensor, weight_BT: Tensor | None) -> Tensor:
        """() the binary cross-entropy, summed over words, of all positions but the last, over N."""
        weight_BT = torch.ones_like(targets_BT) if weight_BT is None else weight_BT
        words_BSW, first_BSW = words_ahead(targets_BT[:, 1:], weight_BT[:, 1:], self.window - 1)
        z_BSV = linear(facet_BTE[:, :-1], self.unembedding.weight, self.unembedding.bias)
        z_BSV = z_BSV.to(torch.promote_types(z_BSV.dtype, torch.float32))
        # -log sigmoid(z) = softplus(z) - z and -log(1 - sigmoid(z)) = softplus(z)
        inside_BS = (first_BSW * z_BSV.gather(-1, words_BSW)).sum(-1)
        loss_BS = functional.softplus(z_BSV).sum(-1) - inside_BS
        return (weight_BT[:, 1:] * loss_BS).sum() / weight_BT.sum()

    def forward(self, hidden: Hidden) -> WithAuxiliary:
        """Map (B, T, D) top states to the distribution of the next word."""
        facet_BTE = self.facet(hidden.layers[-1])
        return WithAuxiliary(facet_BTE, self.output, self.share(), partial(self.bag_loss, facet_BTE))
