"""The logit maps phi, which are applied to each logit before the softmax: u = phi(z)."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

LINEAR_FROM = 40.0  # for larger x softplus(x) = x, also in float64: e^-40 < 2^-53


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


LOGIT_MAPS = {"identity": identity, "sigsoftmax": Bend(c=0.0, k=2.0)}  # name -> phi
