"""GPT-2 (Radford et al., 2019), on the transformers library's model, with random weights."""

from typing import Literal

from torch import Tensor, nn

from harness.protocols import Hidden
from harness.registry import BACKBONES

SIZES = {"small": (768, 12, 12), "medium": (1024, 24, 16)}  # d_model, num_layers, num_heads
MAX_POSITIONS = 1024


@BACKBONES.register("gpt2")
class GPT2(nn.Module):
    """GPT-2: a pre-norm decoder with learned positions and tanh-approximated GELU. Randomly initialised.

    Shapes: tokens (B, T <= 1024) -> num_layers layers of (B, T, d_model); the top one is after the final layer norm,
        those below are raw residual-stream states. No state.
    Args:
        size: 'small' (d_model 768, 12 layers, 12 attention heads) or 'medium' (1024, 24, 16).
        d_model: width; None is the size's.
        num_layers: number of blocks; None is the size's.
        num_heads: attention heads; must divide d_model; None is the size's.
        dropout: rate of the embedding, residual and attention dropouts.
    Raises: ValueError when a size is < 1, num_heads does not divide d_model, dropout is not in [0, 1), or a segment is
        longer than 1024 tokens.
    Source: Radford et al. (2019), "Language Models are Unsupervised Multitask Learners"; transformers, GPT2Model.
    Differs: nothing; a library's model. Parameters: V d + 1024 d + L (12 d^2 + 13 d) + 2 d.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        size: Literal["small", "medium"] = "small",
        d_model: int | None = None,
        num_layers: int | None = None,
        num_heads: int | None = None,
        dropout: float = 0.1,
    ):
        from transformers import GPT2Config, GPT2Model  # here: it takes seconds to import

        super().__init__()
        sizes = {"d_model": d_model, "num_layers": num_layers, "num_heads": num_heads}
        sizes = {
            name: standard if given is None else given
            for (name, given), standard in zip(sizes.items(), SIZES[size], strict=True)
        }
        for name, number in sizes.items():
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        if sizes["d_model"] % sizes["num_heads"]:
            raise ValueError(
                f"num_heads must divide d_model, got {sizes['num_heads']} heads for a width of {sizes['d_model']}"
            )
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        self.model = GPT2Model(
            GPT2Config(
                vocab_size=vocab_size,
                n_embd=sizes["d_model"],
                n_layer=sizes["num_layers"],
                n_head=sizes["num_heads"],
                n_positions=MAX_POSITIONS,
                embd_pdrop=dropout,
                resid_pdrop=dropout,
                attn_pdrop=dropout,
                use_cache=False,
                bos_token_id=None,
                eos_token_id=None,
            )
        )
        self.layer_dims = (sizes["d_model"],) * sizes["num_layers"]

    @property
    def embedding(self) -> nn.Embedding:
        """The input embedding (V, d_model)."""
        return self.model.wte

    def forward(self, tokens_BT: Tensor, state: None = None) -> Hidden:
        """(B, T) token ids -> every layer's states. `state` is not used: each segment is its whole context."""
        if tokens_BT.shape[1] > MAX_POSITIONS:
            raise ValueError(f"gpt2 has {MAX_POSITIONS} positions, the segment has {tokens_BT.shape[1]} tokens")
        states = self.model(tokens_BT, output_hidden_states=True).hidden_states
        return Hidden(tuple(states[1:]))  # the first is the embedding's output
