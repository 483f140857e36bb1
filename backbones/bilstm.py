"""Bidirectional LSTM: two stacks over one embedding, one for each direction of reading."""

from torch import Tensor, nn

from harness.backbones.lstm import StackedLSTM
from harness.protocols import Hidden
from harness.registry import BACKBONES


@BACKBONES.register("bilstm")
class BidirectionalLSTM(StackedLSTM):
    """Two language models with one embedding and one head: a stack of LSTM layers for each direction of reading.

    from the left:   log p(x_1 .. x_N) = sum_n log p(x_n | x_1 .. x_{n-1})
    from the right:  log p(x_1 .. x_N) = sum_n log p(x_n | x_{n+1} .. x_N)
    loss = (nll from the left + nll from the right) / 2,  averaged over the tokens of a segment

    `forward` is the stack that reads from left to right; under one seed it starts equal to that of `lstm`.
    `reversed_states` is the stack that reads from right to left. Its state is empty at the end of each segment, because
    the text after the segment is not known yet. No layer reads both stacks, so no position sees the token that it
    predicts.

    Shapes, parameters and errors: as StackedLSTM. d_model is the width of each of the two stacks.
    Source: Peters et al. (2018), arXiv:1802.05365, section 3.1, equation 1: the embedding and the softmax are shared,
        the LSTMs are not.
    Differs: words have embeddings instead of character convolutions; there are no projections and no residual
        connections. Both directions are trained on the same segments of a text, not on single sentences.
    """

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
        super().__init__(
            vocab_size,
            d_model=d_model,
            num_layers=num_layers,
            dropout=dropout,
            d_input=d_input,
            embedding_dropout=embedding_dropout,
            init_range=init_range,
        )
        d_first = self.embedding.embedding_dim
        self.reversed_layers = nn.ModuleList(
            self.cell(d_model if index else d_first, d_model, batch_first=True) for index in range(num_layers)
        )
        if init_range is not None:
            for parameter in self.reversed_layers.parameters():
                nn.init.uniform_(parameter, -init_range, init_range)

    def reversed_states(self, tokens_BT: Tensor) -> Hidden:
        """Map (B, T) token ids, the last of the text first, to the states of all layers, in the same order."""
        h_BTD = self.embedding_dropout(self.embedding(tokens_BT))
        layers = []
        for layer in self.reversed_layers:
            h_BTD = self.dropout(layer(h_BTD)[0])
            layers.append(h_BTD)
        return Hidden(tuple(layers))
