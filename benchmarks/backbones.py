"""`bench backbone`: time and memory of a step of each backbone alone, by context length, and where attention costs more
than the rest.

A step is the forward and the backward pass of a backbone in training mode, for one sequence of T tokens; the gradient
of the top layer is given, and no other layer has one. There is no head, no loss and no optimizer. All backbones and
lengths take turns in every round, and each step is made twice, of which the second is timed.

The memory of a cell is the peak of one step above that before it, in a process of its own, with weights and gradients
there before. A system that does not reset the peak of a process has no such numbers.
"""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from harness.benchmarks.measure import BLOCKS_GIVEN_BACK, Report, extra_mib, in_new_process, interleaved, silent
from harness.benchmarks.record import Record, Rows, Values, about
from harness.benchmarks.tables import document, listed
from harness.errors import ExecutionError
from harness.machine.environment import torch_threads
from harness.model import build_backbone
from harness.plan.specs import ComponentSpec
from harness.protocols import Bidirectional

TITLE = "Cost of a step of a backbone"
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


class Cost(Values):
    """A backbone at one context length: milliseconds of a step in each round; the peak of a step in MiB, None if this
    system does not count it.
    """

    backbone: str
    params: int
    context: int
    milliseconds: tuple[float, ...]
    mib: float | None


class Quadratic(NamedTuple):
    """c0 + c1 T + c2 T^2, and the largest relative difference between a value and the fit."""

    constant: float
    linear: float
    quadratic: float
    deviation: float = 0.0

    def at(self, length: float) -> float:
        return self.constant + self.linear * length + self.quadratic * length**2

    def share(self, length: float) -> float:
        """The part of the cost at a length that grows with its square."""
        return self.quadratic * length**2 / self.at(length)

    def equal_at(self, longest: int) -> str:
        """c1 / c2, where both parts are equal, up to the longest measured one; beyond it, doubling the length more than
        triples their sum.
        """
        if self.quadratic == 0:
            return "never"
        length = self.linear / self.quadratic
        return f"{length:,.0f}" if length <= longest else f"beyond {longest:,}"


class BackboneCosts(Record):
    """All cells of one measurement, and the machine."""

    stem = "backbone"
    kind: Literal["backbone"] = "backbone"
    costs: tuple[Cost, ...]

    def times(self) -> dict[str, dict[int, float]]:
        """Backbone -> context length -> the median milliseconds."""
        return self._by_length(lambda each: statistics.median(each.milliseconds))

    def peaks(self) -> dict[str, dict[int, float]]:
        """Backbone -> context length -> MiB, for backbones and lengths whose memory was counted."""
        return self._by_length(lambda each: each.mib)

    def _by_length(self, value: Callable[[Cost], float | None]) -> dict[str, dict[int, float]]:
        found: dict[str, dict[int, float]] = {}
        for each in self.costs:
            if (counted := value(each)) is not None:
                found.setdefault(each.backbone, {})[each.context] = counted
        return found

    def tables(self) -> list[Rows]:
        """Medians and MiB by context length; the coefficients of the times, and where their two parts are equal."""
        times, peaks = self.times(), self.peaks()
        by_length = {"tokens": lambda T: f"{T:,}"}
        for unit, digits, every in (("ms", ".3g", times), ("MiB", ".1f", peaks)):
            for name in times:
                of = {T: f"{value:{digits}}" for T, value in every.get(name, {}).items()}
                by_length[f"{name}, {unit}"] = lambda T, of=of: of.get(T, "-")
        fits, longest = {name: fitted(of) for name, of in times.items()}, {name: max(of) for name, of in times.items()}
        params = {each.backbone: each.params for each in self.costs}
        coefficients = {
            "backbone": lambda name: name,
            "parameters": lambda name: f"{params[name]:,}",
            "c0 ms": lambda name: f"{fits[name].constant:.3g}",
            "c1 us": lambda name: f"{1e3 * fits[name].linear:.3g}",
            "c2 ns": lambda name: f"{1e6 * fits[name].quadratic:.3g}",
            "c2 T^2 = c1 T at": lambda name: fits[name].equal_at(longest[name]),
            "c2 T^2 of the longest": lambda name: f"{fits[name].share(longest[name]):.0%}",
            "deviation": lambda name: f"{fits[name].deviation:.0%}",
        }
        lengths = sorted({each.context for each in self.costs})
        return [listed(lengths, by_length), listed([*times], coefficients)]

    def draw(self, folder: Path) -> list[Path]:
        from harness.report import outputs  # here: matplotlib takes a second to import
        from harness.report.figures import plots
        from harness.report.figures.lines import Cost, of_costs

        where = self.device + ("" if self.device_type == "cuda" else f", {self.threads} thread(s)")
        times = [Cost(label=name, measured=of, fit=fitted(of).at) for name, of in self.times().items()]
        caption = "Marks: medians. Lines: c0 + c1 T + c2 T^2."
        drawn = [of_costs(times, "step_time", f"{TITLE} by context length", where, "milliseconds of a step", caption)]
        if peaks := [Cost(label=name, measured=of) for name, of in self.peaks().items()]:
            title = "Memory of a step by context length"
            caption = "Marks: the peak of one step above the memory before it, in a process of its own."
            drawn.append(of_costs(peaks, "step_memory", title, where, "MiB of a step", caption))
        pictures, _ = plots.files_of(drawn, folder)
        outputs.write(pictures)
        return [*pictures]

    def markdown(self) -> str:
        given = " ".join(f"{name}={value}" for name, value in BLOCKS_GIVEN_BACK.items())
        memory = "the peak of one step above the memory before it, in fresh processes with weights and gradients, "
        memory += "by torch.cuda.max_memory_allocated" if self.device_type == "cuda" else f"resident memory, {given}"
        return document(
            f"{TITLE} by context length,",
            "Made by `harness bench backbone --save`. Forward and backward pass in training mode, one sequence, "
            f"without head, loss and optimizer; width {WIDTH}, V = {VOCAB:,}, dropout {DROPOUT:g}, float32. The second "
            "table has the time as c0 + c1 T + c2 T^2, T tokens.",
            self,
            [
                "c2 T^2 = c1 T at: from this length on, a context twice as long costs at least three times as much of "
                "what grows. For a length that is beyond the longest measured one, only that is said. Fitted to the "
                "medians by non-negative least squares of relative differences; deviation: the largest one. "
                "parameters: without the embedding.",
                f"MiB: {memory if self.peaks() else 'not counted; this system does not reset the peak of a process'}.",
            ],
        )


