"""The matrix products of the kernels, with their precision and their route through torch.

Precision: the type to which inputs of products of float32 tensors are rounded: 'fp32', 'tf32' (CUDA only) or 'bf16'.
Sums are computed in float32 in each case. float64 tensors are always multiplied in float64, and bfloat16 tensors in
bfloat16.

Routes on the CPU: 'default' is torch's choice, which is MKL in its x86 builds. 'onednn' sends float32 products to
oneDNN, which on some AMD processors is twice as fast. torch does so if bfloat16 is allowed inside of products
(harness/trial/routes.py).
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

Precision = Literal["fp32", "tf32", "bf16"]
Route = Literal["default", "onednn"]
CACHED = 2**19  # the number of floats that fit in the cache of a core
FUSED_FROM = 256  # tokens of a segment from which oneDNN is not slow in torch's fused attention


@dataclass(frozen=True, slots=True)
class Products:
    """The way in which matrix products are computed. torch's global settings are changed only during a product."""

    precision: Precision = "fp32"
    route: Route = "default"

    def dtype(self, like: Tensor) -> torch.dtype:
        """Return the type to which a tensor with the type of `like` is converted before products."""
        return torch.bfloat16 if self.precision == "bf16" and like.dtype == torch.float32 else like.dtype

    def mm(self, a: Tensor, b: Tensor) -> Tensor:
        """a @ b."""
        with self.switched(a.device):
            return torch.mm(a, b)

    def mm_(self, out: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """out = a @ b."""
        with self.switched(a.device):
            return torch.mm(a, b, out=out)

    def addmm_(self, out: Tensor, a: Tensor, b: Tensor, *, beta: int = 1) -> None:
        """out = beta out + a @ b with beta 0 or 1, for an `out` in the type of a and b or in float32.

        With beta = 0, `out` may hold any values, also NaN.
        """
        if out.dtype == a.dtype:
            with self.switched(a.device):
                out.addmm_(a, b, beta=beta)
        elif a.is_cuda:
            torch.addmm(out, a, b, out_dtype=out.dtype, beta=beta, out=out)
        # torch on the CPU makes a bfloat16 product and then a float32 copy of it: use parts that fit in the cache
        else:
            rows = max(1, CACHED // out.shape[1])
            for out_part, a_part in zip(out.split(rows), a.split(rows), strict=True):
                product = torch.mm(a_part, b)
                out_part.add_(product) if beta else out_part.copy_(product)

    @contextmanager
    def switched(self, device: torch.device) -> Iterator[None]:
        """Compute all float32 products of torch on `device` within the block by this route, those of the backbone,
        too.
        """
        settings: list[tuple[Any, str, Any]] = []
        if device.type == "cpu":
            settings = [(torch.backends.mkldnn.matmul, "fp32_precision", "bf16" if self.route == "onednn" else "ieee")]
        elif device.type == "cuda":
            cuda, allowed = torch.backends.cuda.matmul, "tf32" if self.precision == "tf32" else "ieee"
            settings = [
                (cuda, "fp32_precision", allowed),
                (torch.backends.cudnn.rnn, "fp32_precision", allowed),  # its default is tf32
                (cuda, "allow_bf16_reduced_precision_reduction", False),  # by default long sums are split and rounded
            ]
        before = [(switch, name, getattr(switch, name)) for switch, name, _ in settings]
        try:
            for setting in settings:
                setattr(*setting)
            yield
        finally:
            for setting in before:
                setattr(*setting)

    def attention(self, device: torch.device, length: int) -> AbstractContextManager[None]:
        """Within it, torch attends to segments of `length` tokens in its faster form on `device`. Its fused form
        multiplies blocks of a few rows, which oneDNN does slowly: with short segments it takes five times as long as
        whole products.
        """
        short = device.type == "cpu" and self.route == "onednn" and length < FUSED_FROM
        return sdpa_kernel(SDPBackend.MATH) if short else nullcontext()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b with gradients by autograd, in the precision that `using` has set. For code outside of the lean
    evaluation.

    Shapes: x (.., E), weight (V, E), bias (V,) -> (.., V) in the type of x.
    """
    if current().precision == "fp32" or x.dtype != torch.float32:
        return functional.linear(x, weight, bias)
    product = _Linear.apply(x, weight, current())
    return product if bias is None else product + bias


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, products: Products) -> Tensor:
        ctx.products = products
        ctx.save_for_backward(x, weight)
        rows, matrix = (tensor.to(products.dtype(x)) for tensor in (x.flatten(0, -2), weight))
        return products.mm(rows, matrix.t()).to(x.dtype).view(*x.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, upstream: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        dtype = ctx.products.dtype(x)
        rows, matrix, above = (t.to(dtype) for t in (x.flatten(0, -2), weight, upstream.flatten(0, -2)))
        return ctx.products.mm(above, matrix).view_as(x), ctx.products.mm(above.t(), rows), None


_current: ContextVar[Products | None] = ContextVar("products", default=None)


def current() -> Products:
    """Return the products that `using` has set; outside of `using`, float32 by torch's default route."""
    return _current.get() or Products()


@contextmanager
def using(products: Products) -> Iterator[None]:
    """Set the way in which kernels multiply within the block.

    A backward pass multiplies in the way of its forward pass. What torch's checkpointing evaluates again in the
    backward pass uses the setting at that time.
    """
    token = _current.set(products)
    try:
        yield
    finally:
        _current.reset(token)
