"""What `harness doctor` says of this machine: everything that measured times and their comparison depend on."""

import importlib.metadata
import platform
from collections.abc import Sequence
from functools import partial

import torch

import harness
from harness.corpora.batching import training_segments
from harness.kernels import choice, products
from harness.kernels.agreement import ROUNDING, fault_of
from harness.kernels.choice import Choice
from harness.kernels.forms import FORMS, Form, has_triton
from harness.kernels.mixture import Tensors
from harness.kernels.planted import CASES, batch
from harness.kernels.products import Products
from harness.machine import environment
from harness.model import build
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.training.cuda_graph import Record, graphed
from harness.training.optimizers import make_optimizer
from harness.training.step import EagerStep

LSTM = ComponentSpec(name="lstm", params={"d_model": 16, "num_layers": 1, "dropout": 0.3})
MOS = ComponentSpec(name="mos", params={"num_mixtures": 2, "dropout": 0.3})


def describe(*, again: bool) -> dict[str, str]:
    """Name -> value, as shown. What was not measured on this machine before is measured now.

    Args:
        again: measure all of it again.
    """
    found = products.load_probe(again=again)
    chosen = "oneDNN" if found.route == "onednn" else "torch's default"
    kept = products.probe_file()
    return {
        "harness": f"{harness.__version__} at {environment.commit()}",
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "Triton": _triton(),
        "device": environment.device_name(_device()),
        "GPU": _gpu(),
        "processor": found.cpu,
        "threads": f"{torch.get_num_threads()} of torch, {environment.cpus_available()} cores for this process",
        "load": f"{environment.load_average():.2f} over the last minute",
        "matrix products": f"float32 on the CPU by {chosen}; {_routes(found)} (relative error {found.error:.1e})",
        "kept in": str(kept) if kept.exists() else f"{kept} cannot be written: not kept",
    }


def gpu_faults() -> tuple[str, ...]:
    """A sentence for each part for GPUs that is wrong on small batches on this machine's GPU. Without one there is
    nothing to check.
    """
    device = _device()
    return faults(device) if device.type == "cuda" else ()


def faults(device: torch.device, forms: Sequence[Form] = FORMS, record: Record | None = None) -> tuple[str, ...]:
    """A sentence for each form of the loss that is wrong on planted batches, and for the graph of a small model.

    Args:
        record: makes the graph; by default CUDA's, where the device is a GPU.
    """
    found, eager = Choice(forms=forms, log=lambda sentence: None), []
    for precision in ROUNDING:
        multiplied = Products(precision=precision)
        with products.using(multiplied), multiplied.switched(device):
            for case in CASES:
                _try(found, *batch(case, device))
    with choice.using(found):
        train = TrainSpec(optimizer="sgd", lr=0.5, epochs=1, batch_size=3, seq_len=5)
        model = build(LSTM, MOS, vocab_size=13, seed=1).to(device)
        tokens_N = torch.randint(13, (100,), generator=torch.Generator().manual_seed(1))
        segment = training_segments(tokens_N, batch_size=3, seq_len=5, device=device)[0]
        step = EagerStep(model, make_optimizer(model, train), train)
        graphed(step, segment, log=eager.append, record=record)
    return (*found.sentences(), *(() if "graph" in found.left_out else eager))


def _try(found: Choice, mixture: Tensors, targets_N: torch.Tensor) -> None:
    """Check all forms on a batch, for training and for evaluation."""
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            for form in found.forms:
                if form.checked and form.name not in found.left_out and form.fits(mixture, gradients):
                    found.tried(form.name, partial(fault_of, form, mixture, targets_N), mixture.facets_NFE.device)


def _device() -> torch.device:
    return environment.resolve_device("auto")


def _routes(found: products.Probe) -> str:
    """How the two routes of float32 products compare."""
    if not torch.backends.mkldnn.is_available():
        return "this torch has no oneDNN"
    exactness = "as exact as float32" if found.exact else "NOT as exact as float32"
    return f"oneDNN is {found.speedup:.2f} times as fast as the default and {exactness}"


def _gpu() -> str:
    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} of CUDA {torch.version.cuda}"
    return f"none is seen, though this torch is made for CUDA {torch.version.cuda}" if torch.version.cuda else "none"


def _triton() -> str:
    if not has_triton():
        return "not installed"
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:  # it has another name in torch's own builds
        return "installed"
