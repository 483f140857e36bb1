"""Weights of a head's losses, and factors of them that fall while the model is trained."""

import math

import torch
from torch import Tensor, nn

Span = tuple[float, float]  # where a factor begins to fall and where it is 0, as shares of training


class Fade(nn.Module):
    """A factor that falls from 1 to 0 while the model is trained.

    factor = min(1, max(0, (end - s) / (end - start))),    s: the share of training that is done

    `progress` is s (FollowsTraining in harness/protocols.py). In evaluation it is that of the last step before.

    Args:
        start, end: of the fall.
    Attributes:
        is_over: s >= end, known without a look at the tensor. Training sets it before each step, so
            that a loss whose factor is 0 is left out. It stays False in a CUDA graph, which
            computes such a loss to the end.
    Raises: ValueError unless 0 <= start < end <= 1.
    """

    def __init__(self, start: float, end: float):
        super().__init__()
        if not 0 <= start < end <= 1:
            raise ValueError(f"fade must be two shares of training, 0 <= start < end <= 1, got {[start, end]}")
        self.start, self.end, self.is_over = start, end, False
        self.register_buffer("progress", torch.zeros((), dtype=torch.float64))

    def forward(self) -> Tensor:
        """() the factor, in float64."""
        return ((self.end - self.progress.double()) / (self.end - self.start)).clamp(0, 1)

    def extra_repr(self) -> str:
        """Return 'start=0.33, end=0.67'."""
        return f"start={self.start}, end={self.end}"


class LossWeight(nn.Module):
    """The weight of an auxiliary loss, which may fall while the model is trained.

    Args:
        weight: lambda.
        fade: the start and the end of its fall to 0 (Fade); None: it stays.
    Raises: ValueError unless the weight is a finite number of at least 0, and as Fade does.
    """

    def __init__(self, weight: float, fade: Span | None):
        super().__init__()
        if not 0 <= weight < math.inf:
            raise ValueError(f"weight must be a finite number of at least 0, got {weight}")
        self.weight, self.fade = weight, None if fade is None else Fade(*fade)

    def forward(self) -> Tensor | float | None:
        """() lambda as it is now; None where the loss can be left out, because its fade is over."""
        return self.weight if self.fade is None else faded(self.weight, self.fade)


def faded(weight: float, fade: Fade) -> Tensor | None:
    """() the weight times the factor; None where the fade is over."""
    return None if fade.is_over else weight * fade()
