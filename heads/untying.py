"""Untying: a softmax over the input embedding, and from a share of training on over a copy."""

from typing import Literal

import torch
from torch import Tensor, nn

from harness.distributions import Mixture, facet_map, output_layer, uniform_output_, xavier_uniform_
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


@HEADS.register("untying")
class UntyingSoftmax(nn.Module):
    """Untying: a softmax over the input embedding, and from a share of training on over a copy.

    f = h, or U h + a with `projection`;    log p = log_softmax(M f + b)
    M = Emb, the input embedding, while s < share;    s: the share of training that is done
    M = W from the first step with s >= share, where W begins as Emb is then

    Before the share it is a softmax with tied weights: the gradient of M is that of Emb, and that
    of W is 0. Each step of training sets W to Emb anew, so that weight decay does not shrink it. At
    the share, momentum and moments of W are 0, but for the weight decay that sgd and adam add to
    gradients. The number t of Adam's steps is not 0, so that the first step of W has the learning
    rate times (1 - beta1) / (1 - beta1^t) sqrt((1 - beta2^t) / (1 - beta2)), and not once: in a
    long training 3.2 times with 0.9 and 0.999, and 0.45 times with 0.9 and 0.95.

    Brief: tied weights, untied during training
    Cost: 1 softmax
    Shapes: top layer h (B, T, D) -> facet f (B, T, E), Emb and W (V, E); both count from the start.
    Args:
        share: the share of training at which W begins. 0: from the first step on.
        projection: apply an affine map D -> E before the output matrix.
        bias: add a bias b for each word.
        init_range: r: Emb starts as U(-r, r), and b as init_bias says. None: Emb as the backbone
            says, and b U(-1/sqrt(E), 1/sqrt(E)).
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
    Raises: ValueError when share is not in [0, 1), init_range <= 0, init_bias is 'uniform' without
        init_range or without b, D differs from E without a projection, or the embedding is frozen,
        so that nothing would be learned before the share.
    Source: KellerJordan/modded-nanogpt, record 53 (December 2025), and train_gpt.py at commit
        f411b3d, method copy_lm_state_to_embed.
    Differs: the authors train the output matrix, and copy it to the embedding after each step. At
        the share, two thirds of training and an odd step, the embedding also gets Adam's moments
        and number of steps of the output matrix. Here Emb keeps its state, and W has none.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        share: float = 2 / 3,
        projection: bool = False,
        bias: bool = True,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
    ):
        super().__init__()
        if not 0 <= share < 1:
            raise ValueError(f"share must be at least 0 and less than 1, got {share}")
        if not embedding.weight.requires_grad:
            raise ValueError("untying needs a backbone whose embedding is trained; it is frozen")
        self.share = share
        self.facet = facet_map(dims, projection=projection)
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=True)
        self.__dict__["embedding"] = embedding  # the backbone's: it is no parameter of this module
        xavier_uniform_(self.facet)
        uniform_output_(self.output, init_range, init_bias)
        self.output.weight = nn.Parameter(embedding.weight.clone())
        self.register_buffer("progress", torch.zeros((), dtype=torch.float64))
        # Whether a step of training was made with W
        self.register_buffer("has_begun", torch.zeros((), dtype=torch.bool))

    @classmethod
    def label(cls, p) -> str:
        name = "softmax, untied" + ("" if p.share == "" else f" at {p.share:.2g}")
        return ("affine " if p.projection else "") + name

    def matrix(self) -> Tensor:
        """(V, E) M. In training it also sets W. A captured step may record it: nothing but tensors
        depends on the values of tensors.
        """
        is_tied, own_VE = self.progress < self.share, self.output.weight
        weight_VE = self.embedding.weight.to(own_VE.dtype)
        if self.training:
            with torch.no_grad():
                # Also in the first step with W, since Emb has learned in the step before it
                own_VE.copy_(torch.where(self.has_begun, own_VE, weight_VE))
                self.has_begun.copy_(~is_tied)
        return torch.where(is_tied, weight_VE, own_VE)

    def forward(self, hidden: Hidden) -> Mixture:
        """Map (B, T, D) top states to a Mixture of one component."""
        facet_BTE = self.facet(hidden.layers[-1])
        return Mixture(facet_BTE[:, :, None], None, self.matrix(), self.output.bias)
