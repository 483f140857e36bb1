"""What `harness doctor` says of this machine: everything that measured times and their comparison depend on."""

import importlib.metadata
import platform

import torch

import harness
from harness.kernels import probe
from harness.kernels.devices import has_triton
from harness.machine import environment, proofs


def describe(*, again: bool) -> dict[str, str]:
    """Name -> value, as shown. Measurements and proofs that were not made on this machine before are made now.

    Args:
        again: make all of them again.
    """
    found = probe.load_probe(again=again)
    chosen = "oneDNN" if found.route == "onednn" else "torch's default"
    kept = probe.probe_file()
    return {
        "harness": f"{harness.__version__} at {environment.commit()}",
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "Triton": _triton(),
        "device": environment.device_name(_device()),
        "GPU": _gpu(),
        "GPU code": _gpu_code(again=again),
        "processor": found.cpu,
        "threads": f"{torch.get_num_threads()} of torch, {environment.cpus_available()} cores for this process",
        "load": f"{environment.load_average():.2f} over the last minute",
        "matrix products": f"float32 on the CPU by {chosen}; {_routes(found)} (relative error {found.error:.1e})",
        "kept in": str(kept) if kept.exists() else f"{kept} cannot be written: not kept",
    }


def notes() -> list[str]:
    """A sentence for each part of the GPU code that is switched off on this machine."""
    return list(proofs.switched_off(_device()))


def _device() -> torch.device:
    return environment.resolve_device("auto")


def _routes(found: probe.Probe) -> str:
    """How the two routes of float32 products compare."""
    if not torch.backends.mkldnn.is_available():
        return "this torch has no oneDNN"
    exactness = "as exact as float32" if found.exact else "NOT as exact as float32"
    return f"oneDNN is {found.speedup:.2f} times as fast as the default and {exactness}"


def _gpu_code(*, again: bool) -> str:
    """The outcome of the proofs of the GPU code."""
    device = _device()
    if device.type != "cuda":
        return "nothing to prove without a GPU"
    found = proofs.proof_for(device, again=again)
    kept = f"kept in {proofs.proof_file(device)}" if proofs.proof_file(device).exists() else "not kept"
    parts = [
        f"{what}: {'SWITCHED OFF' if part in found.failed else 'proved'}" for part, (what, _) in proofs.PARTS.items()
    ]
    return f"{'; '.join(parts)} ({found.seconds:.0f} s on {found.made}, {kept})"


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
