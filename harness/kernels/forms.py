"""The forms of the loss: several ways to compute the negative log-likelihood of a mixture exactly.

They have Triton's kernels or torch's operations between the matrix products, and store the logits of a few tokens or of
all tokens of a batch at a time. The last ones are the plain equations. harness/kernels/choice.py says which one runs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from harness.extensions import is_there, needed
from harness.kernels import products, reference
from harness.kernels.chunked import Lean, TokenNLL, WeightedNLL, fused_nll, tokens_per_chunk
from harness.kernels.mixture import LeanMap, Tensors, identity
from harness.kernels.products import Precision
from harness.kernels.rows import Rows, combine_rows_

TRITON_ROWS = "harness.gpu.triton_rows:combine_rows_"
TRITON_LOG_SUMS = "harness.gpu.triton_evaluation:fused_log_sum_exp"
DEVICES = ("cpu", "cuda")  # a test adds the meta device, on which tensors have no content
STORED_SHARE = 1 / 16  # of a GPU's memory, for logits that are stored at once
DTYPES = (torch.float32, torch.float64, torch.bfloat16)

_reference_only: ContextVar[bool] = ContextVar("reference_only", default=False)


@contextmanager
def reference_only() -> Iterator[None]:
    """Evaluate everything by the reference within the block: to check the other forms, or to measure them."""
    token = _reference_only.set(True)
    try:
        yield
    finally:
        _reference_only.reset(token)


MeanNLL = Callable[[Tensors, Tensor, Tensor, float], Tensor]  # mixture, targets, weights with sum 1, z_loss -> ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way to compute the loss of a mixture.

    Args:
        what: what it is, for people.
        fits: whether it is made for a mixture, and for the device that holds it; the second argument says whether
            gradients are wanted.
        mean_nll: for given weights; None: the weighted mean of `nll` is taken.
        nll: (N,) from mixture and targets, with gradients where the mixture's tensors require them.
        pieces: 'chunked' or 'stored', as `train.loss_form` has it; '' for the others.
        checked: whether it has to agree with the equations; the equations themselves have not.
    """

    name: str
    what: str
    fits: Callable[[Tensors, bool], bool]
    mean_nll: MeanNLL | None
    nll: Callable[[Tensors, Tensor], Tensor]
    checked: bool = True
    pieces: str = ""


def differentiates(mixture: Tensors) -> bool:
    """Return whether gradients are wanted."""
    return torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in mixture.given)


def lean(
    mixture: Tensors, z_loss: float = 0.0, combine: Callable[..., Rows] = combine_rows_, at_once: int | None = None
) -> partial[Lean]:
    """Return a function that makes the evaluation in chunks from facets, log prior, weight, bias and targets."""
    return partial(
        Lean,
        partitions=mixture.partitions,
        logit_map=mixture.logit_map,
        log_epsilon=mixture.log_epsilon,
        products=products.current(),
        z_loss=z_loss,
        combine_rows_=combine,
        at_once=at_once,
    )


def by_rows(
    name: str,
    what: str,
    *,
    combine: Callable[..., Rows],
    fits: Callable[[Tensors, bool], bool],
    pieces: str = "chunked",
) -> Form:
    """Return the evaluation in chunks with this code between its matrix products (harness/kernels/rows.py); of pieces
    'stored' it has one chunk.
    """

    def at_once(mixture: Tensors) -> int | None:
        return len(mixture.facets_NFE) if pieces == "stored" else None

    def mean_nll(mixture: Tensors, targets_N: Tensor, weight_N: Tensor, z_loss: float) -> Tensor:
        make = lean(mixture, z_loss, combine, at_once(mixture))
        return WeightedNLL.apply(make, weight_N, targets_N, *mixture.given)

    def nll(mixture: Tensors, targets_N: Tensor) -> Tensor:
        make = lean(mixture, combine=combine, at_once=at_once(mixture))
        return TokenNLL.apply(make, targets_N, *mixture.given)

    return Form(name=name, what=what, fits=fits, mean_nll=mean_nll, nll=nll, pieces=pieces)


def by_log_sums(
    name: str, what: str, *, log_sum_exp: Callable[..., Tensor], fits: Callable[[Tensors, bool], bool]
) -> Form:
    """Return the evaluation by a kernel that sums logits without storing them, where no gradients are wanted."""

    def nll(mixture: Tensors, targets_N: Tensor) -> Tensor:
        return fused_nll(lean(mixture)(*mixture.given, targets_N=targets_N), log_sum_exp)

    return Form(name=name, what=what, fits=fits, mean_nll=None, nll=nll)


