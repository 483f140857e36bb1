"""Choose the code for the inner steps of the lean evaluation by device: Triton's kernels or torch's operations.

Triton's kernels run on CUDA if Triton is installed and the kernels passed their proof (harness/machine/proofs.py).
"""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from harness.kernels import rows
from harness.machine import proofs

_sizes_only: ContextVar[bool] = ContextVar("sizes_only", default=False)


class Kernels(NamedTuple):
    """The code of the two inner steps; by default torch's operations.

    `log_sum_exp` is None if there is no kernel for it.
    """

    combine_rows_: Callable[..., rows.Rows] = rows.combine_rows_
    log_sum_exp: Callable[..., Tensor] | None = None


# Set for the whole process: a backward pass on a GPU runs in another thread, which does not see context variables.
_given: Kernels | None = None


@contextmanager
def use_kernels(kernels: Kernels) -> Iterator[None]:
    """Run these kernels within the block, on every device and in all threads: for proofs and for tests."""
    global _given
    before, _given = _given, kernels
    try:
        yield
    finally:
        _given = before


@contextmanager
def sizes_only() -> Iterator[None]:
    """For planning memory: tensors have sizes but no content within the block.

    Torch's operations run on every device. Only one chunk of tokens is evaluated, since all chunks share their buffers.
    """
    token = _sizes_only.set(True)
    try:
        yield
    finally:
        _sizes_only.reset(token)


def in_sizes_only() -> bool:
    """Return whether the code runs within `sizes_only()`."""
    return _sizes_only.get()


@cache
def has_triton() -> bool:
    """Return whether Triton can be imported. The extra `gpu` installs it, and so do torch's CUDA builds."""
    return importlib.util.find_spec("triton") is not None


def may_use_lean(device: torch.device) -> bool:
    """Return whether the lean evaluation may be used on a device. Within `sizes_only()` it always may."""
    return in_sizes_only() or proofs.may_use("lean", device)


def row_kernel(device: torch.device) -> Callable[..., rows.Rows]:
    """Return combine_rows_ for a device."""
    if _given is not None:
        return _given.combine_rows_
    if device.type != "cuda" or not has_triton() or in_sizes_only() or not proofs.may_use("rows", device):
        return rows.combine_rows_
    return triton_kernels().combine_rows_


def log_sum_exp_kernel(device: torch.device) -> Callable[..., Tensor] | None:
    """Return fused_log_sum_exp, which needs no buffer of logits, for a device that has it; else None."""
    if _given is not None:
        return _given.log_sum_exp
    if device.type != "cuda" or not has_triton() or in_sizes_only() or not proofs.may_use("log_sum_exp", device):
        return None
    return triton_kernels().log_sum_exp


def triton_kernels() -> Kernels:
    """Return Triton's kernels, also if they were not proved. Raises ImportError if Triton is not installed."""
    from harness.kernels.triton_evaluation import fused_log_sum_exp
    from harness.kernels.triton_rows import combine_rows_

    return Kernels(combine_rows_, fused_log_sum_exp)
