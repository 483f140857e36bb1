"""The logit maps phi, which are applied to each logit before the softmax: u = phi(z).

The lean evaluation knows the identity and the classes below. They have in addition:

- `scale` and `offset`: the matrix products fill its buffer with scale (z + offset);
- `map_`, which replaces them by (u - level) / ln 2, and writes phi'(z) to another buffer;
- `level`, a constant, which changes no probability.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

LINEAR_FROM = 40.0  # for larger x softplus(x) = x, also in float64: e^-40 < 2^-53
LOG2_E = math.log2(math.e)


def identity(z: Tensor) -> Tensor:
    """phi(z) = z: softmax."""
    return z


@dataclass(frozen=True, slots=True)
class Bend:
    """phi(z) = z - (k - 1) softplus(c - z): slope k far below c, slope 1 far above.

    (c, k) = (0, 2) is sigsoftmax, z + log sigmoid(z); this form never underflows.
    Source: Parthiban et al. (2021), equations 3 to 5, with softplus(x) = x + softplus(-x).
    """

    c: float
    k: float

    def __call__(self, z: Tensor) -> Tensor:
        """u = phi(z)."""
        return z - (self.k - 1) * functional.softplus(self.c - z, threshold=LINEAR_FROM)

    def slope(self, z: Tensor) -> Tensor:
        """phi'(z) = 1 + (k - 1) sigmoid(c - z)."""
        return 1 + (self.k - 1) * (self.c - z).sigmoid()

    @property
    def scale(self) -> float:
        """-1 / ln 2: the buffer has (c - z) / ln 2, of which softplus is computed."""
        return -LOG2_E

    @property
    def offset(self) -> float:
        """-c, which is added to the logits in the buffer."""
        return -self.c

    @property
    def level(self) -> float:
        """The constant c: the buffer gets (u - c) / ln 2."""
        return self.c

    def map_(self, block: Tensor, beside: Tensor) -> None:
        """Replace (c - z) / ln 2 by (u - c) / ln 2 in `block`; write phi'(z) to `beside`."""
        torch.ops.aten.softplus.out(block, math.log(2), LINEAR_FROM, out=beside)  # softplus(c - z) / ln 2
        block.add_(beside, alpha=self.k - 1).neg_()
        beside.neg_().exp2_().mul_(1 - self.k).add_(self.k)


@dataclass(frozen=True, slots=True)
class SoftCap:
    """phi(z) = c tanh(z / c): close to z for small logits, and never beyond -c and c.

    Args:
        c: the largest absolute value of a mapped logit, more than 0.
    Raises: ValueError when c is not a finite number above 0.
    Source: Bello et al. (2016), arXiv:1611.09940, section 5 (logit clipping by tanh); Gemma 2 (2024), arXiv:2408.00118,
        section 2, with c = 30 for the output layer.
    """

    c: float

    def __post_init__(self) -> None:
        if not 0 < self.c < math.inf:
            raise ValueError(f"softcap must be a finite number above 0, got {self.c}")

    def __call__(self, z: Tensor) -> Tensor:
        """u = phi(z)."""
        return self.c * (z / self.c).tanh()

    def slope(self, z: Tensor) -> Tensor:
        """phi'(z) = 1 - tanh(z / c)^2 = 4 s (1 - s), s = sigmoid(2 z / c)."""
        s = (z * self.scale).sigmoid()
        return 4 * s * (1 - s)

    @property
    def scale(self) -> float:
        """2 / c: the buffer has 2 z / c, of which the sigmoid is computed."""
        return 2 / self.c

    @property
    def offset(self) -> float:
        """0: nothing is added to the logits in the buffer."""
        return 0.0

    @property
    def level(self) -> float:
        """-c: u + c = 2 c sigmoid(2 z / c) needs no subtraction."""
        return -self.c

    def map_(self, block: Tensor, beside: Tensor) -> None:
        """Replace 2 z / c by (u + c) / ln 2 in `block`; write phi'(z) to `beside`.

        The sigmoid is used because torch computes it six times as fast as tanh.
        """
        block.sigmoid_()
        torch.ops.aten.sigmoid_backward.grad_input(block.new_full((), 4.0), block, grad_input=beside)
        block.mul_(2 * self.c * LOG2_E)


LeanMap = Bend | SoftCap
LOGIT_MAPS = {"identity": identity, "sigsoftmax": Bend(c=0.0, k=2.0)}  # name -> phi
