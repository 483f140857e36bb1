"""MultiMax (Zhou et al., 2024): a softmax whose logits are first bent, by eight learned numbers, at both ends."""

from typing import Literal

import torch
from torch import Tensor, nn

from harness.distributions import Logits, facet_map, linear, output_layer, uniform_output_, xavier_uniform_
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


@HEADS.register("multimax")
class MultiMax(nn.Module):
    """MultiMax: a softmax whose logits are bent at both ends by eight learned numbers.

    f = h, or U h + a with `projection`;    z = W f + c;    log p = log_softmax(sigma(z))
    sigma(z) = z + sum_{n = 1, 2} [ t_bn max(b_n - z, 0)^n + t_dn max(z - d_n, 0)^n ]

    sigma need not increase, so the most probable word need not be that of the largest logit.
    Brief: logits bent by eight learned numbers
    Cost: 1 softmax
    Shapes: top layer h (B, T, D) -> logits (B, T, V); output matrix W (V, E); additional parameters t_b1, t_d1, t_b2,
        t_d2 (4,) and b_1, d_1, b_2, d_2 (4,). All B T V logits are stored: no kernel evaluates this head in chunks.
    Args:
        init_std: the standard deviation of the eight numbers at the start, around 0. With 0 the head starts as a
            softmax, as in PaddlePaddle/PaddleFleet.
        projection: apply an affine map D -> E before the output matrix.
        bias: add a bias c for each word.
        tie_weights: use the backbone's input embedding as W.
        init_range: r: W starts as U(-r, r), also if it is tied, and c as init_bias says. None: an own W is
            Xavier-uniform, and c U(-1/sqrt(E), 1/sqrt(E)).
        init_bias: the start of c with init_range: 'zero', or 'uniform', U(-r, r).
    Raises: ValueError when init_std < 0, init_range <= 0, init_bias is 'uniform' without init_range or without c, or
        when D differs from E without a projection.
    Source: Zhou, Fritz and Keuper (2024), arXiv:2406.01189, equation 6; ZhouYuxuanYX/MultiMax at commit dcf1c36,
        transformer_decoder.py (SeLU, and output_layer, which uses it) and README.md. The paper itself was not read.
    Differs: the eight numbers are trained as other parameters are, with weight decay and in the norm of gradients that
        is clipped; the authors' README advises against both. They use the map in attention layers, too. Speed: a
        training step of 700 tokens at E = 32, V = 6,000 takes six times that of a softmax on a CPU core.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        init_std: float = 0.02,
        projection: bool = False,
        bias: bool = True,
        tie_weights: bool = False,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
    ):
        super().__init__()
        if init_std < 0:
            raise ValueError(f"init_std must be at least 0, got {init_std}")
        self.facet = facet_map(dims, projection=projection)
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights)
        xavier_uniform_(self.facet)
        uniform_output_(self.output, init_range, init_bias)
        self.temperatures = nn.Parameter(init_std * torch.randn(4))
        self.bounds = nn.Parameter(init_std * torch.randn(4))

    @classmethod
    def label(cls, p) -> str:
        return ("affine " if p.projection else "") + "MultiMax"

    def sigma(self, z: Tensor) -> Tensor:
        """Apply the map to each element."""
        (t_b1, t_d1, t_b2, t_d2), (b_1, d_1, b_2, d_2) = self.temperatures, self.bounds
        first = t_b1 * (b_1 - z).relu() + t_d1 * (z - d_1).relu()
        return z + first + t_b2 * (b_2 - z).relu() ** 2 + t_d2 * (z - d_2).relu() ** 2

    def forward(self, hidden: Hidden) -> Logits:
        """Map (B, T, D) top states to the bent logits, (B, T, V), in at least float32."""
        z_BTV = linear(self.facet(hidden.layers[-1]), self.output.weight, self.output.bias)
        return Logits(self.sigma(z_BTV.to(torch.promote_types(z_BTV.dtype, torch.float32))))
