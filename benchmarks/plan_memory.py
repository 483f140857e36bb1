"""`bench plan-memory`: compare the planned memory of a training step (harness/training/step_memory.py) with measured
steps.

Each cell is measured in a new process: the peak of three steps, with model and optimizer, above the memory before the
model was built. On the CPU this is resident memory, and glibc's malloc keeps freed blocks by default: so it is measured
once with malloc set to give them back, and once with its default.
"""

from typing import Literal

import torch

from harness.benchmarks.measure import BLOCKS_GIVEN_BACK, Report, extra_mib, in_new_process, silent
from harness.benchmarks.record import Record, Rows, Values, about
from harness.benchmarks.tables import document, listed
from harness.corpora.batching import Segment
from harness.model import build
from harness.plan.specs import ComponentSpec, TrainSpec
from harness.training.optimizers import make_optimizer
from harness.training.step import EagerStep
from harness.training.step_memory import plan_step

SIZES = {"tiny": (128, 4, 4), "256 x 6": (256, 6, 4), "512 x 8": (512, 8, 8)}  # gpt2: d_model, layers, attention heads
HEADS = ("softmax", "mfs")
VOCAB = 5_000
TRAIN = TrainSpec(optimizer="adamw", lr=1e-3, epochs=1, batch_size=4, seq_len=200, clip=1.0)
# small steps before the measurement, in which libraries allocate what they need once
WARM_UP = ((12, 3, 3), 50, TRAIN.model_copy(update={"batch_size": 2, "seq_len": 9}))
WITHIN = 0.25


class PlannedStep(Values):
    """One cell, in MiB. `kept` is measured with malloc's default; None on a GPU, where it makes no difference."""

    size: str
    head: str
    planned: float
    measured: float
    kept: float | None

    @property
    def ratio(self) -> float:
        return self.planned / self.measured


class PlannedSteps(Record):
    """All cells of one device, and the machine."""

    stem = "plan_memory"
    kind: Literal["plan-memory"] = "plan-memory"
    steps: tuple[PlannedStep, ...]

    @property
    def holds(self) -> bool:
        """Whether every plan is within 25 % of the measurement."""
        return all(abs(step.ratio - 1) <= WITHIN for step in self.steps)

    def tables(self) -> list[Rows]:
        columns = {
            "gpt2": lambda step: step.size,
            "head": lambda step: step.head,
            "planned MiB": lambda step: f"{step.planned:.0f}",
            "measured MiB": lambda step: f"{step.measured:.0f}",
            "planned / measured": lambda step: f"{step.ratio:.3f}",
            "with malloc's default": lambda step: (
                "-" if step.kept is None else f"{step.kept:.0f} ({step.planned / step.kept:.2f})"
            ),
        }
        return [listed(self.steps, columns)]

    def markdown(self) -> str:
        given = " ".join(f"{name}={value}" for name, value in BLOCKS_GIVEN_BACK.items())
        on_cpu = (
            f"in fresh processes with {given}; glibc's malloc by default keeps freed blocks of up to 32 MiB, and a "
            "process is as much larger"
        )
        return document(
            "Planned and measured memory of a training step",
            "Made by `harness bench plan-memory --save`. GPT-2 of three sizes (d_model x layers; tiny is 128 x 4), "
            f"{TRAIN.batch_size} rows of {TRAIN.seq_len} tokens, V = {VOCAB:,}, AdamW, float32, dropout 0.1: the peak "
            "of three steps above what was there before the model was built.",
            self,
            [f"Within {WITHIN:.0%} of what was measured: {'every' if self.holds else 'NOT every'} plan is."],
            on_cpu if self.device_type == "cpu" else "in fresh processes by torch.cuda.max_memory_allocated",
        )


def measure(kind: str, report: Report = silent, *, device: torch.device) -> list[PlannedSteps]:
    """Measure all sizes and heads. Raises ExecutionError if the system cannot reset the counter of the peak."""
    machine, steps = about(device) | {"contended": ()}, []  # other programs do not change it
    for size in SIZES:
        for head in HEADS:
            report(f"measuring {size} {head}")
            planned = plan_step(*_components(SIZES[size], head), TRAIN, vocab_size=VOCAB, device=device).total / 2**20
            found = in_new_process(step_mib, size, head, device, variables=BLOCKS_GIVEN_BACK)
            kept = in_new_process(step_mib, size, head, device) if device.type == "cpu" else None
            steps.append(PlannedStep(size=size, head=head, planned=planned, measured=found, kept=kept))
    return [PlannedSteps(**machine, steps=tuple(steps))]


def step_mib(size: str, head: str, device: torch.device) -> float:
    """Measure one cell in this process, which must be a new one. Raises ExecutionError if the peak cannot be reset."""
    _steps(*WARM_UP, head, device)
    return extra_mib(lambda: _steps(SIZES[size], VOCAB, TRAIN, head, device), device)


def _steps(shape: tuple[int, int, int], vocab: int, train: TrainSpec, head: str, device: torch.device) -> None:
    model = build(*_components(shape, head), vocab_size=vocab, seed=1).to(device)
    step = EagerStep(model, make_optimizer(model, train), train)
    step.begin_epoch()
    tokens_BT = torch.randint(vocab, (train.batch_size, train.seq_len)).to(device)
    for _ in range(3):
        step(Segment(tokens_BT, tokens_BT))


def _components(shape: tuple[int, int, int], head: str) -> tuple[ComponentSpec, ComponentSpec]:
    widths = dict(zip(("d_model", "num_layers", "num_heads"), shape, strict=True))
    return ComponentSpec(name="gpt2", params=widths), ComponentSpec(name=head)
