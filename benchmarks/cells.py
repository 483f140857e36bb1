"""The cells of a comparison: a head, an implementation of its evaluation, a precision and a route of its products."""

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.benchmarks import baselines
from harness.benchmarks.baselines import Evaluation
from harness.benchmarks.machine import free_memory
from harness.benchmarks.settings import Setting, mixtures
from harness.distributions import LOGIT_MAPS, Mixture
from harness.errors import ExecutionError
from harness.kernels import products
from harness.kernels.products import Precision, Products, Route, using

OURS, PUBLISHED, TARGET_ONLY, COMPILED = "ours", "published", "target-only", "compiled"


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a comparison. A time or an amount of memory belongs to a cell."""

    head: str
    impl: str
    precision: Precision
    route: Route

    def __str__(self) -> str:
        return f"{self.head} {self.impl} {self.precision} {self.route}"


def always(mixture: Mixture, device: torch.device) -> str:
    """Return '': this can always be measured."""
    return ""


def torch_lacks(mixture: Mixture, device: torch.device) -> str:
    """Return why torch's linear_cross_entropy cannot be measured; '' if it can."""
    if not hasattr(torch.nn.functional, "linear_cross_entropy"):
        return "not in this torch"
    return _plain(mixture)


def compiler_lacks(mixture: Mixture, device: torch.device) -> str:
    """Return why torch.compile cannot be measured; '' if it can. It needs a C++ compiler for the CPU."""
    compilers = (os.environ.get("CXX"), "g++", "clang++", "c++")
    found = device.type == "cuda" or any(shutil.which(name) for name in compilers if name)
    return "" if found else "no C++ compiler"


def package_lacks(package: str, components: int) -> Callable[[Mixture, torch.device], str]:
    """Return a function that says why a library of CUDA kernels for at most `components` components cannot be
    measured.
    """

    def lacks(mixture: Mixture, device: torch.device) -> str:
        if device.type != "cuda":
            return "CUDA only"
        if importlib.util.find_spec(package) is None:
            return "not installed"
        return "no mixtures" if len(mixture.partitions) > components else _plain(mixture)

    return lacks


def _plain(mixture: Mixture) -> str:
    if max(mixture.partitions) > 1:
        return "no partitions"
    return "" if mixture.logit_map is LOGIT_MAPS["identity"] else "no logit map"


# name -> a function that makes it (None: the methods of Mixture), and a function that says why it cannot be measured
IMPLEMENTATIONS: dict[str, tuple[Callable[[], Evaluation] | None, Callable[[Mixture, torch.device], str]]] = {
    OURS: (None, always),
    PUBLISHED: (lambda: baselines.published, always),
    "log-space": (lambda: baselines.log_space, always),
    TARGET_ONLY: (lambda: baselines.target_only, always),
    "torch": (lambda: baselines.torch_library, torch_lacks),
    COMPILED: (baselines.compiled, compiler_lacks),
    "liger": (lambda: baselines.liger, package_lacks("liger_kernel", 1)),
    "cce": (lambda: baselines.cut_cross_entropy, package_lacks("cut_cross_entropy", 1_000)),
}
LIBRARIES = (COMPILED, "torch", "liger", "cce")  # external libraries: if one fails, its cell has no value
ONLY_PRECISION = {"cce": "bf16"}  # implementations that support only one precision
# about how many tensors of N K V floats exist at once
TENSORS_OF_ALL_LOGITS = {PUBLISHED: 4, "log-space": 5, TARGET_ONLY: 3, COMPILED: 3}


def lacks(cell: Cell, mixture: Mixture, setting: Setting) -> str:
    """Return why a cell cannot be measured on this machine; '' if it can."""
    device = mixture.facets_NFE.device
    needed = 4 * TENSORS_OF_ALL_LOGITS.get(cell.impl, 0) * setting.tokens * mixtures(cell.head) * setting.vocab
    if needed > 0.7 * free_memory(device):
        return f"needs about {needed / 2**30:.0f} GiB"
    only = ONLY_PRECISION.get(cell.impl, cell.precision)
    return IMPLEMENTATIONS[cell.impl][1](mixture, device) or ("" if cell.precision == only else f"{only} only")


def loss(evaluation: Evaluation | None, distribution: Mixture, targets_BT: Tensor) -> Tensor:
    """() the mean loss by a baseline, or by the method of the distribution."""
    if evaluation is None:
        return distribution.mean_nll(targets_BT)
    return evaluation(distribution, targets_BT.flatten()).float().mean()


def token_losses(evaluation: Evaluation | None, distribution: Mixture, targets_BT: Tensor) -> Tensor:
    """Return the loss of every token, for evaluation."""
    return distribution.nll(targets_BT) if evaluation is None else evaluation(distribution, targets_BT.flatten())


@contextmanager
def arithmetic(cell: Cell, device: torch.device) -> Iterator[None]:
    """Set the precision and route of products within the block.

    For our implementation, the precision applies to the kernels only, and all other products are in float32, as in
    trials. For a baseline the precision applies to all products; bf16 is set by autocast.
    """
    products = Products(cell.precision, cell.route)
    with ExitStack() as stack:
        if cell.impl == OURS:
            stack.enter_context(Products(route=cell.route).switched(device))
            stack.enter_context(using(products))
        else:
            stack.enter_context(products.switched(device))
            if cell.precision == "bf16":
                stack.enter_context(torch.autocast(device.type, torch.bfloat16))
        yield


def ways(precisions: tuple[str, ...], routes: tuple[str, ...]) -> list[tuple[Precision, Route]]:
    """Return every precision with every route; bf16 only with the last route, which makes little difference for it."""
    return [(p, r) for p in precisions for r in (routes[-1:] if p == "bf16" else routes)]


def checked_impls(names: tuple[str, ...], *, compile_too: bool) -> tuple[str, ...]:
    """Return the implementations to measure, ours first. Raises ExecutionError for an unknown name."""
    chosen = names or tuple(name for name in IMPLEMENTATIONS if name != COMPILED)
    for name in chosen:
        if name not in IMPLEMENTATIONS:
            raise ExecutionError(f"--impl {name}: expected {', '.join(IMPLEMENTATIONS)}")
    wanted = {*chosen, OURS} | ({COMPILED} if compile_too else set())
    return tuple(name for name in IMPLEMENTATIONS if name in wanted)


def checked_ways(precisions: tuple[str, ...], route: str, device: torch.device) -> list[tuple[Precision, Route]]:
    """Return the pairs (precision, route) to measure.

    Raises ExecutionError for one that the device does not support.
    """
    allowed = ("fp32", "tf32", "bf16") if device.type == "cuda" else ("fp32", "bf16")
    if not precisions:
        raise ExecutionError(f"--precision: expected some of {', '.join(allowed)} on {device.type}")
    for precision in precisions:
        if precision not in allowed:
            raise ExecutionError(f"--precision {precision}: expected {', '.join(allowed)} on {device.type}")
    if route not in ("default", "onednn", "both"):
        raise ExecutionError(f"--route {route}: expected default, onednn or both")
    if device.type == "cuda":
        return ways(precisions, ("default",))
    if route == "default" or (route == "both" and not _onednn_is_exact()):
        return ways(precisions, ("default",))
    if not _onednn_is_exact():
        raise ExecutionError("--route onednn: its products are not exact in float32 on this machine (harness doctor)")
    return ways(precisions, ("default", "onednn") if route == "both" else ("onednn",))


def _onednn_is_exact() -> bool:
    return products.load_probe().exact
