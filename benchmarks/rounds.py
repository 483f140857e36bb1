"""Interleaved timing: every call runs once in each round, so disturbances of the machine affect all calls equally."""

import time
from collections.abc import Callable, Hashable, Mapping

import torch

from harness.benchmarks.measurement import ProductRate
from harness.benchmarks.settings import Setting
from harness.kernels.products import Precision, Products, Route

CHUNK_ROWS = {"cpu": 256, "cuda": 4096}  # rows of the products that are timed together with the cells
GPU_REPEATS = 10  # calls per round: a single call would measure mostly its launch


def interleaved(
    calls: Mapping[Hashable, Callable[[], object]],
    rounds: int,
    device: torch.device,
    report: Callable[[str], None] = lambda line: None,
    *,
    twice: bool = False,
) -> dict[Hashable, tuple[float, ...]]:
    """Return the milliseconds of every call in every round. There is an additional first round as warm-up.

    Args:
        twice: make every call twice and time the second one. For calls of very different sizes: a small one pays for
            the memory that a large one before it has given back.
    """
    taken: dict[Hashable, list[float]] = {key: [] for key in calls}
    for number in range(rounds + 1):
        report(f"round {number} of {rounds}" if number else "warm-up")
        for key, call in calls.items():
            if twice:
                call()
            milliseconds = _on_gpu(call) if device.type == "cuda" else _on_cpu(call)
            if number:
                taken[key].append(milliseconds)
    return {key: tuple(values) for key, values in taken.items()}


def chunk_products(setting: Setting, precision: Precision, route: Route, device: torch.device) -> Callable[[], None]:
    """Return a function that computes the three products of a chunk: logits, gradients of facets and of the matrix."""
    rows = CHUNK_ROWS[device.type]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    h, w, z = (
        torch.randn(shape, device=device).to(dtype)
        for shape in ((rows, setting.width), (setting.vocab, setting.width), (rows, setting.vocab))
    )
    logits, dh, dw = torch.empty_like(z), torch.empty_like(h), torch.empty_like(w)
    products = Products(precision, route)

    def multiply() -> None:
        with products.switched(device):
            torch.mm(h, w.t(), out=logits)
            torch.mm(z, w, out=dh)
            torch.mm(z.t(), h, out=dw)

    return multiply


def product_rate(
    setting: Setting, precision: Precision, route: Route, device: torch.device, milliseconds: tuple[float, ...]
) -> ProductRate:
    """Return the GFLOP/s of `chunk_products`, given its times."""
    gflop = 3 * 2e-9 * CHUNK_ROWS[device.type] * setting.vocab * setting.width
    return ProductRate(precision=precision, route=route, gflops=tuple(gflop / ms * 1e3 for ms in milliseconds))


def _on_cpu(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def _on_gpu(call: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(GPU_REPEATS):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / GPU_REPEATS
