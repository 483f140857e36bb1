"""Which form of an inner step a device runs: Triton's kernels on CUDA where Triton is installed, else torch's own."""

import importlib.util
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from harness.kernels import rows


@cache
def has_triton() -> bool:
    """Whether Triton can be imported; the extra `gpu` installs it, and torch's CUDA builds bring it."""
    return importlib.util.find_spec("triton") is not None


def row_kernel(device: torch.device) -> Callable[..., rows.Rows]:
    """combine_rows_ for a device."""
    if device.type != "cuda" or not has_triton():
        return rows.combine_rows_
    from harness.kernels.triton_rows import combine_rows_

    return combine_rows_


def log_sum_exp_kernel(device: torch.device) -> Callable[..., Tensor] | None:
    """fused_log_sum_exp for a device that has it, which evaluates without a buffer of logits; else None."""
    if device.type != "cuda" or not has_triton():
        return None
    from harness.kernels.triton_evaluation import fused_log_sum_exp

    return fused_log_sum_exp
