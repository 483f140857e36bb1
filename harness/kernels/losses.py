"""The lean evaluation as functions of autograd.

Gradients are returned to autograd and never written to parameters, and no saved tensor is changed. So tied weights,
accumulation over batches and data-parallel hooks work as with any other function. Gradients in float32 are rounded by
autograd to the type of the input.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from harness.kernels.buffers import Needs


class WeightedNLL(torch.autograd.Function):
    """() sum_n w_n L_n for given weights w. The forward pass computes the gradients: 6 N K V E operations in total."""

    @staticmethod
    def forward(ctx: FunctionCtx, make: Any, weight_N: Tensor, targets_N: Tensor, *tensors: Tensor | None) -> Tensor:
        """tensors: facets, log prior, weight, bias; make(targets, *tensors) -> Lean."""
        nll_N, gradients = make(targets_N, *tensors).gradients(weight_N, Needs(*ctx.needs_input_grad[3:]))
        ctx.save_for_backward(*gradients)
        return (weight_N * nll_N).sum()

    @staticmethod
    def backward(ctx: FunctionCtx, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """upstream: (). Raises RuntimeError for create_graph=True."""
        _refuse_graph()
        facets, log_prior, *matrix = ctx.saved_tensors
        if upstream.is_cuda or upstream != 1:  # on a GPU, reading the value takes longer than the product
            matrix = [tensor if tensor is None else upstream * tensor for tensor in matrix]
        return None, None, None, *(g if g is None else upstream * g for g in (facets, log_prior)), *matrix


class TokenNLL(torch.autograd.Function):
    """(N,) L_n for any upstream gradient.

    Only the inputs are kept, and the backward pass evaluates again: 8 N K V E operations in total.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, make: Any, targets_N: Tensor, *tensors: Tensor | None) -> Tensor:
        """tensors: facets, log prior, weight, bias; make(targets, *tensors) -> Lean."""
        ctx.make = make
        ctx.save_for_backward(targets_N, *tensors)
        return make(targets_N, *tensors).nll()

    @staticmethod
    def backward(ctx: FunctionCtx, upstream_N: Tensor) -> tuple[Tensor | None, ...]:
        """upstream: (N,). Raises RuntimeError for create_graph=True."""
        _refuse_graph()
        _, gradients = ctx.make(*ctx.saved_tensors).gradients(upstream_N, Needs(*ctx.needs_input_grad[2:]))
        return None, None, *gradients


def _refuse_graph() -> None:
    if torch.is_grad_enabled():
        raise RuntimeError("the lean loss has no second derivative; evaluate within harness.kernels.reference_only()")
