"""`bench plan-memory`: compare the planned memory of a training step (harness/training/step_memory.py) with measured
steps.

Each cell is measured in a new process: the peak of three steps, with model and optimizer, above the memory before the
model was built. On the CPU this is resident memory, and glibc's malloc keeps freed blocks of up to 32 MiB by default.
So it is measured once with MALLOC_MMAP_THRESHOLD_ set, so that freed blocks are returned to the system and the resident
memory is that of tensors, and once with malloc's default.
"""

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from harness.benchmarks.measurement import save_with_table, slug
from harness.benchmarks.memory import resident_mib
from harness.benchmarks.tables import markdown_table
from harness.corpora.batching import Segment
from harness.errors import ExecutionError
from harness.machine import environment
from harness.model import build
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.training.clocks import peak_memory_mib, reset_peak_memory
from harness.training.optimizers import make_optimizer
from harness.training.step import EagerStep
from harness.training.step_memory import plan_step

SIZES = {"tiny": (128, 4, 4), "256 x 6": (256, 6, 4), "512 x 8": (512, 8, 8)}  # gpt2: d_model, layers, attention heads
HEADS = ("softmax", "mfs")
VOCAB = 5_000
TRAIN = TrainSpec(optimizer="adamw", lr=1e-3, epochs=1, batch_size=4, seq_len=200, clip=1.0)
# small steps before the measurement, in which libraries allocate what they need once
WARM_UP = (TRAIN.model_copy(update={"batch_size": 2, "seq_len": 9}), (12, 3, 3), 50)
BLOCKS_GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}
WITHIN = 0.25


class PlannedStep(BaseModel):
    """One cell, in MiB. `kept` is measured with malloc's default; None on a GPU, where it makes no difference."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    size: str
    head: str
    planned: float
    measured: float
    kept: float | None

    @property
    def ratio(self) -> float:
        """Planned / measured."""
        return self.planned / self.measured


class PlannedSteps(BaseModel):
    """All cells of one device, and the machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["plan-memory"] = "plan-memory"
    device: str
    device_type: str
    torch: str
    commit: str
    started: str
    steps: tuple[PlannedStep, ...]

    @property
    def holds(self) -> bool:
        """Whether every plan is within 25 % of the measurement."""
        return all(abs(step.ratio - 1) <= WITHIN for step in self.steps)


def measure(device: torch.device, report: Callable[[str], None] = lambda line: None) -> PlannedSteps:
    """Measure all sizes and heads."""
    about = {"device": environment.device_name(device), "device_type": device.type, "torch": str(torch.__version__)}
    about |= {"commit": environment.commit(), "started": environment.now()}
    steps = []
    for size in SIZES:
        for head in HEADS:
            report(f"measuring {size} {head}")
            planned = plan_step(*_components(SIZES[size], head), TRAIN, vocab_size=VOCAB, device=device).total / 2**20
            on_cpu = device.type == "cpu"
            measured = _in_fresh_process(size, head, device, BLOCKS_GIVEN_BACK if on_cpu else {})
            kept = _in_fresh_process(size, head, device, {}) if on_cpu else None
            steps.append(PlannedStep(size=size, head=head, planned=planned, measured=measured, kept=kept))
    return PlannedSteps(**about, steps=tuple(steps))


def step_mib(size: str, head: str, device: torch.device) -> float:
    """Measure one cell in this process, which must be a new one. Raises ExecutionError if the peak cannot be reset."""
    _steps(*WARM_UP[1:], head, WARM_UP[0], device)
    gc.collect()
    reset_peak_memory(device)
    before = torch.cuda.memory_allocated() / 2**20 if device.type == "cuda" else resident_mib()
    if peak_memory_mib(device) > 1.01 * before + 1:
        raise ExecutionError("bench plan-memory: this system does not reset a process' peak (/proc/self/clear_refs)")
    _steps(SIZES[size], VOCAB, head, TRAIN, device)
    return peak_memory_mib(device) - before


def save(measured: PlannedSteps, results: Path) -> list[Path]:
    """Write the record and the table; return their paths."""
    return save_with_table(f"plan_memory_{slug(measured.device)}", measured, markdown(measured), results)


def load(place: Path) -> PlannedSteps:
    """Read a record. Raises ExecutionError if the file is not such a record."""
    try:
        return PlannedSteps.model_validate_json(place.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise ExecutionError(
            f"{place} is not a record of harness bench plan-memory: {error.errors()[0]['msg']}"
        ) from None


def rows(measured: PlannedSteps) -> list[list[str]]:
    """Return a header, and a row for each cell."""
    found = [["gpt2", "head", "planned MiB", "measured MiB", "planned / measured", "with malloc's default"]]
    for step in measured.steps:
        kept = "-" if step.kept is None else f"{step.kept:.0f} ({step.planned / step.kept:.2f})"
        found.append([step.size, step.head, f"{step.planned:.0f}", f"{step.measured:.0f}", f"{step.ratio:.3f}", kept])
    return found


def markdown(measured: PlannedSteps) -> str:
    """Return the table with a description of the measurement."""
    verdict = "every plan is" if measured.holds else "NOT every plan is"
    return f"""\
# Planned and measured memory of a training step on {measured.device}

Made by `harness bench plan-memory --save`. GPT-2 of three sizes (d_model x layers; tiny is 128 x 4),
{TRAIN.batch_size} rows of {TRAIN.seq_len} tokens, V = {VOCAB:,}, AdamW, float32,
dropout 0.1: the peak of three steps above what was there before the model was built.

{markdown_table(rows(measured))}

- Within {WITHIN:.0%} of what was measured: {verdict}.
- Measured in fresh processes{_allocator(measured)}. torch {measured.torch}, harness at {measured.commit}, \
{measured.started}.
"""


def _allocator(measured: PlannedSteps) -> str:
    if measured.device_type == "cuda":
        return " by torch.cuda.max_memory_allocated"
    given = " ".join(f"{name}={value}" for name, value in BLOCKS_GIVEN_BACK.items())
    return (
        f" with {given}; glibc's malloc by default keeps freed blocks of up to 32 MiB, and a process is as much larger"
    )


def _components(shape: tuple[int, int, int], head: str) -> tuple[ComponentSpec, ComponentSpec]:
    sizes = dict(zip(("d_model", "num_layers", "num_heads"), shape, strict=True))
    return ComponentSpec(name="gpt2", params=sizes), ComponentSpec(name=head)


def _steps(shape: tuple[int, int, int], vocab: int, head: str, train: TrainSpec, device: torch.device) -> None:
    """Build a model and its optimizer, and train for three steps."""
    model = build(*_components(shape, head), vocab_size=vocab, seed=1).to(device)
    step = EagerStep(model, make_optimizer(model, train), train)
    step.begin_epoch()
    tokens_BT = torch.randint(vocab, (train.batch_size, train.seq_len)).to(device)
    for _ in range(3):
        step(Segment(tokens_BT, tokens_BT))


def _in_fresh_process(size: str, head: str, device: torch.device, variables: dict[str, str]) -> float:
    command = [sys.executable, "-m", "harness.benchmarks.plan_memory", size, head, device.type]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables})
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise ExecutionError(f"bench plan-memory: {size} {head}: {lines[-1]}")
    return float(done.stdout)


if __name__ == "__main__":
    with environment.torch_threads(1):
        print(step_mib(sys.argv[1], sys.argv[2], torch.device(sys.argv[3])))
