"""Which route float32 products take on this machine's CPU (harness/kernels/products.py).

On processors without AMX, oneDNN multiplies in float32 although bfloat16 is allowed. With AMX it does not. So both the
error against float64 and the time are measured, once for each machine and version of torch. The result is kept in the
cache folder. Workers receive the chosen route and check only its error.
"""

import hashlib
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

import harness
from harness.kernels.products import Products, Route
from harness.machine.environment import device_name, torch_threads
from harness.machine.files import kept

SIZES = (256, 200, 10_000)  # rows, width, vocabulary of a chunk of the lean evaluation
CPUINFO = Path("/proc/cpuinfo")
ROUNDS = 5
WORTHWHILE = 1.1  # the least speedup for which oneDNN is chosen
FLOAT32_ERROR = 2e-6  # the largest relative error of float32 products; of tf32 it is 3e-4, of bfloat16 3e-3


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of a probe.

    Args:
        route: the route to use.
        speedup: of oneDNN over torch's default route, on one thread.
        error: of oneDNN's products relative to float64.
        default_error: of the products by torch's default route relative to float64.
        exact: whether oneDNN's products have the error of float32.
    """

    cpu: str
    torch: str
    route: Route
    speedup: float
    error: float
    default_error: float
    exact: bool


def chosen_route() -> Route:
    """Return the fastest route of those that compute in float32 on this machine."""
    return load_probe().route


def checked_route(route: Route) -> Route:
    """Return `route` if this machine has it and it computes in float32, else 'default'.

    It measures no time, so the answer does not depend on the machine's load.
    """
    there = torch.backends.mkldnn.is_available()
    return "onednn" if route == "onednn" and there and _error(route) <= FLOAT32_ERROR else "default"


def load_probe(*, again: bool = False) -> Probe:
    """Return this machine's probe, from the cache or made now, which takes a second.

    `again`: make it now in any case.
    """
    return kept("probes", _machine(), lambda: asdict(measure()), lambda found: Probe(**found), again=again)


def _machine() -> str:
    """What a probe depends on: the processor's flags, too, since the name of a virtual processor may be unspecific."""
    return json.dumps([device_name(torch.device("cpu")), flags(), torch.__version__, harness.__version__])


def flags() -> str:
    """Return the hash of the processor's flags, which Linux reports on x86."""
    lines = CPUINFO.read_bytes().splitlines() if CPUINFO.exists() else []
    found = next((line for line in lines if line.startswith(b"flags")), b"")
    return hashlib.sha256(found).hexdigest()


def measure() -> Probe:
    """Measure both routes now, on one thread."""
    cpu, version = device_name(torch.device("cpu")), torch.__version__
    if not torch.backends.mkldnn.is_available():
        return Probe(cpu, version, "default", 1.0, 0.0, 0.0, False)
    with torch_threads(1):
        error, default_error, speedup = _error("onednn"), _error("default"), _speedup()
    exact = error <= FLOAT32_ERROR
    route: Route = "onednn" if exact and speedup >= WORTHWHILE else "default"
    return Probe(cpu, version, route, round(speedup, 3), error, default_error, exact)


def _error(route: Route) -> float:
    """Return the largest error relative to float64, in norm, over the kinds of products that trials use."""
    generator = torch.Generator().manual_seed(0)
    num_rows, width, num_words = 96, 320, 2_000
    rows, words, sums = (
        torch.randn(*shape, generator=generator)
        for shape in ((num_rows, width), (num_words, width), (num_words, num_rows))
    )
    cases: list[tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = [
        (torch.mm, (rows, words.t())),
        (torch.mm, (rows, words[1::4].t())),
        (torch.mm, (sums.t(), words)),
        (torch.addmm, (words, sums, rows)),
        (functional.linear, (rows, words, sums[:, 0])),
        (torch.bmm, (rows.view(4, 24, width), words[:40].view(4, width, 10))),
    ]
    with Products(route=route).switched(torch.device("cpu")):
        errors = []
        for product, given in cases:
            found = product(*given)
            exact = product(*(each.double() for each in given))
            errors.append(_relative_error(found, exact))
        return max(errors)


def _relative_error(found: Tensor, exact: Tensor) -> float:
    return ((found - exact).norm() / exact.norm()).item()


def _speedup() -> float:
    """Return the speedup of oneDNN over torch's default route: the ratio of medians of interleaved rounds.

    The first round is a warm-up and does not count.
    """
    num_rows, width, vocab_size = SIZES
    rows, weight = torch.randn(num_rows, width), torch.randn(vocab_size, width)
    logits, sums = torch.empty(num_rows, vocab_size), torch.zeros(vocab_size, width)
    seconds: dict[Route, list[float]] = {"default": [], "onednn": []}
    for _ in range(ROUNDS + 1):
        for route, times in seconds.items():
            products = Products(route=route)
            start = time.perf_counter()
            products.mm_(logits, rows, weight.t())
            products.mm(logits, weight)
            products.addmm_(sums, logits.t(), rows)
            times.append(time.perf_counter() - start)
    medians = {route: statistics.median(times[1:]) for route, times in seconds.items()}
    return medians["default"] / medians["onednn"]
