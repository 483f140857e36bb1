"""The logit maps phi, which are applied to each logit before the softmax: u = phi(z).

The lean evaluation knows the identity and the classes below. They have in addition:

- `scale` and `offset`: the matrix products fill its buffer with scale (z + offset);
- `map_`, which replaces them by u / ln 2 and, where gradients are needed, writes phi'(z) to another buffer. Both are in
  at least float32, also where the products are in bfloat16.
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

    def map_(self, block: Tensor, beside: Tensor | None = None) -> None:
        """Replace (c - z) / ln 2 by u / ln 2 in `block`; write phi'(z) to `beside`."""
        beyond = torch.empty_like(block) if beside is None else beside
        torch.ops.aten.softplus.out(block, math.log(2), LINEAR_FROM, out=beyond)  # softplus(c - z) / ln 2
        block.add_(beyond, alpha=self.k - 1).neg_()
        if self.c != 0:
            block.add_(self.c * LOG2_E)
        if beside is not None:
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

    def map_(self, block: Tensor, beside: Tensor | None = None) -> None:
        """Replace 2 z / c by u / ln 2 in `block`; write phi'(z) to `beside`.

        tanh(x) = 2 sigmoid(2 x) - 1 is used because torch computes the sigmoid six times as fast as tanh. In float32 u
        has an error of about c 2^-24, as a logit near c has by its rounding.
        """
        block.sigmoid_()
        if beside is not None:
            torch.ops.aten.sigmoid_backward.grad_input(block.new_full((), 4.0), block, grad_input=beside)
        torch.add(block.new_full((), -self.c * LOG2_E), block, alpha=2 * self.c * LOG2_E, out=block)


LeanMap = Bend | SoftCap
LOGIT_MAPS = {"identity": identity, "sigsoftmax": Bend(c=0.0, k=2.0)}  # name -> phi
