"""LMS-PLIF (Ganea et al., 2019): a softmax over logits that are mapped by a learned increasing function."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.distributions import Mixture, facet_map, output_layer, uniform_output_, xavier_uniform_
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


@HEADS.register("plif")
class PiecewiseLinearSoftmax(nn.Module):
    """LMS-PLIF: a linear monotonic softmax with a piecewise-linear increasing function of M pieces on [-T, T].

    f = h, or U h + a with `projection`;    z = W f + b;    log p = log_softmax(phi(z))
    phi(z) = (z - knot_i) s_i + delta sum_{j<i} s_j,    s_i = softplus(w_i),  delta = 2T / M,  knot_i = -T + i delta
    i = floor((z + T) / delta), limited to 0 .. M - 1: the outer pieces continue beyond the range.

    Brief: a piecewise-linear map of the logits
    Cost: 1 softmax
    Shapes: top layer h (B, T, D) -> facet f (B, T, 1, E), output matrix W (V, E); w (M,) additional parameters.
    Args:
        num_pieces: M, the number of pieces.
        bound: T, the range of logits.
        noise: the standard deviation of the initial w around log(e - 1), at which the slope is 1.
        slope_rate: the learning rate of w, as a factor of that of the other parameters.
        projection: apply an affine map D -> E before the output matrix.
        bias: add a bias b for each word.
        tie_weights: use the backbone's input embedding as W.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: an own W is
            Xavier-uniform, and b U(-1/sqrt(E), 1/sqrt(E)).
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
    Raises: ValueError when init_range <= 0, init_bias is 'uniform' without init_range or without b, num_pieces < 1,
        bound <= 0, noise < 0, slope_rate <= 0, or when D differs from E without a projection.
    Source: Ganea et al. (2019), arXiv:1902.08077; quettabit/awd-lstm-lmkit, top_models/smax/plif_smax.py, with its
        default arguments (M = 1e5, T = 20, noise 1).
    Differs: the learning rate of w follows that of the other parameters; in the authors' code it is 0.02 throughout.
        The sums at the knots are computed in float64. On the CPU the gradient is reproducible bit for bit, which the
        gather of the authors' code does not guarantee. NOT CONFIRMED in the 2019 paper, which was not read: the code is
        by another group.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        num_pieces: int = 100_000,
        bound: float = 20.0,
        noise: float = 1.0,
        slope_rate: float = 1.0,
        projection: bool = False,
        bias: bool = True,
        tie_weights: bool = False,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
    ):
        super().__init__()
        if num_pieces < 1:
            raise ValueError(f"num_pieces must be at least 1, got {num_pieces}")
        if bound <= 0:
            raise ValueError(f"bound must be more than 0, got {bound}")
        if noise < 0:
            raise ValueError(f"noise must be at least 0, got {noise}")
        if slope_rate <= 0:
            raise ValueError(f"slope_rate must be more than 0, got {slope_rate}")
        self.num_pieces, self.bound = num_pieces, bound
        self.facet = facet_map(dims, projection=projection)
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights)
        xavier_uniform_(self.facet)
        uniform_output_(self.output, init_range, init_bias)
        self.learning_rates = {"raw_slope": slope_rate}
        self.raw_slope = nn.Parameter(math.log(math.e - 1) + noise * torch.randn(num_pieces))

    @classmethod
    def label(cls, p) -> str:
        return "PLIF"

    def phi(self, z: Tensor) -> Tensor:
        """Apply the logit map to each element."""
        delta = 2 * self.bound / self.num_pieces
        slope_M = functional.softplus(self.raw_slope.double())
        height_M = delta * (slope_M.cumsum(0) - slope_M)  # phi at the knots
        # a NaN has any piece: the value is NaN, and training ends as diverged
        piece = ((z + self.bound) / delta).nan_to_num().clamp(0, self.num_pieces - 1).long()
        knot = piece.to(z.dtype) * delta - self.bound
        slope, height = (_looked_up(table_M.to(z.dtype), piece) for table_M in (slope_M, height_M))
        return (z - knot) * slope + height

    def forward(self, hidden: Hidden) -> Mixture:
        """Map (B, T, D) top states to a Mixture of one component with the logit map phi."""
        facet_BTE = self.facet(hidden.layers[-1])
        return Mixture(facet_BTE[:, :, None], None, self.output.weight, self.output.bias, logit_map=self.phi)


def _looked_up(table_M: Tensor, index: Tensor) -> Tensor:
    """Return table[index].

    With several CPU threads, index_select sums its gradient in a fixed order; indexing does not.
    """
    return table_M.index_select(0, index.flatten()).view_as(index)
