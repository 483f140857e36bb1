"""Which route of torch's float32 products is the faster on this machine's CPU, and whether it is float32.

On some AMD processors oneDNN multiplies twice as fast as MKL; torch sends float32 products there only when it may use
bfloat16 inside them, and on a processor with AMX it then does. So both are measured, the error against float64 and the
time. Timed once per machine and torch version, kept in the cache folder; workers are handed the answer, and check the
exactness only.
"""

import contextlib
import hashlib
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pooch
import torch
from torch import Tensor
from torch.nn import functional

import harness
from harness.kernels.products import Products, Route
from harness.machine.environment import device_name, torch_threads
from harness.machine.files import write_atomically

CACHE = Path(pooch.os_cache("output-head-harness")) / "probes"
SIZES = (256, 200, 10_000)  # rows, width, vocabulary of a chunk of the lean evaluation
CPUINFO = Path("/proc/cpuinfo")
ROUNDS = 5
WORTHWHILE = 1.1  # times as fast
FLOAT32_ERROR = 2e-6  # relative; with tf32 inside it is 3e-4, with bfloat16 3e-3


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found: `route` to take, `speedup` of oneDNN over torch's own route on one thread, `error` of oneDNN's
    products relative to float64, `default_error` of torch's own, and whether oneDNN's are `exact`: float32's.
    """

    cpu: str
    torch: str
    route: Route
    speedup: float
    error: float
    default_error: float
    exact: bool


def chosen_route() -> Route:
    """The faster route of those that are exact on this machine."""
    return report().route


def proven(route: Route) -> Route:
    """`route` where this machine has it and it is exact, else 'default'. Times nothing, so load changes no answer."""
    there = torch.backends.mkldnn.is_available()
    return "onednn" if route == "onednn" and there and _error(route) <= FLOAT32_ERROR else "default"


def report(*, again: bool = False) -> Probe:
    """This machine's probe, from the cache folder or made now, which takes a second. `again`: made now in any case."""
    if not again:
        with contextlib.suppress(OSError, ValueError, TypeError):  # none yet, or not one of ours
            return Probe(**json.loads(place().read_bytes()))
    found = measure()
    with contextlib.suppress(OSError):  # a read-only home: the next process measures again
        write_atomically(place(), json.dumps(asdict(found), indent=1).encode())
    return found


def place() -> Path:
    """Where this machine's probe is kept. A processor's name alone may tell little in a virtual machine."""
    machine = {
        "cpu": device_name(torch.device("cpu")),
        "flags": hashlib.sha256(_flags().encode()).hexdigest(),
        "torch": torch.__version__,
        "harness": harness.__version__,
    }
    return CACHE / f"{hashlib.sha256(json.dumps(machine).encode()).hexdigest()[:12]}.json"


def _flags() -> str:
    """What the processor can do, as Linux tells it for x86; '' elsewhere."""
    lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines() if CPUINFO.exists() else []
    return next((line for line in lines if line.startswith("flags")), "")


def measure() -> Probe:
    """Measure now, on one thread."""
    cpu, version = device_name(torch.device("cpu")), torch.__version__
    if not torch.backends.mkldnn.is_available():
        return Probe(cpu, version, "default", 1.0, 0.0, 0.0, False)
    with torch_threads(1):
        error, default_error, speedup = _error("onednn"), _error("default"), _speedup()
    exact = error <= FLOAT32_ERROR
    route: Route = "onednn" if exact and speedup >= WORTHWHILE else "default"
    return Probe(cpu, version, route, round(speedup, 3), error, default_error, exact)


def _error(route: Route) -> float:
    """The largest error relative to float64, in norm, over the kinds of products that trials make."""
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
        return max(_relative_error(product(*given), product(*(x.double() for x in given))) for product, given in cases)


def _relative_error(found: Tensor, exact: Tensor) -> float:
    return ((found.double() - exact).norm() / exact.norm()).item()


def _speedup() -> float:
    """Of oneDNN over torch's own route: ratio of medians of interleaved rounds, the first of them left out."""
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
