"""What a mixture of softmaxes consists of: its tensors, which facets score which words, and the maps of its logits.

A logit map phi is applied to each logit before the softmax: u = phi(z). The evaluation in chunks knows the identity and
the classes below. They have in addition:

- `scale` and `offset`: the matrix products fill its buffer with scale (z + offset);
- `map_`, which replaces them by u / ln 2 and, where gradients are needed, writes phi'(z) to another buffer. Both are in
  at least float32, also where the products are in bfloat16.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

LINEAR_FROM = 40.0  # for larger x softplus(x) = x, also in float64: e^-40 < 2^-53
LOG2_E = math.log2(math.e)
LEAST_SQUARE = 2.0**-23  # a unit of float32 at 1


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


@dataclass(frozen=True, slots=True)
class SigmoidCap:
    """phi(z) = a sigmoid((z + b) / c): between 0 and a, and steepest at z = -b.

    SoftCap(c) is that with (2 c, 0, c / 2), less c, which a softmax does not see.

    Args:
        a: the upper limit of a mapped logit, more than 0.
        b: minus the logit at which the slope is a / (4 c), its largest.
        c: the width of the rise, more than 0.
    Raises: ValueError when a or c is not a finite number above 0, or b is not finite.
    Source: KellerJordan/modded-nanogpt, train_gpt.py at commit f411b3d, with (23, 5, 7.5).
    """

    a: float
    b: float
    c: float

    def __post_init__(self) -> None:
        if not (0 < self.a < math.inf and -math.inf < self.b < math.inf and 0 < self.c < math.inf):
            raise ValueError(f"softcap: a and c must be finite numbers above 0, and b finite, got {self}")

    def __call__(self, z: Tensor) -> Tensor:
        """u = phi(z)."""
        return self.a * ((z + self.b) / self.c).sigmoid()

    def slope(self, z: Tensor) -> Tensor:
        """phi'(z) = a s (1 - s) / c, s = sigmoid((z + b) / c)."""
        s = ((z + self.b) / self.c).sigmoid()
        return self.a / self.c * s * (1 - s)

    @property
    def scale(self) -> float:
        """1: the buffer has z + b, so that bfloat16 products round b no more than the logits."""
        return 1.0

    @property
    def offset(self) -> float:
        """b, which is added to the logits in the buffer."""
        return self.b

    def map_(self, block: Tensor, beside: Tensor | None = None) -> None:
        """Replace z + b by u / ln 2 in `block`; write phi'(z) to `beside`."""
        block.mul_(1 / self.c).sigmoid_()
        if beside is not None:
            torch.ops.aten.sigmoid_backward.grad_input(block.new_full((), self.a / self.c), block, grad_input=beside)
        block.mul_(self.a * LOG2_E)


@dataclass(frozen=True, slots=True)
class HarmonicMap:
    """phi(z) = -(n / 2) log(1 - z): the log of a harmonic similarity d^-n, where 1 - z is proportional to d^2.

    1 - z counts as 2^-23 where it is smaller, and has no slope there: in float32 it is the rounding of z by then.

    Args:
        n: the harmonic exponent, more than 0.
    Source: Baek et al. (2025), arXiv:2502.01628; heads/harmonic.py says what z is.
    """

    n: float

    def __call__(self, z: Tensor) -> Tensor:
        """u = phi(z)."""
        return -self.n / 2 * (1 - z).clamp(min=LEAST_SQUARE).log()

    def slope(self, z: Tensor) -> Tensor:
        """phi'(z) = (n / 2) / (1 - z); 0 where 1 - z is too small."""
        square = 1 - z
        return (self.n / 2 / square).masked_fill_(square < LEAST_SQUARE, 0)

    @property
    def scale(self) -> float:
        """-1: the buffer has 1 - z, of which the logarithm is computed."""
        return -1.0

    @property
    def offset(self) -> float:
        """-1, which is added to the logits in the buffer."""
        return -1.0

    def map_(self, block: Tensor, beside: Tensor | None = None) -> None:
        """Replace 1 - z by u / ln 2 in `block`; write phi'(z) to `beside`."""
        if beside is not None:
            torch.reciprocal(block, out=beside).mul_(self.n / 2).masked_fill_(block < LEAST_SQUARE, 0)
        block.clamp_(min=LEAST_SQUARE).log2_().mul_(-self.n / 2)


