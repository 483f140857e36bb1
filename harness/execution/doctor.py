"""What `harness doctor` finds: whether this machine can run trials, and the facts on which their times depend.

Neither Ray nor MLflow is imported, and no file is left behind.
"""

import importlib.metadata
import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from packaging.requirements import Requirement

import harness
from harness.corpora.batching import training_segments
from harness.errors import ExecutionError
from harness.execution.executors import check_folder
from harness.execution.ray import exposed_token, refuse_homeless_ray, refuse_open_ray, temporary_folder
from harness.kernels import choice, products
from harness.kernels.agreement import ROUNDING
from harness.kernels.choice import FormChoice
from harness.kernels.forms import FORMS, Form
from harness.kernels.mixture import Tensors
from harness.kernels.planted import CASES, batch
from harness.kernels.products import Products
from harness.machine import environment, limits
from harness.machine.files import existing, write_fault
from harness.model import build
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.training.optimizers import make_optimizer
from harness.training.step import EagerStep, Record, graphed
from harness.trial import routes

DISTRIBUTION = "output-head-harness"
SHOWN_PACKAGES = ("torch", "triton", "ray", "mlflow", "pydantic", "scipy", "transformers")
NOT_NEEDED_TO_RUN = ("mlflow",)  # without it a run prints a warning
GIB = 2**30
LSTM = ComponentSpec(name="lstm", params={"d_model": 16, "num_layers": 1, "dropout": 0.3})
MOS = ComponentSpec(name="mos", params={"num_mixtures": 2, "dropout": 0.3})


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found: facts, `problems` that prevent `harness run` from working, and `notes` of what does not."""

    values: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def examine(results: Path, data: Path, *, again: bool = False, gpu: bool = False) -> Findings:
    """Examine this machine; with `gpu` also the parts for GPUs, on small batches."""
    found = Findings(facts(again=again))
    if gpu:
        wrong = gpu_faults()
        found.values["GPU code"] = f"{len(wrong)} parts are wrong" if wrong else "right, or there is no GPU"
        found.problems.extend(wrong)
    _packages(found)
    _folders(found, results, data)
    _ray(found)
    return found


def facts(*, again: bool) -> dict[str, str]:
    """Everything that measured times depend on: name -> value; `again` measures what is kept on this machine again."""
    found = routes.load_probe(again=again)
    chosen = "oneDNN" if found.route == "onednn" else "torch's default"
    speed = "this torch has no oneDNN"
    if torch.backends.mkldnn.is_available():
        exactness = "as exact as float32" if found.exact else "NOT as exact as float32"
        speed = f"oneDNN is {found.speedup:.2f} times as fast as the default and {exactness}"
    memory = limits.memory()
    return {
        "harness": f"{harness.__version__} at {environment.commit()}",
        "Python": platform.python_version(),
        "device": environment.device_name(environment.resolve_device("auto")),
        "GPU": f"{torch.cuda.device_count()} seen by a torch of CUDA {torch.version.cuda}",
        "processor": found.cpu,
        "threads": f"{torch.get_num_threads()} of torch, {limits.cpus_available()} cores for this process",
        "memory": f"{_gib(memory.free)} free of {_gib(memory.total)}",
        "matrix products": f"float32 on the CPU by {chosen}; {speed} (relative error {found.error:.1e})",
    }


def gpu_faults() -> tuple[str, ...]:
    device = environment.resolve_device("auto")
    return faults(device) if device.type == "cuda" else ()


def faults(device: torch.device, forms: Sequence[Form] = FORMS, record: Record | None = None) -> tuple[str, ...]:
    """A sentence for each form of the loss that is wrong on planted batches, and for the graph of a small model.

    Args:
        record: makes the graph; by default CUDA's, where the device is a GPU.
    """
    found, eager = FormChoice(forms=forms, log=lambda sentence: None), []
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


def _try(found: FormChoice, mixture: Tensors, targets_N: torch.Tensor) -> None:
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            for form in found.forms:
                if not form.checked or form.name in found.left_out or not form.fits(mixture, gradients):
                    continue
                if fault := found.fault(form, mixture, targets_N, 0.0):
                    found.leave_out(form.name, fault)


def _packages(found: Findings) -> None:
    found.values["packages"] = ", ".join(f"{name} {_version(name) or 'missing'}" for name in SHOWN_PACKAGES)
    for each in map(Requirement, importlib.metadata.requires(DISTRIBUTION) or []):
        if each.marker is not None:
            continue
        version, named = _version(each.name), found.notes if each.name in NOT_NEEDED_TO_RUN else found.problems
        if version is None:
            named.append(f"{each.name} is not installed; needed: {each}")
        elif not each.specifier.contains(version, prereleases=True):
            named.append(f"{each.name} is {version}; needed: {each}")


def _folders(found: Findings, results: Path, data: Path) -> None:
    """Can the results folder be written? Corpora that the data folder already contains can be read in any case."""
    found.values.update(results=str(results.resolve()), data=str(data.resolve()))
    if fault := write_fault(data):
        found.notes.append(
            f"the data folder {data} cannot be written ({fault}): corpora that it does not contain cannot be downloaded"
        )
    if fault := write_fault(results):
        found.problems.append(f"the results folder {results} cannot be written ({fault}); name another with --results")
        return
    found.values["results"] += f", {_gib(shutil.disk_usage(existing(results)).free)} free"
    try:
        check_folder(existing(results), found.notes.append)
    except ExecutionError as fault:
        found.problems.append(str(fault))


def _ray(found: Findings) -> None:
    found.values["Ray"] = f"its token is on; home {Path.home()}"
    for usable in (refuse_open_ray, refuse_homeless_ray, temporary_folder):
        try:
            usable()
        except ExecutionError as fault:
            found.problems.append(str(fault))
            found.values["Ray"] = "cannot start"
    if token := exposed_token():
        found.notes.append(f"Ray's token {token} can be read by every user of this machine: chmod 600 {token}")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