def in_chunks(evaluate: Callable[..., Tensor], mixture: Tensors, *per_token: Tensor) -> Tensor:
    """Evaluate the reference one chunk at a time. A chunk keeps only its facets for the backward pass."""
    size = tokens_per_chunk(mixture.weight_VE, mixture.partitions)
    chunks = (slice(i, i + size) for i in range(0, len(mixture.facets_NFE), size))
    multiplied = products.current()

    def evaluated(part: Tensors, *given_n: Tensor) -> Tensor:
        with products.using(multiplied):  # the backward pass calls this again, on a GPU in another thread
            return evaluate(part, *given_n)

    found = []
    for c in chunks:
        part = mixture.part(c)
        given = [given_N[c] for given_N in per_token]
        found.append(checkpoint(evaluated, part, *given, use_reentrant=False))
    return torch.cat(found)


@cache
def has_triton() -> bool:
    """Return whether Triton can be imported, which the extra `gpu` installs, and so do torch's CUDA builds; and whether
    our kernels are there.
    """
    return is_there("triton") and is_there(TRITON_ROWS.partition(":")[0])


def has_chunks(mixture: Tensors) -> bool:
    """Return whether there are tokens, of a type and on a device that can be evaluated in chunks."""
    known = mixture.facets_NFE.device.type in DEVICES and mixture.facets_NFE.dtype in DTYPES
    return known and len(mixture.facets_NFE) > 0 and not _reference_only.get()


def _knows(mixture: Tensors) -> bool:
    return has_chunks(mixture) and (mixture.logit_map is identity or isinstance(mixture.logit_map, LeanMap))


def _on_triton(mixture: Tensors) -> bool:
    there = mixture.facets_NFE.device.type == "cuda" and has_triton()
    return there and mixture.wide == torch.float32 and _knows(mixture)


def _in_one_piece(mixture: Tensors, gradients: bool) -> bool:
    """Return whether a GPU trains with more logits than those of a chunk, and has room for all of them.

    On a CPU chunks are as fast or faster, unless the process happens to hold a free block of memory of that size.
    """
    N, K, device = len(mixture.facets_NFE), len(mixture.partitions), mixture.facets_NFE.device
    if not gradients or device.type != "cuda":
        return False
    if tokens_per_chunk(mixture.weight_VE, mixture.partitions) >= N:
        return False
    size = N * K * len(mixture.weight_VE) * mixture.facets_NFE.element_size()
    if mixture.logit_map is not identity:
        size *= 2  # its slopes
    return size <= torch.cuda.get_device_properties(device).total_memory * STORED_SHARE


@cache
def _kernel(place: str) -> Callable[..., Any]:
    return needed(place, "a kernel of Triton")


def _triton_rows(*given: object) -> Rows:
    return _kernel(TRITON_ROWS)(*given)


def _triton_log_sums(*given: Tensor | None, precision: Precision) -> Tensor:
    return _kernel(TRITON_LOG_SUMS)(*given, precision=precision)


LOG_SUMS = by_log_sums(
    "log_sum_exp",
    "the Triton kernel for evaluation",
    log_sum_exp=_triton_log_sums,
    fits=lambda mixture, gradients: _on_triton(mixture) and not gradients and mixture.logit_map is identity,
)
ROWS = by_rows(
    "rows",
    "the Triton kernel for training",
    combine=_triton_rows,
    fits=lambda mixture, gradients: _on_triton(mixture),
)
LEAN = by_rows(
    "lean",
    "the evaluation of mixtures in chunks",
    combine=combine_rows_,
    fits=lambda mixture, gradients: _knows(mixture),
)
STORED_ROWS = by_rows(
    "rows, stored",
    "the Triton kernel for training, on all logits at once",
    combine=_triton_rows,
    fits=lambda mixture, gradients: _on_triton(mixture) and _in_one_piece(mixture, gradients),
    pieces="stored",
)
STORED = by_rows(
    "stored",
    "the evaluation of mixtures with all logits at once",
    combine=combine_rows_,
    fits=lambda mixture, gradients: _knows(mixture) and _in_one_piece(mixture, gradients),
    pieces="stored",
)
CHUNKS_OF_EQUATIONS = Form(
    name="equations in chunks",
    what="the plain equations, in chunks of tokens that the backward pass computes again",
    fits=lambda mixture, gradients: has_chunks(mixture),
    mean_nll=None,
    nll=lambda mixture, targets_N: in_chunks(reference.nll, mixture, targets_N),
    checked=False,
)
EQUATIONS = Form(
    name="equations",
    what="the plain equations",
    fits=lambda mixture, gradients: True,
    mean_nll=None,
    nll=lambda mixture, targets_N: reference.nll(mixture, targets_N),  # not the function: its mutants replace it
    checked=False,
)
# In the order in which they are asked: on a GPU all logits are stored where they take a small part of its memory, else
# chunks; Triton's row pass where Triton is installed, torch's operations otherwise.
FORMS = (LOG_SUMS, STORED_ROWS, ROWS, STORED, LEAN, CHUNKS_OF_EQUATIONS, EQUATIONS)
