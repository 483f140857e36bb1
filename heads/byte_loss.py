"""Byte loss: a softmax, and in training maps that learn the first bytes of the next token."""

from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

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

END = 256  # the symbol after the last byte of a token
SYMBOLS = END + 1


def first_symbols(texts: tuple[bytes, ...], number: int) -> Tensor:
    """(V, n) int64: the first bytes of each text, END once after its last one, and then NO_TOKEN. A
    token without text has NO_TOKEN only.
    """
    rows = [[*text, END][:number] if text else [] for text in texts]
    return torch.tensor([row + [NO_TOKEN] * (number - len(row)) for row in rows])


@HEADS.register("byte_loss")
class ByteLoss(nn.Module):
    """Byte loss: a softmax whose training loss also has that of the next token's first bytes.

    f = h, or U h + a with `projection`;    log p = log_softmax(W f + b)
    log q_i = log_softmax(R_i f + r_i),  i = 1 .. n
    s_i = byte i of the text of y_t, and 256 for i = length + 1;    m_t = min(n, length + 1)
    loss = (1 / N) sum_t [ -log p(y_t | t) - (lambda / m_t) sum_(i = 1 .. m_t) log q_i(s_i | t) ]

    A token without text, such as <eos> of words, has the first term only. Evaluation has p only.

    Brief: learns the first bytes of the next token
    Cost: V + 257 n
    Shapes: top layer h (B, T, D) -> facet (B, T, E), output matrix W (V, E), R_i (257, E).
    Args:
        num_bytes: n.
        weight: lambda.
        fade: the shares of training at which lambda begins to fall and at which it is 0
            (harness.fading.Fade). None: it stays. Marin's falls to 0 at half of training.
        projection: apply an affine map D -> E before the output matrix.
        bias: add a bias b for each word.
        tie_weights: use the backbone's input embedding as W.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: an
            own W is Xavier-uniform, and b U(-1/sqrt(E), 1/sqrt(E)).
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
    Raises: ValueError when num_bytes < 1, weight < 0, fade is not 0 <= start < end <= 1, init_range
        <= 0, init_bias is 'uniform' without init_range or without b, or D differs from E without a
        projection. RuntimeError in training when the head was built without the bytes of the
        tokens.
    Source: our own definition. Marin's language models have such a loss of the first bytes, with a
        weight of 0.1 that falls to 0; it was not read, and is known from a description.
    Differs: NOT CONFIRMED: n, the symbol after the last byte, the mean over bytes, and that each
        byte has a map of its own, which does not see the bytes before it.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        num_bytes: int = 4,
        weight: float = 0.1,
        fade: Span | None = None,
        projection: bool = False,
        bias: bool = True,
        tie_weights: bool = False,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
    ):
        super().__init__()
        if num_bytes < 1:
            raise ValueError(f"num_bytes must be at least 1, got {num_bytes}")
        self.share = LossWeight(weight, fade)
        self.facet = facet_map(dims, projection=projection)
        self.spelling = nn.Linear(dims.d_embed, num_bytes * SYMBOLS)
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights)
        xavier_uniform_(self.facet, self.spelling)
        uniform_output_(self.output, init_range, init_bias)
        texts = dims.token_bytes
        if texts is not None and len(texts) != dims.vocab_size:
            raise ValueError(f"token_bytes must have V = {dims.vocab_size} texts, got {len(texts)}")
        symbols_Vn = None if texts is None else first_symbols(texts, num_bytes)
        # Not among the weights: it is of the corpus, and evaluation does not need it
        self.register_buffer("symbols_Vn", symbols_Vn, persistent=False)

    @classmethod
    def label(cls, p) -> str:
        name = "byte loss" if p.num_bytes == "" else f"loss of {p.num_bytes} bytes"
        return ("affine " if p.projection else "") + name + (", fading" if p.fade else "")

    def byte_loss(self, facet_BTE: Tensor, targets_BT: Tensor, weight_BT: Tensor | None) -> Tensor:
        """() the mean of -sum_i log q_i(s_i | t) / m_t.

        Raises: RuntimeError without the bytes of the tokens.
        """
        if self.symbols_Vn is None:
            what = "byte_loss needs HeadDims.token_bytes, the text of each token"
            raise RuntimeError(f"{what}: take a corpus whose codec has the method token_bytes")
        symbols_BTn = self.symbols_Vn[targets_BT]
        counts_BTn = symbols_BTn != NO_TOKEN
        z_BTM = linear(facet_BTE, self.spelling.weight, self.spelling.bias)
        z_BTM = z_BTM.to(torch.promote_types(z_BTM.dtype, torch.float32))
        logq_BTnS = z_BTM.unflatten(-1, (-1, SYMBOLS)).log_softmax(-1)
        logq_BTn = logq_BTnS.gather(-1, symbols_BTn.clamp(min=0)[..., None]).squeeze(-1)
        loss_BT = -(counts_BTn * logq_BTn).sum(-1) / counts_BTn.sum(-1).clamp(min=1)
        return weighted_mean(loss_BT, weight_BT)

    def forward(self, hidden: Hidden) -> WithAuxiliary:
        """Map (B, T, D) top states to the distribution of the next word."""
        facet_BTE = self.facet(hidden.layers[-1])
        auxiliary = partial(self.byte_loss, facet_BTE)
        return WithAuxiliary(facet_BTE, self.output, self.share(), auxiliary)
