"""Dropout, for heads and backbones."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

LEVELS = 2**16  # of the random integers that decide; an int64 has four of them
DECISIONS_PER_DRAW = 4


class Dropout(nn.Module):
    """Dropout (Srivastava et al., 2014): like nn.Dropout, with masks that are several times as fast on the CPU.

    y = x m / (1 - p) in training, with m = 0 with probability p and 1 otherwise, for each element; y = x in evaluation

    Shapes: x of any shape -> y of the same shape and type.
    Args:
        p: the probability of zeroing an element.
    Raises: ValueError when p is not in [0, 1).
    Source: Srivastava et al. (2014), "Dropout: A Simple Way to Prevent Neural Networks from Overfitting".
    Differs: on the CPU, an element is dropped when 16 random bits of its own are below 2^16 p, rounded up or down at
        random, once for all elements, so that the probability is p. A p above 1 - 2^-16 counts as this. All random
        numbers come from torch's generator of the CPU; the masks are the same on every processor and with any number
        of threads. On other devices it is torch's function.
    """

    def __init__(self, p: float):
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout must be in [0, 1), got {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Return x with dropped elements in training; x itself in evaluation."""
        return dropout(x, self.p, training=self.training)

    def extra_repr(self) -> str:
        """Return 'p=0.2'."""
        return f"p={self.p}"


class LockedDropout(Dropout):
    """Dropout with one mask for all positions of a segment (locked, or variational dropout).

    y_t = x_t m / (1 - p) in training, with the same m at each t

    Shapes: x (B, T, D) -> (B, T, D); m (B, 1, D).
    Args:
        p: the probability of zeroing a unit.
    Raises: ValueError when p is not in [0, 1).
    Source: Gal and Ghahramani (2016), arXiv:1512.05287, section 4; Merity et al. (2018), arXiv:1708.02182, section 4.2.
    Differs: as Dropout.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return x with dropped units in training; x itself in evaluation."""
        if not self.training or self.p == 0:
            return x
        return x * dropout(torch.ones_like(x[:, :1]), self.p, training=True)


Mask = Literal["position", "sequence"]
MASKS: dict[Mask, type[Dropout]] = {"position": Dropout, "sequence": LockedDropout}


def dropout(x: Tensor, p: float, *, training: bool) -> Tensor:
    """Dropout as a function, see `Dropout`."""
    if not training or p == 0:
        return x
    if x.device.type != "cpu":
        return functional.dropout(x, p)
    return x * factors(x, p)


def factors(like: Tensor, p: float) -> Tensor:
    """Return a tensor of 0, with probability p, and of 1 / (1 - p), in the shape and type of `like`, which is on the
    CPU.
    """
    p = min(p, 1 - 1 / LEVELS)
    lowest_kept = torch.rand((), dtype=torch.float64).add_(p * LEVELS - LEVELS // 2).floor_().to(torch.int16)
    draws = torch.empty(-(-like.numel() // DECISIONS_PER_DRAW), dtype=torch.int64).random_(-(2**63), None)
    integers = draws.view(torch.int16)[: like.numel()].view(like.shape)
    kept = torch.empty_like(like, memory_format=torch.contiguous_format, requires_grad=False)
    torch.ge(integers, lowest_kept, out=kept)  # with `out` it writes numbers, which is faster than to convert booleans
    return kept.div_(1 - p)
