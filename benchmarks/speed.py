"""`bench head`, `step`, `eval` and `inference`: check that all cells of a comparison agree, and time them in turns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from harness.benchmarks.baselines import Evaluation
from harness.benchmarks.cells import IMPLEMENTATIONS, LIBRARIES, OURS, PUBLISHED, Cell, arithmetic, lacks
from harness.benchmarks.machine import high_load
from harness.benchmarks.measurement import CellValues, Kind, Measurement, about, unsteady
from harness.benchmarks.rounds import chunk_products, interleaved, product_rate
from harness.benchmarks.settings import Setting
from harness.benchmarks.step_products import recorded
from harness.benchmarks.workloads import Evaluated, HeadPass, Inference, Step, Workload, expected_loss
from harness.errors import ExecutionError
from harness.kernels.products import Precision, Route
from harness.machine import environment
from harness.training.cuda_graph import SharedMemory, Work, captured

# The largest relative error of the loss. bf16 rounds to 2^-8, and processors round in different places: for the large
# logits of MFS, a processor with AMX is 0.6 % away.
TOLERANCE = {"fp32": 1e-5, "tf32": 5e-4, "bf16": 4 * 2**-8}
SEED = 2
WORKLOADS = {"head": HeadPass, "eval": Evaluated, "step": Step, "inference": Inference}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison of every head by every implementation in every way, which is a precision and a route of products."""

    setting: Setting
    device: torch.device
    heads: tuple[str, ...]
    impls: tuple[str, ...]
    ways: list[tuple[Precision, Route]]
    rounds: int = 7
    threads: int = 1
    graph: bool = False


def measure(kind: Kind, compared: Comparison, report: Callable[[str], None] = lambda line: None) -> Measurement:
    """Time a comparison. Raises ExecutionError if the loss of an implementation is wrong."""
    setting, device = compared.setting, compared.device
    fields = about(setting, device, compared.threads)
    contended = high_load(fields["load_average"], compared.threads)
    calls, lacking, alone = {}, {}, {}
    record = _recorder() if compared.graph else lambda call: call
    with environment.torch_threads(compared.threads):
        for head in compared.heads:
            workload = WORKLOADS[kind](setting, head, device)
            for cell, evaluation in _contestants(compared, head, workload, lacking):
                report(f"checking {cell}")
                call = _call(cell, workload, evaluation, device)
                prepared = _attempt(cell, lambda: _checked(cell, workload, call, record), lacking)  # noqa: B023
                if prepared is not None:
                    calls[cell] = prepared
                if kind == "step" and cell.impl == OURS and device.type == "cpu":
                    alone[_Alone(cell)] = _products_alone(cell, call, device)
        for way in compared.ways:
            calls[way] = chunk_products(setting, *way, device)
        taken = interleaved({**calls, **alone}, compared.rounds, device, report)
    rates = [product_rate(setting, *way, device, taken.pop(way)) for way in compared.ways]
    products_alone = [_values(key.cell, taken.pop(key), "") for key in alone]
    cells = [_values(cell, taken.get(cell, ()), lacking.get(cell, "")) for cell in (*taken, *lacking)]
    return Measurement(
        kind=kind,
        **fields,
        rounds=compared.rounds,
        graph=compared.graph,
        contended=(*contended, *unsteady(rates)),
        cells=tuple(cells),
        products=tuple(rates),
        products_alone=tuple(products_alone),
    )


class _Alone(NamedTuple):
    """What is timed: the matrix products of a cell's step."""

    cell: Cell


def _products_alone(cell: Cell, call: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """Return a function that computes the products of a step, by the same routes as the step."""
    multiply = recorded(call)

    def timed() -> None:
        with arithmetic(cell, device):
            multiply()

    return timed


def _contestants(compared: Comparison, head: str, workload: Workload, lacking: dict[Cell, str]):
    """Yield (cell, evaluation) for cells that can be measured. Add the others to `lacking`."""
    with torch.no_grad():
        mixture = workload.distribution()
    for impl in compared.impls:
        cells = [Cell(head, impl, *way) for way in compared.ways]
        reasons = {cell: lacks(cell, mixture, compared.setting) for cell in cells}
        lacking |= {cell: reason for cell, reason in reasons.items() if reason}
        possible = [cell for cell in cells if not reasons[cell]]
        make, _ = IMPLEMENTATIONS[impl]
        evaluation = make() if possible and make is not None else None
        yield from ((cell, evaluation) for cell in possible)


def _call(cell: Cell, workload: Workload, evaluation: Evaluation | None, device: torch.device):
    def call() -> torch.Tensor:
        with arithmetic(cell, device):
            return workload.run(evaluation)

    return call


def _recorder() -> Callable[[Work], Work]:
    """Return a function that records a call as a CUDA graph. All graphs share their memory, since none reads what an
    earlier one has written: large cells would not fit beside each other.
    """
    shared = SharedMemory()
    return lambda call: captured(call, shared)


def _checked(
    cell: Cell, workload: Workload, call: Callable[[], torch.Tensor], record: Callable[[Work], Work]
) -> Callable[[], object]:
    """Return the function to time.

    Raises ExecutionError if its loss differs from the reference with the same dropout.
    """
    torch.manual_seed(SEED)
    expected = expected_loss(workload, with_epsilon=cell.impl == PUBLISHED)
    torch.manual_seed(SEED)
    found = call().item()
    if not abs(found - expected) <= TOLERANCE[cell.precision] * abs(expected):
        raise ExecutionError(
            f"{cell}: the loss is {found:.6f}, but that of the reference is {expected:.6f}; nothing is timed"
        )
    return record(call)


def _attempt(cell: Cell, prepare: Callable[[], Callable[[], object]], lacking: dict[Cell, str]):
    """Return what `prepare` returns; None if a baseline has too little memory or a library fails.

    Then add the cell to `lacking`.
    """
    try:
        return prepare()
    except RuntimeError as error:
        no_memory = isinstance(error, torch.OutOfMemoryError) and cell.impl != OURS
        if not no_memory and cell.impl not in LIBRARIES:
            raise
        lacking[cell] = f"failed: {type(error).__name__}"
        return None


def _values(cell: Cell, values: tuple[float, ...], lacking: str) -> CellValues:
    return CellValues(
        head=cell.head, impl=cell.impl, precision=cell.precision, route=cell.route, values=values, lacking=lacking
    )
