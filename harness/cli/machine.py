"""`harness doctor`: is this machine fit to run, and what is it, as far as figures measured on it depend on it."""

import importlib.metadata
import platform
from typing import Annotated

import torch
import typer

import harness
from harness.cli.options import RESULTS, Data, Results, console, errors
from harness.corpora.download import DEFAULT_DATA
from harness.execution.doctor import examine
from harness.kernels import probe
from harness.kernels.devices import has_triton
from harness.machine import environment, proofs


def doctor(
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    again: Annotated[bool, typer.Option("--again", help="Repeat the measurements and proofs, and keep them.")] = False,
) -> None:
    """Is this machine fit to run: versions, places, memory, MLflow, Ray; which route do float32 products take; and what
    of the code for GPUs was proved on this GPU.

    Exit code 2, and a sentence for each, when something keeps `harness run` from working.
    """
    findings = examine(results, data)
    shown = _machine(again) | {finding.name: finding.value for finding in findings}
    for name, value in shown.items():
        console.print(f"{name + ':':16} {value}", highlight=False, markup=False, soft_wrap=True)
    notes = [*proofs.switched_off(_device()), *(note for finding in findings for note in finding.notes)]
    for note in notes:
        console.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)
    problems = [problem for finding in findings for problem in finding.problems]
    for problem in problems:
        errors.print(problem)
    raise typer.Exit(2 if problems else 0)


def _machine(again: bool) -> dict[str, str]:
    """What figures depend on."""
    found = probe.load_probe(again=again)
    chosen = "oneDNN" if found.route == "onednn" else "torch's default"
    exactness = "as exact as float32" if found.exact else "NOT as exact as float32"
    compared = f"oneDNN is {found.speedup:.2f} times as fast as the default and {exactness}"
    if not torch.backends.mkldnn.is_available():
        compared = "this torch has no oneDNN"
    return {
        "harness": f"{harness.__version__} at {environment.commit()}",
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "Triton": _triton(),
        "device": environment.device_name(_device()),
        "GPU": _gpu(),
        "GPU code": _proved(again),
        "processor": found.cpu,
        "threads": f"{torch.get_num_threads()} of torch, {environment.cpus_available()} cores for this process",
        "load": f"{environment.load_average():.2f} over the last minute",
        "matrix products": f"float32 on the CPU by {chosen}; {compared} (relative error {found.error:.1e})",
        "kept in": str(probe.probe_file())
        if probe.probe_file().exists()
        else f"{probe.probe_file()} cannot be written: not kept",
    }


def _device() -> torch.device:
    return environment.resolve_device("auto")


def _proved(again: bool) -> str:
    """What came of the proofs on this machine's GPU, which are made here where there are none yet."""
    device = _device()
    if device.type != "cuda":
        return "nothing to prove without a GPU"
    found = proofs.proof_for(device, again=again)
    kept = f"kept in {proofs.proof_file(device)}" if proofs.proof_file(device).exists() else "not kept"
    lines = [
        f"{what}: {'SWITCHED OFF' if part in found.failed else 'proved'}" for part, (what, _) in proofs.PARTS.items()
    ]
    return f"{'; '.join(lines)} ({found.seconds:.0f} s on {found.made}, {kept})"


def _gpu() -> str:
    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} of CUDA {torch.version.cuda}"
    return f"none is seen, though this torch is made for CUDA {torch.version.cuda}" if torch.version.cuda else "none"


def _triton() -> str:
    if not has_triton():
        return "not installed"
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:  # under another name, as in torch's own builds
        return "installed"
