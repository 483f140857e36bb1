"""`bench backbone`: time and memory of a step of each backbone alone, by context length, and where attention costs more
than the rest.

A step is the forward and the backward pass of a backbone in training mode, for one sequence of T tokens; the gradient
of the top layer is given, and no other layer has one. There is no head, no loss and no optimizer. All backbones and
lengths take turns in every round, and each step is made twice, of which the second is timed.

The memory of a cell is the peak of one step above that before it, in a process of its own, with weights and gradients
there before. On the CPU this is resident memory (VmHWM of /proc/self/status), with glibc's malloc set to give freed
blocks back, as in benchmarks/plan_memory.py; on a GPU, what torch has allocated. A system that does not reset the peak
of a process has no such numbers.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import nn

from harness.benchmarks.machine import high_load
from harness.benchmarks.memory import resident_mib
from harness.benchmarks.plan_memory import BLOCKS_GIVEN_BACK
from harness.benchmarks.quadratic import Quadratic, fitted
from harness.benchmarks.rounds import interleaved
from harness.errors import ExecutionError
from harness.machine import environment
from harness.model import build_backbone
from harness.plan.specs import ComponentSpec
from harness.protocols import Bidirectional
from harness.training.clocks import peak_memory_mib, reset_peak_memory

WIDTH, VOCAB, DROPOUT = 256, 1_000, 0.1
WARM_UP = 16  # tokens of a step before the memory is measured: libraries allocate what they need once
ATTENTION = {"num_layers": 4, "num_heads": 4, "dropout": DROPOUT}
BACKBONES: dict[str, dict[str, float]] = {  # of one width; gpt2 has 4 x 256 units in its feed-forward block, too
    "lstm": {"num_layers": 2, "dropout": DROPOUT},
    "gru": {"num_layers": 2, "dropout": DROPOUT},
    "transformer_encoder": {**ATTENTION, "d_ff": 4 * WIDTH, "layer_dropout": DROPOUT},
    "gpt2": ATTENTION,
    "bilstm": {"num_layers": 2, "dropout": DROPOUT},
}


class Cost(BaseModel):
    """A backbone at one context length.

    Args:
        params: the number of its parameters, without the embedding of the words.
        milliseconds: of a step, in each round.
        mib: the peak of a step; None if this system does not count it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    backbone: str
    params: int
    context: int
    milliseconds: tuple[float, ...]
    mib: float | None


