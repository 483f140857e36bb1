"""The last tokens themselves, for heads that count instead of learn. No network, no parameters."""

from torch import Tensor, nn
from torch.nn import functional

from harness.protocols import NO_TOKEN, Hidden
from harness.registry import BACKBONES


@BACKBONES.register("last_tokens", listed=False)
class LastTokens(nn.Module):
    """The hidden state at a position is the ids of its last tokens, its own token last.

    h_t = (x_{t-L+1}, ..., x_t);    x_j = -1 (NO_TOKEN) for j before the start of the text

    A suite does not name it: the trials of its key `ngrams` have it.

    Shapes: tokens (B, T) int64 -> one layer (B, T, L) int64, a view of B x (L + T) numbers; state (B, L). The embedding
        has width 0, so the backbone has no parameters.
    Args:
        length: L, the number of tokens.
    Raises: ValueError when length < 1.
    """

    def __init__(self, vocab_size: int, *, length: int = 2000):
        super().__init__()
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}")
        self.length, self.layer_dims = length, (length,)
        self.embedding = nn.Embedding(vocab_size, 0)

    def forward(self, tokens_BT: Tensor, state: Tensor | None = None) -> Hidden:
        """Map (B, T) token ids and the last tokens of the previous segment to the last tokens of each position."""
        if state is None:
            state = tokens_BT.new_full((len(tokens_BT), self.length), NO_TOKEN)
        text_BN = functional.pad(tokens_BT, (self.length, 0))
        text_BN[:, : self.length] = state
        return Hidden((text_BN[:, 1:].unfold(1, self.length, 1),), text_BN[:, -self.length :].clone())