@dataclass(frozen=True, slots=True)
class StableMax:
    """phi(z) = sign(z) log(1 + |z|): a softmax of it has p proportional to 1 + z for z >= 0, and to 1 / (1 - z) below.

    Source: StableMax of Prieto et al. (2025), arXiv:2501.04697, known from `s` and `log_stablemax` of
        LucasPrietoAl/grokking-at-the-edge-of-numerical-stability, utils.py at commit 0cc9e8d, and of sapientinc/HRM,
        models/losses.py at commit 42410da, which are the same. The paper itself was not read.
    Differs: in log space, in float32 for logits of float32; theirs is log(s / sum s) in float64. Their 1 / (1 - z +
        1e-30) is 1 / (1 - z) to the last bit for z < 0; it keeps the branch that is not taken finite at z = 1.
    """

    def __call__(self, z: Tensor) -> Tensor:
        """u = phi(z). Autograd's slope at 0 is 1 for clamp and 0 for relu; for |z| and sign(z) it would be 0."""
        return z.clamp(min=0).log1p() - (-z).relu().log1p()

    def slope(self, z: Tensor) -> Tensor:
        """phi'(z) = 1 / (1 + |z|)."""
        return 1 / (1 + z.abs())

    @property
    def scale(self) -> float:
        """1: the buffer has z."""
        return 1.0

    @property
    def offset(self) -> float:
        """0: nothing is added to the logits in the buffer."""
        return 0.0

    def map_(self, block: Tensor, beside: Tensor | None = None) -> None:
        """Replace z by u / ln 2 in `block`; write phi'(z) = 2^-|u / ln 2| to `beside`."""
        size = torch.abs(block, out=beside).add_(1).log2_()
        torch.copysign(size, block, out=block)
        if beside is not None:
            beside.neg_().exp2_()


LeanMap = Bend | SoftCap | SigmoidCap | HarmonicMap | StableMax
LOGIT_MAPS = {"identity": identity, "sigsoftmax": Bend(c=0.0, k=2.0), "stablemax": StableMax()}  # name -> phi


@dataclass(frozen=True, slots=True)
class Slice:
    """Facets first .. last - 1 score the words x with x mod step = start, which are the rows start::step of W (a
    view).
    """

    first: int
    last: int
    start: int = 0
    step: int = 1

    @property
    def facets(self) -> slice:
        """The indices of the facets."""
        return slice(self.first, self.last)

    @property
    def words(self) -> slice:
        """The rows of the output matrix."""
        return slice(self.start, None, self.step)


@dataclass(frozen=True, slots=True)
class Layout:
    """The slices of a mixture whose component k has partitions[k] facets.

    Neighbouring components of one facet share a slice and are computed in one product. A component of P > 1 facets has
    P slices.
    """

    partitions: tuple[int, ...]

    @property
    def plain(self) -> bool:
        """Whether every component has one facet."""
        return max(self.partitions) == 1

    @property
    def slices(self) -> list[Slice]:
        """The slices, in the order of their facets."""
        found: list[Slice] = []
        first = 0
        for num_partitions in self.partitions:
            last = first + num_partitions
            if num_partitions == 1 and found and found[-1].step == 1:
                found[-1] = Slice(found[-1].first, last)
            else:
                found += [Slice(first + p, first + p + 1, p, num_partitions) for p in range(num_partitions)]
            first = last
        return found

    @property
    def component(self) -> tuple[int, ...]:
        """(F,) the component of each facet."""
        return tuple(k for k, num_partitions in enumerate(self.partitions) for _ in range(num_partitions))

    def owners(self, targets_n: Tensor) -> Tensor:
        """(n, K): the facet of each component that scores the target."""
        first_K, count_K = _facet_numbers(self.partitions, targets_n.device)
        return first_K + targets_n[:, None] % count_K


@lru_cache(maxsize=64)
def _facet_numbers(partitions: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """(K,) the first facet and (K,) the number of facets of each component.

    They are cached because a CUDA graph allows no copy from the host.
    """
    count_K = torch.tensor(partitions, device=device)
    return count_K.cumsum(0) - count_K, count_K


@dataclass(frozen=True, eq=False)
class Tensors:
    """A mixture of softmaxes over one output matrix for N tokens, as the functions of harness/kernels take it.

    The equations are those of `Mixture` (harness/distributions.py), which adds to these fields.
    """

    facets_NFE: Tensor
    log_prior_NK: Tensor | None
    weight_VE: Tensor
    bias_V: Tensor | None
    partitions: tuple[int, ...] = (1,)
    logit_map: Callable[[Tensor], Tensor] = identity
    log_epsilon: float | None = None

    @property
    def given(self) -> tuple[Tensor | None, ...]:
        """The four tensors, in this order."""
        return self.facets_NFE, self.log_prior_NK, self.weight_VE, self.bias_V

    @property
    def layout(self) -> Layout:
        """Which facets score which words."""
        return Layout(self.partitions)

    @property
    def wide(self) -> torch.dtype:
        """The type of statistics and sums: the type of the facets, but at least float32."""
        return torch.promote_types(self.facets_NFE.dtype, torch.float32)

    def changed(self, **fields: Any) -> "Tensors":
        """The same with other values of some fields."""
        return Tensors(**{each: getattr(self, each) for each in Tensors.__match_args__} | fields)

    def part(self, tokens: slice) -> "Tensors":
        """The same of some of the tokens."""
        prior_NK = None if self.log_prior_NK is None else self.log_prior_NK[tokens]
        return self.changed(facets_NFE=self.facets_NFE[tokens], log_prior_NK=prior_NK)
