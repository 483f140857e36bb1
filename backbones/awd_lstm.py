"""AWD-LSTM: a stacked LSTM with dropped recurrent weights, and masks that stay for a whole segment."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from harness.dropout import LockedDropout, dropout
from harness.protocols import Hidden
from harness.registry import BACKBONES

RECURRENT = "weight_hh_l0"  # of nn.LSTM


@BACKBONES.register("awd_lstm")
class AwdLSTM(nn.Module):
    """The LSTM of AWD-LSTM. The state is carried from segment to segment. In training, with masks m that are drawn once
    a segment:

        x = locked_i( (m_e W_e)[tokens] )             m_e has one number for each word
        h_l = LSTM_l(y_{l-1}; m_l U_l), y_0 = x       U_l: the recurrent weights, m_l one number for each
        y_l = locked_h(h_l), of the top layer locked(h_l): what the heads read

    Shapes: tokens (B, T) -> num_layers layers, (B, T, d_hidden) and on top (B, T, d_last); state: for each layer
        (h, c), each (1, B, width).
    Args:
        d_embed: width of the input embedding.
        d_hidden: width of all layers but the top one.
        d_last: width of the top layer; None for d_embed.
        num_layers: number of LSTM layers.
        dropout: probability of zeroing a unit of the top layer's output.
        hidden_dropout: the same for the outputs of the layers below (`dropouth`).
        input_dropout: the same for the embedding's output (`dropouti`).
        embedding_dropout: probability of zeroing a word in a whole segment (`dropoute`).
        weight_drop: probability of zeroing a recurrent weight in a whole segment (`wdrop`).
    Raises: ValueError when a width or num_layers < 1, or a probability is not in [0, 1).
    Source: Merity, Keskar and Socher (2018), arXiv:1708.02182, sections 2 and 4; salesforce/awd-lstm-lm, model.py;
        Yang et al. (2018) and zihangdai/mos, model.py, where the top layer has a width of its own.
    Differs: masks are drawn from the trial's own streams (harness/dropout.py). A weight that is dropped stays a
        parameter of nn.LSTM, and torch.func gives the layer the dropped one, so nothing of torch is replaced.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        d_embed: int = 400,
        d_hidden: int = 1150,
        d_last: int | None = None,
        num_layers: int = 3,
        dropout: float = 0.4,
        hidden_dropout: float = 0.25,
        input_dropout: float = 0.4,
        embedding_dropout: float = 0.1,
        weight_drop: float = 0.5,
    ):
        super().__init__()
        d_last = d_embed if d_last is None else d_last
        for name, size in {
            "d_embed": d_embed,
            "d_hidden": d_hidden,
            "d_last": d_last,
            "num_layers": num_layers,
        }.items():
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        for name, p in {"embedding_dropout": embedding_dropout, "weight_drop": weight_drop}.items():
            if not 0 <= p < 1:
                raise ValueError(f"{name} must be in [0, 1), got {p}")
        self.embedding_dropout, self.weight_drop = embedding_dropout, weight_drop
        self.embedding = nn.Embedding(vocab_size, d_embed)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.input_dropout = LockedDropout(input_dropout)
        self.hidden_dropout = LockedDropout(hidden_dropout)
        self.dropout = LockedDropout(dropout)
        self.layer_dims = (d_hidden,) * (num_layers - 1) + (d_last,)
        below = (d_embed, *self.layer_dims)
        self.layers = nn.ModuleList(
            nn.LSTM(narrow, wide, batch_first=True) for narrow, wide in zip(below, self.layer_dims, strict=False)
        )

    def forward(self, tokens_BT: Tensor, state: tuple[Any, ...] | None = None) -> Hidden:
        """Map (B, T) token ids and the state after the previous segment to the states of all layers and the new
        state.
        """
        h_BTD = self.input_dropout(self._embedded(tokens_BT))
        layers, carried = [], []
        for index, layer in enumerate(self.layers):
            h_BTD, layer_state = self._read(layer, h_BTD, None if state is None else state[index])
            undropped_BTD = h_BTD
            h_BTD = (self.dropout if index == len(self.layers) - 1 else self.hidden_dropout)(h_BTD)
            layers.append(h_BTD)
            carried.append(layer_state)
        return Hidden(tuple(layers), tuple(carried), undropped_BTD)

    def _embedded(self, tokens_BT: Tensor) -> Tensor:
        """(B, T, E) the embedded tokens; in training those of some words are zero."""
        h_BTE = self.embedding(tokens_BT)
        if not self.training:
            return h_BTE
        mask_V1 = dropout(torch.ones_like(self.embedding.weight[:, :1]), self.embedding_dropout, training=True)
        return h_BTE * mask_V1[tokens_BT]

    def _read(self, layer: nn.LSTM, x_BTD: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The output of a layer and its new state; in training some recurrent weights are zero."""
        if not self.training:
            return layer(x_BTD, state)
        dropped = {RECURRENT: dropout(getattr(layer, RECURRENT), self.weight_drop, training=True)}
        return functional_call(layer, dropped, (x_BTD, state))
