"""Multi-token prediction: a softmax whose training loss also has the words after the next one."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from harness.distributions import (
    Cap,
    Mixture,
    facet_map,
    logit_map_of,
    output_layer,
    uniform_output_,
    xavier_uniform_,
)
from harness.fading import Fade, Span, faded
from harness.protocols import HeadDims, Hidden
from harness.registry import HEADS


class MultiToken(Mixture):
    """A softmax over the next word. Its training loss has the words after it, too.

    loss = (1 / N) sum_t [ -log p_0(y_t | t) - sum_k lambda_k log p_k(y_(t+k) | t) ]

    y_t is the target at t, and p_k the softmax of facet k. Targets beyond the end of the segment are left out. A token
    with a weight counts with that weight wherever it is predicted, and N is the sum of the weights. nll, mean_nll,
    log_probs and the z-loss are those of p_0.
    Shapes: facets (B, T, E) each, that of the next word first; weight (V, E); bias (V,) or None.
    Args:
        further: lambda_k, k = 1 .. K; numbers, or () tensors of weights that fade, or None for a loss that is left out.
    """

    def __init__(
        self, facets: list[Tensor], further: Sequence[float | Tensor | None], weight_VE: Tensor, bias_V, logit_map
    ):
        super().__init__(facets[0][:, :, None], None, weight_VE, bias_V, logit_map=logit_map)
        self.facets, self.shares = facets, (1.0, *further)

    def training_loss(self, targets_BT: Tensor, weight_BT: Tensor | None = None) -> Tensor:
        """() the loss above plus the z-loss."""
        _, T = targets_BT.shape
        weight_BT = torch.ones_like(targets_BT) if weight_BT is None else weight_BT
        weight_BT = weight_BT.to(self.wide)
        shares = {k: share for k, share in enumerate(self.shares) if share is not None}
        facets_BSE = torch.hstack([self.facets[k][:, : max(0, T - k)] for k in shares])
        targets_BS = torch.hstack([targets_BT[:, k:] for k in shares])
        weight_BS = torch.hstack([share * weight_BT[:, k:] for k, share in shares.items()])
        every = Mixture(facets_BSE[:, :, None], None, self.weight_VE, self.bias_V, logit_map=self.logit_map)
        loss = every.mean_nll(targets_BS, weight_BS) * weight_BS.sum() / weight_BT.sum()
        return loss + self.z_term(weight_BT)


@HEADS.register("mtp")
class MultiTokenPrediction(nn.Module):
    """Multi-token prediction (MTP): a softmax that also learns the words after the next one, over one output matrix.

    f_0 = h, or U h + a with `projection`;    log p_k = log_softmax(phi(W f_k + b));    training loss: MultiToken
    f_k = f_0 with maps 'shared';    f_k = A_k h + a_k with 'linear'

    Brief: multi-token prediction, further words
    Cost: 1 softmax
    Shapes: top layer h (B, T, D) -> facets (B, T, E), output matrix W (V, E), A_k (E, D).
    Args:
        further: lambda_k, the weights of the words after the next one in the training loss, the nearest first.
        fade: for each of these weights the shares of training at which it begins to fall and at which it is 0
            (harness.fading.Fade); modded-nanogpt has [[0.33, 0.67], [0, 0.33]] for (0.5, 0.25). None: they stay.
        maps: 'shared': one distribution is trained on all of these words, and nothing is added to a softmax; 'linear':
            each has an affine map of its own.
        projection: apply an affine map D -> E before the output matrix.
        bias: add a bias b for each word.
        tie_weights: use the backbone's input embedding as W.
        softcap: c: each logit z becomes c tanh(z / c) before the softmax (SoftCap; Gemma 2 has 30). {a, b, c}: it
            becomes a sigmoid((z + b) / c) (SigmoidCap; modded-nanogpt has 23, 5 and 7.5). None: z.
        init_range: r: W starts as U(-r, r), also if it is tied, and b as init_bias says. None: an own W is
            Xavier-uniform, and b U(-1/sqrt(E), 1/sqrt(E)).
        init_bias: the start of b with init_range: 'zero', or 'uniform', U(-r, r).
    Raises: ValueError when further is empty or has a number <= 0, fade is not as long or not 0 <= start < end <= 1,
        softcap <= 0, init_range <= 0, init_bias is 'uniform' without init_range or without b, or D differs from E
        without a projection.
    Source: Gloeckle et al. (2024), arXiv:2404.19737, which was not read; the shared form: KellerJordan/modded-nanogpt,
        records/track_1_short/2025-12-22_MultiTokenPrediction and triton_kernels.py at commit f411b3d.
    Differs: without `fade` the weights stay as they are. The heads of Gloeckle et al. are transformer
        layers, with weights of 1; an affine map sees one position only. Words beyond the segment are not known, so
        the last K positions have fewer targets.
    """

    def __init__(
        self,
        dims: HeadDims,
        embedding: nn.Embedding,
        *,
        further: tuple[float, ...] = (0.5, 0.25),
        fade: tuple[Span, ...] | None = None,
        maps: Literal["shared", "linear"] = "shared",
        projection: bool = False,
        bias: bool = True,
        tie_weights: bool = False,
        softcap: Cap | None = None,
        init_range: float | None = None,
        init_bias: Literal["zero", "uniform"] = "zero",
    ):
        super().__init__()
        if not further or min(further) <= 0:
            raise ValueError(f"further must have at least one weight, all of them more than 0, got {further}")
        if fade is not None and len(fade) != len(further):
            raise ValueError(f"fade: expected {len(further)} pairs, one for each weight in further, got {len(fade)}")
        self.further, self.phi = further, logit_map_of(softcap)
        self.fades = None if fade is None else nn.ModuleList(Fade(*span) for span in fade)
        self.facet = facet_map(dims, projection=projection)
        own = further if maps == "linear" else ()
        self.ahead = nn.ModuleList(nn.Linear(dims.layer_dims[-1], dims.d_embed) for _ in own)
        self.output = output_layer(dims, embedding, bias=bias, tie_weights=tie_weights)
        xavier_uniform_(self.facet, *self.ahead)
        uniform_output_(self.output, init_range, init_bias)

    @classmethod
    def label(cls, p) -> str:
        name = "affine MTP" if p.projection else "MTP"
        parts = [name, *(["linear maps"] if p.maps == "linear" else []), *(["fading"] if p.fade else [])]
        return ", ".join(parts)

    def forward(self, hidden: Hidden) -> MultiToken:
        """Map (B, T, D) top states to the distribution of the next word."""
        h_BTD = hidden.layers[-1]
        first_BTE = self.facet(h_BTD)
        others = [ahead(h_BTD) for ahead in self.ahead] or [first_BTE] * len(self.further)
        further = self.further
        if self.fades is not None:
            further = [faded(weight, fade) for weight, fade in zip(further, self.fades, strict=True)]
        return MultiToken([first_BTE, *others], further, self.output.weight, self.output.bias, self.phi)
