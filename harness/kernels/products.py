"""The matrix products of the kernels: in which precision, and by which of torch's routes.

Precision of the products' inputs, for float32 tensors: 'fp32'; 'tf32' (CUDA); 'bf16'. Sums are kept in float32 in all
of them. float64 tensors are multiplied in float64 and bfloat16 tensors in bfloat16 whatever is asked for.

Routes on the CPU: 'default' is torch's own choice, MKL in its x86 builds; 'onednn' sends float32 products to oneDNN,
which torch does when it is allowed bfloat16 inside them. Without AMX oneDNN then still multiplies in float32 exactly;
with AMX it does not, so the route is for machines where harness/kernels/probe.py has found it exact.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

Precision = Literal["fp32", "tf32", "bf16"]
Route = Literal["default", "onednn"]
CACHED = 2**19  # floats that stay in the cache of a core


@dataclass(frozen=True, slots=True)
class Products:
    """How matrix products are made. torch's global switches are touched within a product only."""

    precision: Precision = "fp32"
    route: Route = "default"

    def dtype(self, like: Tensor) -> torch.dtype:
        """The type that `like` enters products in."""
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
        """out = beta out + a @ b with beta 0 or 1, for an `out` in the type of a and b or in float32. With 0 it does
        not matter what is in `out`.
        """
        if out.dtype == a.dtype:
            with self.switched(a.device):
                out.addmm_(a, b, beta=beta)
        elif a.is_cuda:
            torch.addmm(out, a, b, out_dtype=out.dtype, beta=beta, out=out)
        else:  # the CPU rounds to bfloat16 and widens all that it adds at once: by pieces that stay in its cache
            rows = max(1, CACHED // out.shape[1])
            for out_part, a_part in zip(out.split(rows), a.split(rows), strict=True):
                product = torch.mm(a_part, b)
                out_part.add_(product) if beta else out_part.copy_(product)

    @contextmanager
    def switched(self, device: torch.device) -> Iterator[None]:
        """Within it, every float32 product of torch on `device` takes this route; used for the backbone's as well."""
        switches: list[Any] = []
        if device.type == "cpu":
            switches, allowed = [torch.backends.mkldnn.matmul], "bf16" if self.route == "onednn" else "ieee"
        elif device.type == "cuda":  # recurrent layers are tf32 there unless told otherwise
            switches = [torch.backends.cuda.matmul, torch.backends.cudnn.rnn]
            allowed = "tf32" if self.precision == "tf32" else "ieee"
        before = [(switch, switch.fp32_precision) for switch in switches]
        try:
            for switch, _ in before:
                switch.fp32_precision = allowed
            yield
        finally:
            for switch, value in before:
                switch.fp32_precision = value


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b as autograd knows it, its products in the precision of the moment: for what is no lean evaluation.

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
        return products.mm(rows, matrix.t()).to(x.dtype).view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, upstream: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        dtype = ctx.products.dtype(x)
        rows, matrix, above = (t.to(dtype) for t in (x.flatten(0, -2), weight, upstream.flatten(0, -2)))
        return ctx.products.mm(above, matrix).view_as(x), ctx.products.mm(above.t(), rows), None


_current: ContextVar[Products | None] = ContextVar("products", default=None)


def current() -> Products:
    """What `using` has set, float32 on torch's own route outside of it."""
    return _current.get() or Products()


@contextmanager
def using(products: Products) -> Iterator[None]:
    """Within it, kernels multiply as `products` says. A backward pass multiplies as its forward pass did, but for what
    checkpointing evaluates anew, which takes what is said then.
    """
    token = _current.set(products)
    try:
        yield
    finally:
        _current.reset(token)
