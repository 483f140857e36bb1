"""The exact evaluation of a Mixture in chunks of tokens.

It needs a buffer of a few hundred rows of logits instead of N x K x V probabilities, and computes the gradients from
the same buffer.

With z_nk = W h_nk + b, u = phi(z), target x_n and log weights l_nk = log pi_nk,

    A_nk = logsumexp_v u_nk[v];    a_nk = l_nk + u_nk[x_n] - A_nk;    L_n = -logsumexp_k a_nk;    r_nk = exp(a_nk + L_n)

    dL_n/dl_nk = -r_nk;    dL_n/dz_nk[v] = r_nk (exp(u_nk[v] - A_nk) - 1[v = x_n]) phi'(z_nk[v]) =: G_nk[v]
    dH = G W;    dW = G^T H;    db = G^T 1

A chunk has all components of its tokens, so r can be computed as soon as the logits of the chunk are. The buffer holds
E = exp(u - shift) of all words except the target (times phi' for a phi that bends). It is not scaled. Instead the
narrow matrices are scaled:

    dH = q o (E W) - t o W[x];    dW = E^T (q o H) - scatter(x, t o H)

with w the weight of the token, q = w r exp(shift - A) and t = w r (1 - exp(u[x] - A)) phi'(z[x]). The factor
1 - exp(u[x] - A) is computed from the sum over the other words, so no digits are lost if the probability of the target
is near 1. A weight beta of the z-loss adds beta mean_k A_nk^2 to L_n, and g exp(u_nk[v] - A_nk) phi'(z_nk[v]) to
G_nk[v], with g = 2 beta A_nk / K. Then q has r + g for r, and t has r (1 - exp(u[x] - A)) - g exp(u[x] - A).

There are three products, 6 N K V E operations. They give logits in units of ln 2, because exp2 is
four times as fast as exp. Letters: see harness/protocols.py; n is the number of tokens of a chunk.

Source: chunks of tokens and gradients in the forward pass: Liger's fused linear cross entropy (linkedin/Liger-Kernel).
Differs: a chunk has all components of a mixture, which makes the exact gradient of the mixture possible.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from harness.kernels import devices
from harness.kernels.buffers import Buffers, Gradients, Needs, Sums
from harness.kernels.layout import Layout
from harness.kernels.log_normalisers import fused_nll
from harness.kernels.logit_maps import LeanMap
from harness.kernels.products import Products
from harness.kernels.rows import Rows, spread, tokens_at_once


class _Chunk(NamedTuple):
    """A chunk after the exponentials and before the gradients.

    own_nKE: the facets that score the targets. target_nK: their mapped logits. slope_nK: phi' at the targets; None if
    phi is the identity. blocks: the exponentials, times phi' if gradients are needed.
    """

    tokens: slice
    facets_nFE: Tensor
    own_nKE: Tensor
    target_weight_nE: Tensor
    target_nK: Tensor
    blocks: list[Tensor]
    slope_nK: Tensor | None
    rows: Rows


@dataclass(frozen=True, slots=True)
class Lean:
    """A mixture and its targets, ready to be evaluated.

    Args:
        targets_N: None for statistics, which need no target.
        logit_map: phi; None for the identity.
        products: the precision and route of the products.
        z_loss: beta, the weight of the z-loss in `gradients`.
        The others are those of Mixture.
    """

    targets_N: Tensor | None
    facets_NFE: Tensor
    log_prior_NK: Tensor | None
    weight_VE: Tensor
    bias_V: Tensor | None
    layout: Layout
    logit_map: LeanMap | None
    log_epsilon: float | None
    products: Products
    z_loss: float = 0.0

    def nll(self) -> Tensor:
        """(N,) nats. 2 N K V E operations."""
        log_sum_exp = devices.log_sum_exp_kernel(self.facets_NFE.device)
        if log_sum_exp is not None and self.logit_map is None and self.wide == torch.float32:
            with self.own_types():
                return fused_nll(self, log_sum_exp)
        with self.own_types():
            buffers, nll_N = Buffers(self), self._nll_N()
            for tokens in self._chunks(buffers.tokens):
                nll_N[tokens] = self._exponentials(tokens, buffers, sloped=False).rows.nll
        return nll_N

    def gradients(self, weight_N: Tensor, needs: Needs) -> tuple[Tensor, Gradients]:
        """(N,) L_n = nll_n + beta mean_k A_nk^2, and the gradients of sum_n weight_n L_n. 6 N K V E operations if all
        gradients are needed.
        """
        with self.own_types():
            buffers, loss_N = Buffers(self), self._nll_N()
            sums = Sums(self, buffers, needs)
            for tokens in self._chunks(buffers.tokens):
                chunk = self._exponentials(tokens, buffers, sloped=self.logit_map is not None)
                loss_N[tokens] = chunk.rows.nll
                if self.z_loss:
                    loss_N[tokens] += self.z_loss * chunk.rows.normaliser.square().mean(1)
                self._differentiate(chunk, weight_N[tokens, None], buffers, sums)
        return loss_N, sums.gradients

    @property
    def wide(self) -> torch.dtype:
        """The type of statistics and sums: the type of the facets, but at least float32."""
        return torch.promote_types(self.facets_NFE.dtype, torch.float32)

    def own_types(self) -> torch.autocast:
        """Switch off torch.autocast, because types are chosen here."""
        return torch.autocast(self.facets_NFE.device.type, enabled=False)

    def _nll_N(self) -> Tensor:
        return self.facets_NFE.new_empty(len(self.targets_N), dtype=self.wide)

    def _chunks(self, size: int) -> Iterator[slice]:
        num_tokens = size if devices.in_sizes_only() else len(self.targets_N)
        return (slice(i, i + size) for i in range(0, num_tokens, size))

    def _exponentials(self, tokens: slice, buffers: Buffers, *, sloped: bool) -> _Chunk:
        """Compute the logits of a chunk, 2 N K V E operations, and from them everything except the gradients.

        sloped: multiply the exponentials by phi'.
        """
        facets_nFE = self.facets_NFE[tokens].to(self.wide)
        own_nKE, weight_nE, target_nK = self._targets(tokens, facets_nFE)
        blocks = self.logits(facets_nFE, buffers)
        slope_nK = None
        if self.logit_map is not None:
            slope_nK = self.logit_map.slope(target_nK)
            target_nK = self.logit_map(target_nK)
        rows = self._combined(tokens, blocks, target_nK, buffers.slopes if sloped else [])
        return _Chunk(tokens, facets_nFE, own_nKE, weight_nE, target_nK, blocks, slope_nK, rows)

    def logits(self, facets_nFE: Tensor, buffers: Buffers) -> list[Tensor]:
        """Return the scaled logits of each slice, before the map."""
        return [buffers.logits(i, part, facets_nFE[:, part.facets]) for i, part in enumerate(self.layout.slices)]

    def _combined(self, tokens: slice, blocks: list[Tensor], target_nK: Tensor, room: list[Tensor]) -> Rows:
        """Replace the logits of a chunk by exponentials, times phi' if there is `room` for it, and combine them.

        With a map, bfloat16 logits are converted to float32, a few tokens at a time, and are rounded again only after
        the exponentials and phi'.
        """
        targets_n, component = self.targets_N[tokens], self.layout.component
        prior_nK = None if self.log_prior_NK is None else self.log_prior_NK[tokens]
        facets = [range(part.first, part.last) for part in self.layout.slices]
        combine_rows_, found = devices.row_kernel(target_nK.device), []
        size = len(target_nK) if self.logit_map is None else self.mapped_at_once(blocks)
        for some in (slice(i, i + size) for i in range(0, len(target_nK), size)):
            logits, few = [block[some] for block in blocks], target_nK[some]
            slopes = [beside[: len(few)] for beside in room]
            parts = logits if self.logit_map is None else self.mapped(logits, slopes)
            self._take_out(targets_n[some], parts)
            prior = None if prior_nK is None else prior_nK[some]
            found.append(combine_rows_(parts, facets, component, few, prior, self.log_epsilon))
            if slopes:
                for block, part, slope in zip(logits, parts, slopes, strict=True):
                    torch.mul(part, slope, out=block)
        return found[0] if len(found) == 1 else Rows(*map(torch.cat, zip(*found, strict=True)))

    def mapped(self, logits: list[Tensor], slopes: list[Tensor] | None = None) -> list[Tensor]:
        """Return u / ln 2 in at least float32 for the scaled logits of each slice; write phi' to `slopes`.

        Logits that have this type already are overwritten.
        """
        wide = [block.to(self.wide) for block in logits]
        for block, slope in zip(wide, slopes or [None] * len(wide), strict=True):
            size = tokens_at_once(block)  # the operations of a map follow each other in the cache
            for i in range(0, len(block) if self.logit_map is not None else 0, size):
                self.logit_map.map_(block[i : i + size], None if slope is None else slope[i : i + size])
        return wide

    def mapped_at_once(self, blocks: list[Tensor]) -> int:
        """How many tokens are mapped and combined at once: all of a chunk, unless that makes a copy."""
        return len(blocks[0]) if blocks[0].dtype == self.wide else tokens_at_once(*blocks)

    def _targets(self, tokens: slice, facets_nFE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(n, K, E) the facets that score the targets, (n, E) the targets' rows of W, (n, K) the targets' logits z."""
        targets_n = self.targets_N[tokens]
        weight_nE = self.weight_VE.index_select(0, targets_n).to(self.wide)
        own_nKE = facets_nFE if self.layout.plain else facets_nFE.gather(1, self._owners(tokens))
        target_nK = torch.linalg.vecdot(own_nKE, weight_nE[:, None])
        if self.bias_V is not None:
            target_nK += self.bias_V.index_select(0, targets_n)[:, None]
        return own_nKE, weight_nE, target_nK

    def _take_out(self, targets_n: Tensor, blocks: list[Tensor]) -> None:
        """Set the targets' logits in the blocks to -inf.

        The blocks may be rounded. The target's logit is added later in float32, so no digits are lost if the
        probability of the target is near 1.
        """
        for part, block in zip(self.layout.slices, blocks, strict=True):
            # an index beyond the end belongs to another slice
            at_n = (targets_n // part.step).clamp(max=block.shape[-1] - 1)
            at_ns1 = at_n[:, None, None].expand(-1, block.shape[1], 1)
            scored_n11 = (targets_n % part.step == part.start)[:, None, None]
            block.scatter_(-1, at_ns1, block.gather(-1, at_ns1).masked_fill_(scored_n11, -math.inf))

    def _differentiate(self, chunk: _Chunk, weight_n1: Tensor, buffers: Buffers, sums: Sums) -> None:
        """Compute the gradients of a chunk, 4 N K V E operations, and add them to `sums`."""
        rest_nK, scale_nF = chunk.rows.rest, chunk.rows.scale
        if self.z_loss:
            rest_nK, scale_nF = self._with_z_loss(chunk)
        rest_nK, scale_nF = weight_n1 * rest_nK, weight_n1 * scale_nF
        if sums.log_prior is not None:
            sums.log_prior[chunk.tokens] = -weight_n1 * chunk.rows.share
        if chunk.slope_nK is not None:
            rest_nK = rest_nK * chunk.slope_nK
        if sums.facets is not None:
            sums.facets[chunk.tokens] = self._facet_gradient(chunk, rest_nK[..., None], scale_nF, buffers)
        if sums.matrix is not None:
            self._add_matrix_gradient(chunk, rest_nK[..., None], scale_nF, buffers, sums)

    def _with_z_loss(self, chunk: _Chunk) -> tuple[Tensor, Tensor]:
        """(n, K) r (1 - p[x]) - g p[x] and (n, F) the factors of the exponentials, with g = 2 beta A / K."""
        rows, K = chunk.rows, len(self.layout.partitions)
        pull_nK = 2 * self.z_loss / K * rows.normaliser
        own_nK = (chunk.target_nK - rows.normaliser).exp()
        pull_nF = spread(pull_nK, list(self.layout.partitions))
        return rows.rest - pull_nK * own_nK, rows.scale + pull_nF * rows.unit

    def _facet_gradient(self, chunk: _Chunk, rest_nK1: Tensor, scale_nF: Tensor, buffers: Buffers) -> Tensor:
        """(n, F, E) dH = q o (E W) - t o W[x]."""
        gradient_nFE = torch.empty_like(chunk.facets_nFE)
        for part, block in zip(self.layout.slices, chunk.blocks, strict=True):
            weight_vE = buffers.matrix_VC[part.words, : self.weight_VE.shape[1]]
            unscaled_rE = self.products.mm(block.flatten(0, 1), weight_vE)
            gradient_nFE[:, part.facets] = unscaled_rE.view(*block.shape[:2], -1) * scale_nF[:, part.facets, None]
        term_nKE = rest_nK1 * chunk.target_weight_nE[:, None]
        if self.layout.plain:
            return gradient_nFE.sub_(term_nKE)
        return gradient_nFE.scatter_add_(1, self._owners(chunk.tokens), -term_nKE)

    def _add_matrix_gradient(self, chunk: _Chunk, rest_nK1: Tensor, scale_nF, buffers: Buffers, sums: Sums) -> None:
        """[dW, db] += E^T (q o [H, 1]) - scatter(x, t o [H, 1])."""
        for part, block in zip(self.layout.slices, chunk.blocks, strict=True):
            rows_rC = buffers.rows(chunk.facets_nFE[:, part.facets], scale_nF[:, part.facets, None])
            # the first product for each word overwrites the sum
            first = chunk.tokens.start == 0 and part.first < self.layout.partitions[0]
            E_vr, columns_rC = block.flatten(0, 1).t(), rows_rC[:, sums.columns]
            self.products.addmm_(sums.matrix[part.words], E_vr, columns_rC, beta=0 if first else 1)
        targets_n = self.targets_N[chunk.tokens]
        if sums.weight is not None:
            sums.weight.index_add_(0, targets_n, (rest_nK1 * chunk.own_nKE).sum(1), alpha=-1)
        if sums.bias is not None:
            sums.bias.index_add_(0, targets_n, rest_nK1.sum((1, 2)), alpha=-1)

    def _owners(self, tokens: slice) -> Tensor:
        """(n, K, E) an index for gather and scatter along the facets: the facet that scores the target."""
        return self.layout.owners(self.targets_N[tokens])[..., None].expand(-1, -1, self.weight_VE.shape[1])
