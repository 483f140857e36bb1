"""Stacked LSTM."""

from torch import Tensor, nn

from harness.dropout import Dropout
from harness.protocols import Hidden
from harness.registry import BACKBONES


@BACKBONES.register("lstm")
class StackedLSTM(nn.Module):
    """A stack of LSTM layers of one width. The state is carried from segment to segment.

    x = dropout(embedding(tokens));    h_l, state_l = LSTM_l(dropout(h_{l-1}), state_l);    also after the top layer

    Shapes: tokens (B, T) -> num_layers layers of (B, T, d_model); state: for each layer (h, c), each (1, B, d_model).
    Args:
        d_model: width of the embedding and of every layer.
        num_layers: number of LSTM layers.
        dropout: probability of zeroing a unit of the embedding and of the output of each layer.
    Raises: ValueError when d_model or num_layers < 1, or dropout is not in [0, 1).
    Source: Zaremba et al. (2014), arXiv:1409.2329, section 3 (dropout on non-recurrent connections only).
    Differs: one nn.LSTM per layer, because heads may read every layer. The embedding is U(-0.1, 0.1), and the LSTM
        weights have torch's default U(-1/sqrt(d), 1/sqrt(d)).
    """

    def __init__(self, vocab_size: int, *, d_model: int = 200, num_layers: int = 2, dropout: float = 0.2):
        super().__init__()
        for name, size in {"d_model": d_model, "num_layers": num_layers}.items():
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(nn.LSTM(d_model, d_model, batch_first=True) for _ in range(num_layers))
        self.layer_dims = (d_model,) * num_layers
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, tokens_BT: Tensor, state: tuple[tuple[Tensor, Tensor], ...] | None = None) -> Hidden:
        """Map (B, T) token ids and the state after the previous segment to the states of all layers and the new
        state.
        """
        h_BTD = self.dropout(self.embedding(tokens_BT))
        layers, carried = [], []
        for index, lstm in enumerate(self.layers):
            h_BTD, layer_state = lstm(h_BTD, None if state is None else state[index])
            h_BTD = self.dropout(h_BTD)
            layers.append(h_BTD)
            carried.append(layer_state)
        return Hidden(tuple(layers), tuple(carried))
