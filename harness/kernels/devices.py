"""Which form of an inner step a device runs: Triton's kernels on CUDA where Triton is installed, else torch's own."""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch
from torch import Tensor

from harness.kernels import rows

_sizes_only: ContextVar[bool] = ContextVar("sizes_only", default=False)


@contextmanager
def sizes_only() -> Iterator[None]:
    """Within it tensors have sizes and no content, for planning: torch's own form runs on every device, and one chunk
    of tokens stands for all of them, since they share their buffers.
    """
    token = _sizes_only.set(True)
    try:
        yield
    finally:
        _sizes_only.reset(token)


def in_sizes_only() -> bool:
    """Whether tensors have no content."""
    return _sizes_only.get()


@cache
def has_triton() -> bool:
    """Whether Triton can be imported; the extra `gpu` installs it, and torch's CUDA builds bring it."""
    return importlib.util.find_spec("triton") is not None


def row_kernel(device: torch.device) -> Callable[..., rows.Rows]:
    """combine_rows_ for a device."""
    if device.type != "cuda" or not has_triton() or in_sizes_only():
        return rows.combine_rows_
    from harness.kernels.triton_rows import combine_rows_

    return combine_rows_


def log_sum_exp_kernel(device: torch.device) -> Callable[..., Tensor] | None:
    """fused_log_sum_exp for a device that has it, which evaluates without a buffer of logits; else None."""
    if device.type != "cuda" or not has_triton() or in_sizes_only():
        return None
    from harness.kernels.triton_evaluation import fused_log_sum_exp

    return fused_log_sum_exp
