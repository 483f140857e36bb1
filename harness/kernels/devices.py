"""Which form of an inner step a device runs: Triton's kernels on CUDA where Triton is installed and the kernels were
proved (harness/machine/proofs.py), else torch's own.
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
    """What runs the two inner steps; by default torch's own operations. `log_sum_exp`: None for none."""

    combine_rows_: Callable[..., rows.Rows] = rows.combine_rows_
    log_sum_exp: Callable[..., Tensor] | None = None


_given: Kernels | None = (
    None  # of the process: a backward pass on a GPU runs in a thread that no context variable reaches
)


@contextmanager
def only(kernels: Kernels) -> Iterator[None]:
    """Within it these kernels run, whatever the device, in all threads: to prove them, or others in their place."""
    global _given
    before, _given = _given, kernels
    try:
        yield
    finally:
        _given = before


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


def holds_lean(device: torch.device) -> bool:
    """Whether the lean evaluation is right on a device; it is of sizes alone, too."""
    return in_sizes_only() or proofs.holds("lean", device)


def row_kernel(device: torch.device) -> Callable[..., rows.Rows]:
    """combine_rows_ for a device."""
    if _given is not None:
        return _given.combine_rows_
    if device.type != "cuda" or not has_triton() or in_sizes_only() or not proofs.holds("rows", device):
        return rows.combine_rows_
    return of_triton().combine_rows_


def log_sum_exp_kernel(device: torch.device) -> Callable[..., Tensor] | None:
    """fused_log_sum_exp for a device that has it, which evaluates without a buffer of logits; else None."""
    if _given is not None:
        return _given.log_sum_exp
    if device.type != "cuda" or not has_triton() or in_sizes_only() or not proofs.holds("log_sum_exp", device):
        return None
    return of_triton().log_sum_exp


def of_triton() -> Kernels:
    """Triton's kernels, proved or not. Raises ImportError where Triton is not installed."""
    from harness.kernels.triton_evaluation import fused_log_sum_exp
    from harness.kernels.triton_rows import combine_rows_

    return Kernels(combine_rows_, fused_log_sum_exp)
