"""A third party's head: softmax with a learned temperature."""

import torch
from torch import nn

from harness.distributions import Mixture
from harness.protocols import HeadDims, Hidden


class TemperatureSoftmax(nn.Module):
    """log p = log_softmax(W h exp(-s)),  s one learned number.

    Shapes: top layer h (B, T, D) -> facet (B, T, 1, D), output matrix W (V, D).
    """

    def __init__(self, dims: HeadDims, embedding: nn.Embedding, *, start: float = 0.1):
        super().__init__()
        self.output = nn.Linear(dims.layer_dims[-1], dims.vocab_size, bias=False)
        self.log_temperature = nn.Parameter(torch.tensor(start))

    def forward(self, hidden: Hidden) -> Mixture:
        """(B, T, D) top states -> a Mixture of one component."""
        facet_BTD = hidden.layers[-1] * torch.exp(-self.log_temperature)
        return Mixture(facet_BTD.unsqueeze(2), None, self.output.weight)
