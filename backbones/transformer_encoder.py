"""Encoder-only Transformer with a causal mask, as in Benka et al. (2021)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.dropout import Dropout, dropout
from harness.protocols import Hidden
from harness.registry import BACKBONES


@BACKBONES.register("transformer_encoder")
class TransformerEncoder(nn.Module):
    """A stack of post-norm Transformer encoder layers with a causal mask. No state is carried between segments.

    x_t = dropout(sqrt(d) embedding(token_t) + position_t);    h_l = layer_l(h_{l-1}), ReLU, norm after each residual
    position_{t,2i} = sin(t / 10000^(2i/d)),  position_{t,2i+1} = cos(t / 10000^(2i/d))

    Shapes: tokens (B, T) -> num_layers layers of (B, T, d_model). No state.
    Args:
        d_model: width of the embedding and of every layer.
        num_layers: number of encoder layers.
        num_heads: attention heads; must divide d_model.
        d_ff: width of the feed-forward block.
        dropout: probability of zeroing a unit of the sum of embedding and position.
        layer_dropout: dropout inside the encoder layers (attention, feed-forward, residuals).
    Raises: ValueError when a size is < 1, num_heads does not divide d_model, or a dropout is not in [0, 1).
    Source: Benka, Hammer and Su (2021), section 3; ChrisBenka/Transformer_MOS; layers: Vaswani et al. (2017),
        arXiv:1706.03762, sections 3.1 to 3.5.
    Differs: the authors' code uses its dropout of 0.2 only after the positions, and the layers have torch's default of
        0.1. Both are parameters here, with these defaults. As in their code, all matrices are Xavier-uniform, the
        embedding, too.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        d_model: int = 200,
        num_layers: int = 4,
        num_heads: int = 4,
        d_ff: int = 200,
        dropout: float = 0.2,
        layer_dropout: float = 0.1,
    ):
        super().__init__()
        for name, size in {"d_model": d_model, "num_layers": num_layers, "num_heads": num_heads, "d_ff": d_ff}.items():
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        for name, rate in {"dropout": dropout, "layer_dropout": layer_dropout}.items():
            if not 0 <= rate < 1:
                raise ValueError(f"{name} must be in [0, 1), got {rate}")
        if d_model % num_heads:
            raise ValueError(f"num_heads must divide d_model, got {num_heads} heads for a width of {d_model}")
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            CausalLayer(d_model, num_heads, d_ff, layer_dropout, batch_first=True) for _ in range(num_layers)
        )
        self.layer_dims = (d_model,) * num_layers
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, tokens_BT: Tensor, state: None = None) -> Hidden:
        """Map (B, T) token ids to the states of all layers. `state` is not used: a segment is the whole context."""
        T = tokens_BT.shape[1]
        x_BTD = self.embedding(tokens_BT) * math.sqrt(self.embedding.embedding_dim)
        h_BTD = self.dropout(x_BTD + sinusoidal_positions(T, x_BTD.shape[-1], x_BTD.device).to(x_BTD.dtype))
        layers = []
        for layer in self.layers:
            h_BTD = layer(h_BTD)
            layers.append(h_BTD)
        return Hidden(tuple(layers))


class CausalLayer(nn.TransformerEncoderLayer):
    """torch's post-norm encoder layer with a causal mask: the same parameters and function, with fewer passes over
    memory.

    a = x + drop(attention(x));    y = norm(a);    h = norm(y + drop(W2 drop(relu(W1 y))))

    Shapes: x (B, T, D) -> (B, T, D).
    Source: Vaswani et al. (2017), arXiv:1706.03762, sections 3.1 to 3.3.
    Differs: dropout is harness.dropout's.
    """

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Map the states of the layer below to those of this layer."""
        rate = self.dropout.p if self.training else 0.0
        mixed_BTD = causal_attention(self.self_attn, x_BTD, rate)
        y_BTD = self.norm1(x_BTD + dropout(mixed_BTD, rate, training=True))
        inner_BTF = dropout(functional.relu(self.linear1(y_BTD)), rate, training=True)
        return self.norm2(y_BTD + dropout(self.linear2(inner_BTF), rate, training=True))


def causal_attention(attention: nn.MultiheadAttention, x_BTD: Tensor, rate: float) -> Tensor:
    """(B, T, D) self-attention with the weights of `attention`. A position sees itself and those before it.

    On a GPU torch's fused operator computes it. On the CPU that operator has no dropout, and is slow by oneDNN's route.
    """
    B, T, D = x_BTD.shape
    H = attention.num_heads
    qkv_BTC = functional.linear(x_BTD, attention.in_proj_weight, attention.in_proj_bias)
    q_BHTd, k_BHTd, v_BHTd = qkv_BTC.view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4).unbind()
    if x_BTD.device.type == "cpu":
        q, k, v = (each.reshape(B * H, T, D // H) for each in (q_BHTd, k_BHTd, v_BHTd))
        hidden_TT = torch.full((T, T), -math.inf, dtype=x_BTD.dtype).triu(1)
        scores = torch.bmm(q / math.sqrt(D // H), k.transpose(1, 2)).add_(hidden_TT)
        mixed_BHTd = torch.bmm(dropout(scores.softmax(-1), rate, training=True), v).view(B, H, T, D // H)
    else:
        mixed_BHTd = functional.scaled_dot_product_attention(q_BHTd, k_BHTd, v_BHTd, dropout_p=rate, is_causal=True)
    return attention.out_proj(mixed_BHTd.transpose(1, 2).reshape(B, T, D))


def sinusoidal_positions(num_positions: int, d_model: int, device: torch.device | None = None) -> Tensor:
    """(T, D) float32: sines in even columns, cosines in odd columns, with wavelengths from 2 pi to 10000 * 2 pi."""
    position_T1 = torch.arange(num_positions, dtype=torch.float32, device=device)[:, None]
    even = torch.arange(0, d_model, 2, dtype=torch.float32, device=device)
    frequency = torch.exp(even * (-math.log(10000.0) / d_model))
    positions_TD = torch.empty(num_positions, d_model, device=device)
    positions_TD[:, 0::2] = torch.sin(position_T1 * frequency)
    positions_TD[:, 1::2] = torch.cos(position_T1 * frequency[: d_model // 2])
    return positions_TD