class BackboneCosts(BaseModel):
    """All cells of one measurement, and the machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["backbone"] = "backbone"
    device: str
    device_type: Literal["cpu", "cuda"]
    torch: str
    commit: str
    started: str
    threads: int
    load_average: float
    contended: tuple[str, ...]
    rounds: int
    costs: tuple[Cost, ...]

    @property
    def backbones(self) -> tuple[str, ...]:
        """Their names, in the order of the measurement."""
        return tuple(dict.fromkeys(each.backbone for each in self.costs))

    def medians(self, backbone: str) -> dict[int, float]:
        """Context length -> the median milliseconds."""
        return {each.context: statistics.median(each.milliseconds) for each in self.costs if each.backbone == backbone}

    def memory(self, backbone: str) -> dict[int, float]:
        """Context length -> MiB, where they were counted."""
        found = (each for each in self.costs if each.backbone == backbone)
        return {each.context: each.mib for each in found if each.mib is not None}

    @property
    def counts_memory(self) -> bool:
        """Whether memory was counted at all."""
        return any(self.memory(name) for name in self.backbones)

    def fit(self, backbone: str) -> Quadratic:
        """The fit of the medians of a backbone. Raises ExecutionError as `fitted` does."""
        medians = self.medians(backbone)
        return fitted(list(medians), list(medians.values()))


class Step:
    """The forward and backward pass of a backbone, for one sequence; of a bidirectional one, in both directions."""

    def __init__(self, backbone: nn.Module, context: int, device: torch.device):
        generator = torch.Generator().manual_seed(context)
        self.backbone = backbone
        self.tokens_BT = torch.randint(VOCAB, (1, context), generator=generator).to(device)
        self.gradient_BTD = torch.randn((1, context, WIDTH), generator=generator).to(device)

    def __call__(self) -> None:
        self.backbone(self.tokens_BT).layers[-1].backward(self.gradient_BTD)
        if isinstance(self.backbone, Bidirectional):
            self.backbone.reversed_states(self.tokens_BT.flip(1)).layers[-1].backward(self.gradient_BTD)


def measure(
    backbones: Sequence[str],
    contexts: Sequence[int],
    *,
    rounds: int,
    threads: int,
    device: torch.device,
    report: Callable[[str], None] = lambda line: None,
) -> BackboneCosts:
    """Measure backbones at context lengths. A length beyond the positions of a backbone is left out for it.

    Raises: ExecutionError for a backbone that is not measured here, for lengths that cannot be fitted, and when a step
        fails in its process.
    """
    load = environment.load_average()
    about = {"device": environment.device_name(device), "device_type": device.type, "torch": str(torch.__version__)}
    about |= {"commit": environment.commit(), "started": environment.now(), "threads": threads, "rounds": rounds}
    about |= {"load_average": round(load, 2), "contended": tuple(high_load(load, threads))}
    built = {name: made(name, device) for name in dict.fromkeys(backbones)}
    cells = [(name, T) for name, each in built.items() for T in _lengths(name, each, contexts)]
    with environment.torch_threads(threads):
        calls = {(name, T): Step(built[name], T, device) for name, T in cells}
        times = interleaved(calls, rounds, device, report, twice=True)
    sizes = {name: count_without_embedding(each) for name, each in built.items()}
    del built, calls
    costs = []
    for name, T in cells:
        report(f"memory of {name}, {T:,} tokens")
        peak = _in_fresh_process(name, T, threads, device)
        costs.append(Cost(backbone=name, params=sizes[name], context=T, milliseconds=times[name, T], mib=peak))
    return BackboneCosts(**about, costs=tuple(costs))


def made(name: str, device: torch.device) -> nn.Module:
    """A backbone in training mode, always with the same weights. Raises ExecutionError for an unknown one."""
    if name not in BACKBONES:
        raise ExecutionError(f"--backbones {name}: expected {', '.join(BACKBONES)}")
    torch.manual_seed(0)
    return build_backbone(ComponentSpec(name=name, params={"d_model": WIDTH, **BACKBONES[name]}), VOCAB).to(device)


def _lengths(name: str, backbone: nn.Module, contexts: Sequence[int]) -> list[int]:
    """The lengths that a backbone can read. Raises ExecutionError for fewer than three."""
    positions = getattr(backbone, "num_positions", None)
    found = [T for T in sorted(set(contexts)) if T >= 1 and (positions is None or positions >= T)]
    if len(found) < 3:
        limit = "" if positions is None else f" up to {positions:,}, the positions of {name}"
        raise ExecutionError(f"--contexts: expected at least 3 different lengths from 1{limit}")
    return found


def count_without_embedding(backbone: nn.Module) -> int:
    """The number of parameters, without the embedding of the words."""
    return sum(each.numel() for each in backbone.parameters()) - backbone.embedding.weight.numel()


def step_mib(name: str, context: int, device: torch.device) -> float | None:
    """Measure the memory of one step in this process, which must be a new one; None if its peak cannot be reset."""
    backbone = made(name, device)
    Step(backbone, min(WARM_UP, context), device)()  # makes the gradients, too
    step = Step(backbone, context, device)
    reset_peak_memory(device)
    before = torch.cuda.memory_allocated(device) / 2**20 if device.type == "cuda" else resident_mib()
    if peak_memory_mib(device) > 1.01 * before + 1:
        return None
    step()
    return max(0.0, peak_memory_mib(device) - before)


def _in_fresh_process(name: str, context: int, threads: int, device: torch.device) -> float | None:
    asked = {"name": name, "context": context, "threads": threads, "device": device.type}
    command = [sys.executable, "-m", "harness.benchmarks.backbone_costs", json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **BLOCKS_GIVEN_BACK})
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise ExecutionError(f"bench backbone: {name}, {context:,} tokens: {lines[-1]}")
    return json.loads(done.stdout)


def main(asked: dict) -> None:
    """Measure the memory that the parent process asked for, and print it as JSON."""
    with environment.torch_threads(asked["threads"]):
        print(json.dumps(step_mib(asked["name"], asked["context"], torch.device(asked["device"]))))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
