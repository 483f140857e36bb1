"""The memory of the lean evaluation: the output matrix in the type of the products, a buffer of logits, and the
sums.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from harness.kernels.layout import Slice
from harness.kernels.logit_maps import LOG2_E

if TYPE_CHECKING:
    from harness.kernels.lean import Lean

# The size of a chunk of logits on the CPU. More rows are not faster. With fewer rows the additions to dW take a larger
# part of the time, and with small chunks the number of calls does.
CHUNK_ROWS, LEAST_BYTES, MOST_BYTES = 256, 4 * 2**20, 64 * 2**20
CUDA_BYTES = 40 * 2**20  # fits in the L2 cache of a large GPU
NUM_ONES = 2  # columns of ones beside the facets: one for the bias b, one for the rounding error of b
ALIGNMENT = 8  # columns, so that rows are multiples of 16 bytes, which matrix units need


class Needs(NamedTuple):
    """Which gradients are needed."""

    facets: bool
    log_prior: bool
    weight: bool
    bias: bool


class Gradients(NamedTuple):
    """Gradients in the shapes of the inputs, in at least float32; None for those that are not needed."""

    facets: Tensor | None
    log_prior: Tensor | None
    weight: Tensor | None
    bias: Tensor | None


class Buffers:
    """The output matrix in the type of the products, and a buffer for the logits of `tokens` tokens. Chunks share it.

    The buffer holds scale (W h + o). For the identity, scale = 1 / ln 2 and o = b, the bias. Another logit map has its
    own scale, and its offset is added to b. If the products have the type of W, the matrix is W itself and o is added
    to the products. If W has to be rounded, the matrix is [W, o, o', 0], where o' is the rounding error of o. The
    number of tokens in a chunk depends only on sizes and never on a timing, so results are reproducible bit for bit.
    """

    def __init__(self, lean: "Lean"):
        self.products, self.scale = lean.products, LOG2_E if lean.logit_map is None else lean.logit_map.scale
        self.matrix_VC, self.offset_V = lean.weight_VE, _offset(lean)
        if lean.products.dtype(lean.facets_NFE) != lean.weight_VE.dtype:
            self.matrix_VC, self.offset_V = _rounded(lean, self.offset_V), None
        N, F, E = lean.facets_NFE.shape
        self.tokens = min(N, tokens_per_chunk(self.matrix_VC, len(lean.layout.partitions)))
        self.rows_rC = self.matrix_VC.new_zeros(self.tokens * F, _padded(E + NUM_ONES, ALIGNMENT))
        alignment = ALIGNMENT if self.matrix_VC.is_cuda else 1
        self.blocks = [self._room(part, alignment) for part in lean.layout.slices]
        self.slopes = []
        if lean.logit_map is not None:
            size = lean.mapped_at_once(self.blocks)
            self.slopes = [torch.empty_like(block[:size], dtype=lean.wide) for block in self.blocks]

    def logits(self, i: int, part: Slice, facets_nsE: Tensor) -> Tensor:
        """(n, s, V_s) the scaled logits of slice i, which is `part`."""
        block = self.blocks[i][: len(facets_nsE)]
        rows_rC = self.rows(facets_nsE, self.scale)[:, : self.matrix_VC.shape[1]]
        self.products.mm_(block.flatten(0, 1), rows_rC, self.matrix_VC[part.words].t())
        return block if self.offset_V is None else block.add_(self.offset_V[part.words], alpha=self.scale)

    def rows(self, facets_nsE: Tensor, scale: Tensor | float) -> Tensor:
        """(n s, C) the rows scale [h, 1, 1, 0], with scale (n, s, 1) or a number. The next call overwrites them."""
        n, s, E = facets_nsE.shape
        rows_nsC = self.rows_rC[: n * s].view(n, s, -1)
        rows_nsC[..., :E] = facets_nsE * scale
        rows_nsC[..., E : E + NUM_ONES] = scale
        return rows_nsC.flatten(0, 1)

    def _room(self, part: Slice, alignment: int) -> Tensor:
        """(tokens, s, V_s) an empty buffer, in which each row begins at a multiple of `alignment`."""
        num_words = len(range(part.start, len(self.matrix_VC), part.step))
        stride = _padded(num_words, alignment)
        return self.matrix_VC.new_empty(self.tokens, part.last - part.first, stride)[..., :num_words]


class Sums:
    """The gradients, to which each chunk adds its part. None for gradients that are not needed.

    Shapes: facets (N, F, E) in the type of the facets; log_prior (N, K); matrix (V, C'), the needed columns of
    [dW, db, db, 0], in at least float32. dW is always a view of a wider matrix, so autograd never takes it as a
    parameter's gradient without a copy.
    """

    def __init__(self, lean: "Lean", buffers: Buffers, needs: Needs):
        self.needs, self.width = needs, lean.weight_VE.shape[1]
        self.columns = slice(0 if needs.weight else self.width, None if needs.bias else self.width)
        self.facets = torch.empty_like(lean.facets_NFE) if needs.facets else None
        self.log_prior = torch.empty_like(lean.log_prior_NK) if needs.log_prior else None
        self.matrix = None
        if needs.weight or needs.bias:
            V, C = len(lean.weight_VE), buffers.rows_rC.shape[1]
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


def tokens_per_chunk(matrix_VC: Tensor, num_mixtures: int) -> int:
    """Return the number of tokens in a chunk, by its bytes. A token has K rows of V logits and K rows of C numbers."""
    row_bytes = max(matrix_VC.shape) * matrix_VC.element_size()
    num_rows = min(max(CHUNK_ROWS, LEAST_BYTES // row_bytes), MOST_BYTES // row_bytes)
    return max(1, (CUDA_BYTES // row_bytes if matrix_VC.is_cuda else num_rows) // num_mixtures)


def _offset(lean: "Lean") -> Tensor | None:
    """(V,) o: b, plus the offset of the logit map; None for zero."""
    offset = 0.0 if lean.logit_map is None else lean.logit_map.offset
    if offset == 0:
        return lean.bias_V
    return (lean.weight_VE.new_zeros(len(lean.weight_VE)) if lean.bias_V is None else lean.bias_V) + offset


def _rounded(lean: "Lean", offset_V: Tensor | None) -> Tensor:
    """[W, o, o', 0] in the products' type; [W, 0] without an offset."""
    (V, E), num_offsets = lean.weight_VE.shape, 0 if offset_V is None else NUM_ONES
    dtype = lean.products.dtype(lean.facets_NFE)
    matrix_VC = lean.weight_VE.new_empty(V, _padded(E + num_offsets, ALIGNMENT), dtype=dtype)
    matrix_VC[:, :E] = lean.weight_VE
    matrix_VC[:, E:] = 0
    if offset_V is not None:
        matrix_VC[:, E] = offset_V
        matrix_VC[:, E + 1] = offset_V - matrix_VC[:, E]
    return matrix_VC


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
