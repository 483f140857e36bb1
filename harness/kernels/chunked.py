"""The exact evaluation of a mixture in chunks of tokens, as functions of autograd, and by log-normalisers alone.

It needs a buffer of a few hundred rows of logits (of all, where a GPU has the room) instead of N x K x V
probabilities, and computes the gradients from the same buffer.

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

Gradients are given to autograd and never written to parameters. So tied weights, accumulation over batches and
data-parallel hooks work as with any other function. Gradients in float32 are rounded by autograd to the type of the
input.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from harness.kernels.mixture import LOG2_E, Slice, Tensors, identity
from harness.kernels.products import Products
from harness.kernels.rows import Rows, combine_rows_, nll_of, normalisers, spread, tokens_at_once

# The size of a chunk of logits on the CPU: so many bytes, but at least so many rows. It has twice as many where words
# have partitions, since a facet then multiplies fewer words; never more than MOST_BYTES. More leaves the cache. With
# less the additions to dW and the number of calls take a larger part of the time. malloc asks the system for a block of
# more than 32 MiB, unless it has a free one.
CHUNK_BYTES, LEAST_ROWS, MOST_BYTES = 30 * 2**20, 512, 256 * 2**20
CUDA_BYTES = 40 * 2**20  # fits in the L2 cache of a large GPU
FLOAT32 = Products()
NUM_ONES = 2  # columns of ones beside the facets: one for the bias, one for its rounding error
ALIGNMENT = 8  # columns, so that rows are multiples of 16 bytes, which matrix units need


class Needs(NamedTuple):
    """Which gradients are needed."""

    facets: bool
    log_prior: bool
    weight: bool
    bias: bool


class Gradients(NamedTuple):
    """Gradients in the shapes of the inputs, None for those that are not needed. Those of the output matrix and of the
    bias are in at least float32.
    """

    facets: Tensor | None
    log_prior: Tensor | None
    weight: Tensor | None
    bias: Tensor | None


class Buffers:
    """The output matrix in the type of the products, and a buffer for the logits of `tokens` tokens. Chunks share it.

    The buffer holds scale (W h + o). For the identity, scale = 1 / ln 2 and o = b, the bias. Another logit map has its
    own scale, and its offset is added to b. If the products have the type of W, the matrix is W itself and o is added
    to the products. If W has to be rounded, the matrix is [W, s, s', 0] with s = scale o, where s' is the rounding
    error of s, and a row of the facets ends with ones, which no type rounds. On a CPU the number of tokens in a chunk
    depends only on sizes and never on a timing, so results are reproducible bit for bit.
    """

    def __init__(self, lean: "Lean"):
        self.products, self.scale = lean.products, lean.logit_map.scale if lean.bends else LOG2_E
        self.matrix_VC, self.offset_V = lean.weight_VE, _offset(lean)
        if lean.products.dtype(lean.facets_NFE) != lean.weight_VE.dtype:
            self.matrix_VC, self.offset_V = _rounded(lean, self.offset_V, self.scale), None
        N, F, E = lean.facets_NFE.shape
        most = lean.at_once or tokens_per_chunk(self.matrix_VC, lean.layout.partitions)
        self.tokens = math.ceil(N / math.ceil(N / most))  # the last chunk is about as large as the others
        self.rows_rC = self.matrix_VC.new_zeros(self.tokens * F, _padded(E + NUM_ONES, ALIGNMENT))
        alignment = ALIGNMENT if self.matrix_VC.is_cuda else 1
        self.blocks = [self._room(part, alignment) for part in lean.layout.slices]
        self.slopes = []
        if lean.bends:
            size = lean.mapped_at_once(self.blocks)
            self.slopes = [torch.empty_like(block[:size], dtype=lean.wide) for block in self.blocks]

    def logits(self, i: int, part: Slice, facets_nsE: Tensor) -> Tensor:
        """(n, s, V_s) the scaled logits of slice i, which is `part`."""
        block = self.blocks[i][: len(facets_nsE)]
        rows_rC = self.rows(facets_nsE, self.scale, ones=1.0)[:, : self.matrix_VC.shape[1]]
        self.products.mm_(block.flatten(0, 1), rows_rC, self.matrix_VC[part.words].t())
        return block if self.offset_V is None else block.add_(self.offset_V[part.words], alpha=self.scale)

    def rows(self, facets_nsE: Tensor, scale: Tensor | float, ones: Tensor | float) -> Tensor:
        """(n s, C) the rows [scale h, ones, ones, 0]; both are (n, s, 1) or a number. The next call overwrites them."""
        n, s, E = facets_nsE.shape
        rows_nsC = self.rows_rC[: n * s].view(n, s, -1)
        rows_nsC[..., :E] = facets_nsE * scale
        rows_nsC[..., E : E + NUM_ONES] = ones
        return rows_nsC.flatten(0, 1)

    def _room(self, part: Slice, alignment: int) -> Tensor:
        """(tokens, s, V_s) an empty buffer, in which each row begins at a multiple of `alignment`."""
        num_words = len(range(part.start, len(self.matrix_VC), part.step))
        stride = _padded(num_words, alignment)
        return self.matrix_VC.new_empty(self.tokens, part.last - part.first, stride)[..., :num_words]


class Sums:
    """The gradients, to which each chunk adds its part. None for gradients that are not needed.

    Shapes: facets (N, F, E) in the type of the facets; log_prior (N, K); matrix (V, C'), the needed columns of
    [dW, db, db, 0], in at least float32. A dW without db is contiguous where its rows are aligned: so autograd takes it
    as a parameter's gradient without a copy.
    """

    def __init__(self, lean: "Lean", buffers: Buffers, needs: Needs):
        self.needs, self.width = needs, lean.weight_VE.shape[1]
        self.columns = slice(0 if needs.weight else self.width, None if needs.bias else self.width)
        self.facets = torch.empty_like(lean.facets_NFE) if needs.facets else None
        self.log_prior = torch.empty_like(lean.log_prior_NK) if needs.log_prior else None
        self.matrix = None
        if needs.weight or needs.bias:
            V, C = len(lean.weight_VE), buffers.rows_rC.shape[1] if needs.bias else _padded(self.width, ALIGNMENT)
            self.matrix = lean.weight_VE.new_empty(V, C, dtype=lean.wide)[:, self.columns]  # the first chunk fills it

    @property
    def weight(self) -> Tensor | None:
        """(V, E) dW, a view of `matrix`."""
        return self.matrix[:, : self.width] if self.needs.weight else None

    @property
    def bias(self) -> Tensor | None:
        """(V,) db, a view of `matrix`."""
        return self.matrix[:, self.width if self.needs.weight else 0] if self.needs.bias else None

    @property
    def gradients(self) -> Gradients:
        """The gradients after the chunks so far."""
        return Gradients(self.facets, self.log_prior, self.weight, self.bias)


def tokens_per_chunk(matrix_VC: Tensor, partitions: Sequence[int]) -> int:
    """Return the largest number of tokens in a chunk, by its bytes. A token has K rows of V logits and K rows of C
    numbers.
    """
    row_bytes = max(matrix_VC.shape) * matrix_VC.element_size()
    if matrix_VC.is_cuda:
        num_rows = CUDA_BYTES // row_bytes
    else:
        num_rows = max(LEAST_ROWS, CHUNK_BYTES // row_bytes) * (2 if max(partitions) > 1 else 1)
        num_rows = min(num_rows, MOST_BYTES // row_bytes)
    return max(1, num_rows // len(partitions))


def _offset(lean: "Lean") -> Tensor | None:
    """(V,) o: b, plus the offset of the logit map; None for zero."""
    offset = lean.logit_map.offset if lean.bends else 0.0
    if offset == 0:
        return lean.bias_V
    return (lean.weight_VE.new_zeros(len(lean.weight_VE)) if lean.bias_V is None else lean.bias_V) + offset


def _rounded(lean: "Lean", offset_V: Tensor | None, scale: float) -> Tensor:
    """[W, s, s', 0] with s = scale o in the products' type; [W, 0] without an offset."""
    (V, E), num_offsets = lean.weight_VE.shape, 0 if offset_V is None else NUM_ONES
    dtype = lean.products.dtype(lean.facets_NFE)
    matrix_VC = lean.weight_VE.new_empty(V, _padded(E + num_offsets, ALIGNMENT), dtype=dtype)
    matrix_VC[:, :E] = lean.weight_VE
    matrix_VC[:, E:] = 0
    if offset_V is not None:
        scaled_V = scale * offset_V
        matrix_VC[:, E] = scaled_V
        matrix_VC[:, E + 1] = scaled_V - matrix_VC[:, E]
    return matrix_VC


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


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


@dataclass(frozen=True, eq=False, kw_only=True)
class Lean(Tensors):
    """A mixture and its targets, ready to be evaluated.

    Args:
        targets_N: None for statistics, which need no target.
        products: the precision and route of the products.
        z_loss: beta, the weight of the z-loss in `gradients`.
        combine_rows_: the code between the products (harness/kernels/rows.py).
        at_once: tokens of a chunk; None: as many as `tokens_per_chunk` says.
        The others are those of Tensors.
    """

    targets_N: Tensor | None = None
    products: Products = FLOAT32
    z_loss: float = 0.0
    combine_rows_: Callable[..., Rows] = combine_rows_
    at_once: int | None = None

    def nll(self) -> Tensor:
        """(N,) nats. 2 N K V E operations."""
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
                chunk = self._exponentials(tokens, buffers, sloped=self.bends)
                loss_N[tokens] = chunk.rows.nll
                if self.z_loss:
                    loss_N[tokens] += self.z_loss * chunk.rows.normaliser.square().mean(1)
                self._differentiate(chunk, weight_N[tokens, None], buffers, sums)
        return loss_N, sums.gradients

    @property
    def bends(self) -> bool:
        """Whether the logits are mapped."""
        return self.logit_map is not identity

    def own_types(self) -> torch.autocast:
        """Switch off torch.autocast, because types are chosen here."""
        return torch.autocast(self.facets_NFE.device.type, enabled=False)

    def _nll_N(self) -> Tensor:
        return self.facets_NFE.new_empty(len(self.targets_N), dtype=self.wide)

    def _chunks(self, size: int) -> Iterator[slice]:
        return (slice(i, i + size) for i in range(0, len(self.targets_N), size))

    def _exponentials(self, tokens: slice, buffers: Buffers, *, sloped: bool) -> _Chunk:
        """Compute the logits of a chunk, 2 N K V E operations, and from them everything except the gradients.

        sloped: multiply the exponentials by phi'.
        """
        facets_nFE = self.facets_NFE[tokens].to(self.wide)
        own_nKE, weight_nE, target_nK = self.targets(tokens, facets_nFE)
        blocks = self.logits(facets_nFE, buffers)
        slope_nK = None
        if self.bends:
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
        found = []
        size = self.mapped_at_once(blocks) if self.bends else len(target_nK)
        for some in (slice(i, i + size) for i in range(0, len(target_nK), size)):
            logits, few = [block[some] for block in blocks], target_nK[some]
            slopes = [beside[: len(few)] for beside in room]
            parts = self.mapped(logits, slopes) if self.bends else logits
            self._take_out(targets_n[some], parts)
            prior = None if prior_nK is None else prior_nK[some]
            found.append(self.combine_rows_(parts, facets, component, few, prior, self.log_epsilon))
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
            for i in range(0, len(block) if self.bends else 0, size):
                self.logit_map.map_(block[i : i + size], None if slope is None else slope[i : i + size])
        return wide

    def mapped_at_once(self, blocks: list[Tensor]) -> int:
        """How many tokens are mapped and combined at once: all of a chunk, unless that makes a copy."""
        return len(blocks[0]) if blocks[0].dtype == self.wide else tokens_at_once(*blocks)

    def targets(self, tokens: slice, facets_nFE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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
        rows_n = torch.arange(len(targets_n), device=targets_n.device)
        for part, block in zip(self.layout.slices, blocks, strict=True):
            # an index beyond the end belongs to another slice
            at_n = (targets_n // part.step).clamp(max=block.shape[-1] - 1)
            scored_n1 = (targets_n % part.step == part.start)[:, None]
            # not scatter_: on the CPU it copies a whole block of bfloat16
            block[rows_n, :, at_n] = block[rows_n, :, at_n].masked_fill_(scored_n1, -math.inf)

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
            scale_ns1 = scale_nF[:, part.facets, None]
            rows_rC = buffers.rows(chunk.facets_nFE[:, part.facets], scale_ns1, ones=scale_ns1)
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


def fused_nll(lean: Lean, log_sum_exp: Callable[..., Tensor]) -> Tensor:
    """(N,) nats, by a kernel that sums logits without storing them: 2 N K V E operations, no buffer. The logits are not
    mapped.

    The log-normaliser of a component is at least the logit of the target, which is one of its words. Here the two come
    from different sums in float32. For a target with probability near 1 and a logit near 100 the difference is
    rounding, up to 2e-5 of either sign, so it is set to 0 where it has the wrong sign.

    Args:
        log_sum_exp: maps rows (R, E), words (V, E), bias (V,) or None, and a precision to log-normalisers (R,).
    """
    with lean.own_types():
        normalisers_NK = normalisers(_log_normalisers(lean, log_sum_exp), lean.layout.partitions)
        *_, target_NK = lean.targets(slice(None), lean.facets_NFE.to(lean.wide))
        logp_NK = (target_NK - normalisers_NK).clamp(max=0)
        return nll_of(logp_NK if lean.log_prior_NK is None else logp_NK + lean.log_prior_NK, lean.log_epsilon)


def _log_normalisers(lean: Lean, log_sum_exp: Callable[..., Tensor]) -> Tensor:
    """(N, F) the logsumexp of each facet over the words that it scores."""
    weight_VE = lean.weight_VE.to(lean.facets_NFE.dtype)
    sums_NF = lean.facets_NFE.new_empty(lean.facets_NFE.shape[:2], dtype=lean.wide)
    for part in lean.layout.slices:
        rows_rE = lean.facets_NFE[:, part.facets].flatten(0, 1)
        bias_v = None if lean.bias_V is None else lean.bias_V[part.words]
        sums_r = log_sum_exp(rows_rE, weight_VE[part.words], bias_v, precision=lean.products.precision)
        sums_NF[:, part.facets] = sums_r.view(len(sums_NF), -1)
    return sums_NF


class WeightedNLL(torch.autograd.Function):
    """() sum_n w_n L_n for given weights w. The forward pass computes the gradients: 6 N K V E operations in total."""

    @staticmethod
    def forward(ctx: FunctionCtx, make: Any, weight_N: Tensor, targets_N: Tensor, *tensors: Tensor | None) -> Tensor:
        """tensors: facets, log prior, weight, bias; make(*tensors, targets_N=targets) -> Lean."""
        nll_N, ctx.gradients = make(*tensors, targets_N=targets_N).gradients(weight_N, Needs(*ctx.needs_input_grad[3:]))
        ctx.make = make
        ctx.save_for_backward(weight_N, targets_N, *tensors)
        return (weight_N * nll_N).sum()

    @staticmethod
    def backward(ctx: FunctionCtx, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """upstream: (). The first backward pass gives the gradients away; another one through a kept graph computes
        them again. Raises RuntimeError for create_graph=True.
        """
        _refuse_graph()
        weight_N, targets_N, *tensors = ctx.saved_tensors
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            needs = Needs(*ctx.needs_input_grad[3:])
            _, gradients = ctx.make(*tensors, targets_N=targets_N).gradients(weight_N, needs)
        if upstream.is_cuda or upstream != 1:  # on a GPU, reading the value takes longer than the product
            for gradient in gradients:
                if gradient is not None:
                    gradient.mul_(upstream)
        return None, None, None, *gradients


class TokenNLL(torch.autograd.Function):
    """(N,) L_n for any upstream gradient.

    Only the inputs are kept, and the backward pass evaluates again: 8 N K V E operations in total.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, make: Any, targets_N: Tensor, *tensors: Tensor | None) -> Tensor:
        """tensors: facets, log prior, weight, bias; make(*tensors, targets_N=targets) -> Lean."""
        ctx.make = make
        ctx.save_for_backward(targets_N, *tensors)
        return make(*tensors, targets_N=targets_N).nll()

    @staticmethod
    def backward(ctx: FunctionCtx, upstream_N: Tensor) -> tuple[Tensor | None, ...]:
        """upstream: (N,). Raises RuntimeError for create_graph=True."""
        _refuse_graph()
        targets_N, *tensors = ctx.saved_tensors
        _, gradients = ctx.make(*tensors, targets_N=targets_N).gradients(upstream_N, Needs(*ctx.needs_input_grad[2:]))
        return None, None, *gradients


def _refuse_graph() -> None:
    if torch.is_grad_enabled():
        raise RuntimeError("the lean loss has no second derivative; evaluate within harness.kernels.reference_only()")