def fitted(values: dict[int, float]) -> Quadratic:
    """Fit values by length, no coefficient below 0, by least squares of the relative differences: the sum over T of
    ((fit(T) - value) / value)^2.

    Absolute differences would be those of the longest contexts only, whose costs are hundreds of times as large.
    """
    from scipy.optimize import nnls  # here: it takes a second to import

    T, y = np.array([*values], dtype=float), np.array([*values.values()], dtype=float)
    columns = np.stack([T**power for power in range(3)], axis=1) / y[:, None]
    scales = np.linalg.norm(columns, axis=0)
    coefficients = nnls(columns / scales, np.ones(len(y)))[0] / scales
    return Quadratic(*coefficients.tolist(), deviation=float(np.abs(columns @ coefficients - 1).max()))


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
    kind: str,
    report: Report = silent,
    *,
    backbones: Sequence[str],
    contexts: Sequence[int],
    rounds: int,
    threads: int,
    device: torch.device,
) -> list[BackboneCosts]:
    """Measure backbones at context lengths. A length beyond the positions of a backbone is left out for it. Raises
    ExecutionError for an unknown backbone, for lengths that cannot be fitted, and when a step fails in its process.
    """
    machine, built = about(device, threads), {name: made(name, device) for name in dict.fromkeys(backbones)}
    cells = [(name, T) for name, each in built.items() for T in _lengths(name, each, contexts)]
    with torch_threads(threads):
        calls = {(name, T): Step(built[name], T, device) for name, T in cells}
        times = interleaved(calls, rounds, device, report, twice=True)
    params = {name: count_without_embedding(each) for name, each in built.items()}
    del built, calls
    costs = []
    for name, T in cells:
        report(f"memory of {name}, {T:,} tokens")
        try:
            peak = in_new_process(step_mib, name, T, device, threads=threads, variables=BLOCKS_GIVEN_BACK)
        except RuntimeError as error:
            raise ExecutionError(f"bench backbone: {name}, {T:,} tokens: {error}") from error
        costs.append(Cost(backbone=name, params=params[name], context=T, milliseconds=times[name, T], mib=peak))
    return [BackboneCosts(**machine, rounds=rounds, costs=tuple(costs))]


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
    return sum(each.numel() for each in backbone.parameters()) - backbone.embedding.weight.numel()


def step_mib(name: str, context: int, device: torch.device) -> float | None:
    """Measure the memory of one step in this process, which must be a new one; None if its peak cannot be reset."""
    backbone = made(name, device)
    Step(backbone, min(WARM_UP, context), device)()  # makes the gradients, too
    try:
        return extra_mib(Step(backbone, context, device), device)
    except ExecutionError:
        return None
