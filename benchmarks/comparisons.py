"""`bench head`, `step`, `eval`, `inference`: check that all cells of a comparison agree, and time them in turns;
`bench memory`: the peak memory of a head's step beyond weights, inputs and gradients, each cell in a new process.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import torch

from harness.benchmarks import implementations, record
from harness.benchmarks.implementations import COMPILED, IMPLEMENTATIONS, Evaluation, arithmetic
from harness.benchmarks.measure import Report, extra_mib, in_new_process, interleaved, silent
from harness.benchmarks.record import OURS, PUBLISHED, Cell, CellValues, Kind, Measurement, ProductRate, Way
from harness.benchmarks.settings import SETTINGS, Setting, component, setting_of
from harness.benchmarks.step_products import recorded
from harness.benchmarks.workloads import HeadPass, Workload, expected_loss, workloads
from harness.errors import ExecutionError
from harness.kernels.choice import Choice, using
from harness.kernels.products import Products
from harness.machine.environment import torch_threads
from harness.training.cuda_graph import captured

# The largest relative error of the loss. bf16 rounds to 2^-8, and processors round in different places: for the large
# logits of MFS, a processor with AMX is 0.6 % away.
TOLERANCE = {"fp32": 1e-5, "tf32": 5e-4, "bf16": 4 * 2**-8}
SEED = 2
CHUNK_ROWS = {"cpu": 512, "cuda": 4096}  # rows of the products that are timed together with the cells
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison of every head by every implementation in every way, which is a precision and a route of products."""

    kind: Kind
    setting: Setting
    device: torch.device
    heads: tuple[str, ...]
    impls: tuple[str, ...]
    ways: list[Way]
    rounds: int = 7
    threads: int = 1
    graph: bool = False


def measure(
    kind: Kind,
    report: Report = silent,
    *,
    device: torch.device,
    setting: str,
    tokens: int | None,
    heads: tuple[str, ...],
    impl: tuple[str, ...],
    precision: tuple[str, ...],
    route: str,
    backbone: str = "transformer_encoder",
    compile_too: bool = False,
    strict: bool = False,
    **more,
) -> list[Measurement]:
    """Measure what some options of `harness bench` describe; memory on the CPU also at ten times the tokens of a
    setting. `more` are fields of the Comparison.

    Raises: ExecutionError when an option or the loss of an implementation is wrong; if `strict`, also when other
        programs use the machine.
    """
    if more.get("graph") and device.type != "cuda":
        raise ExecutionError("--graph: CUDA graphs need a GPU; leave out --graph")
    chosen = setting_of(setting, device, tokens, backbone)
    for name in heads:
        component(name)
    impls = implementations.checked_impls(impl, compile_too=compile_too)
    ways = implementations.checked_ways(precision, route, device)
    what = {"kind": kind, "setting": chosen, "heads": heads or chosen.heads, "impls": impls, "ways": ways}
    compared = Comparison(**what, device=device, **more)
    if kind != "memory":
        return [timed(compared, report, strict=strict)]
    found = [memory(compared, report)]
    if tokens is None and device.type == "cpu":
        found.append(memory(replace(compared, setting=replace(chosen, tokens=10 * chosen.tokens)), report))
    return found


def timed(compared: Comparison, report: Report = silent, *, strict: bool = False) -> Measurement:
    """Time a comparison. Raises ExecutionError if the loss of an implementation is wrong."""
    device, fields = compared.device, record.about(compared.device, compared.threads)
    _refuse(fields["contended"], strict)
    calls, lacking = {}, {}
    if compared.graph:  # in one memory, since large cells would not fit beside each other: for this, on one stream
        capture = partial(captured, pool=torch.cuda.graph_pool_handle(), stream=torch.cuda.Stream())
    with torch_threads(compared.threads):
        for head, workload in workloads(compared.kind, compared.setting, compared.heads, device):
            expected: dict[bool, float] = {}
            for cell, evaluation in _contestants(compared, head, workload, lacking):
                report(f"checking {cell}")
                if compared.kind == "step":  # it changes weights
                    expected.clear()
                call = _within(cell, partial(workload.run, evaluation), device)
                try:
                    _check(cell, workload, call, expected)
                    calls["cell", cell] = capture(call) if compared.graph else call
                except (RuntimeError, ValueError) as error:
                    lacking[cell] = _excused(cell, error)
                if compared.kind == "step" and cell.impl == OURS and device.type == "cpu":
                    calls["alone", cell] = _within(cell, recorded(call), device)
        calls |= {("chunk", way): _chunk_products(compared.setting, way, device) for way in compared.ways}
        # a step of training follows one of its own size, whose memory it finds
        taken = interleaved(calls, compared.rounds, device, report, twice=device.type == "cpu")
    gflop = 3 * 2e-9 * CHUNK_ROWS[device.type] * compared.setting.vocab * compared.setting.width  # of three products
    rates = tuple(
        ProductRate(precision=p, route=r, gflops=tuple(gflop / ms * 1e3 for ms in taken["chunk", (p, r)]))
        for p, r in compared.ways
    )
    fields["contended"] = (*fields["contended"], *record.unsteady(rates))
    _refuse(fields["contended"], strict)
    times = {
        of: tuple(CellValues(**key._asdict(), values=values) for (what, key), values in taken.items() if what == of)
        for of in ("cell", "alone")
    }
    return Measurement(
        **{"kind": compared.kind, "rounds": compared.rounds, "graph": compared.graph},
        **{**fields, **record.sizes(compared.setting), "backbone": compared.setting.backbone},
        cells=(*times["cell"], *(CellValues(**cell._asdict(), lacking=why) for cell, why in lacking.items())),
        products=rates,
        products_alone=times["alone"],
    )


def memory(compared: Comparison, report: Report = silent) -> Measurement:
    """Measure the MiB of every cell. `compiled` is left out, because it would include the memory of the compiler.
    Raises ExecutionError if ours fails, or if the system cannot reset the counter of the peak.
    """
    setting, device = compared.setting, compared.device
    fields = record.about(device, compared.threads) | {"contended": ()}  # other programs do not change it
    cells = []
    compared = replace(compared, impls=tuple(impl for impl in compared.impls if impl != COMPILED))
    for head in compared.heads:
        lacking: dict[Cell, str] = {}
        for cell, _ in list(_contestants(compared, head, HeadPass(setting, head, device), lacking)):
            report(f"measuring {cell}")
            try:
                found = {"values": (in_new_process(_pass_mib, cell, setting, device, threads=compared.threads),)}
            except Exception as error:  # of any library
                if IMPLEMENTATIONS[cell.impl].pieces == "auto":
                    raise ExecutionError(f"bench memory: {cell}: {error}") from error
                found = {"lacking": f"failed: {type(error).__name__}"}
            cells.append(CellValues(**cell._asdict(), **found))
        cells += [CellValues(**cell._asdict(), lacking=reason) for cell, reason in lacking.items()]
    return Measurement(kind="memory", **record.sizes(setting), **fields, cells=tuple(cells))


def _pass_mib(cell: Cell, setting: Setting, device: torch.device) -> float:
    """Measure the peak of one pass above the memory before it, in this process, which must be a new one.

    Weights, inputs and all gradients are in memory before the pass. A pass of a tiny setting has initialised libraries,
    and on a GPU one of the setting itself has chosen the form of the loss.
    """
    make = IMPLEMENTATIONS[cell.impl].make
    evaluation = None if make is None else make()
    with arithmetic(cell, device):
        HeadPass(SETTINGS["tiny"], cell.head, device).run(evaluation)
    workload = HeadPass(setting, cell.head, device)
    measured = _within(cell, partial(workload.accumulate, evaluation), device)
    if device.type == "cuda":
        measured()
    for leaf in workload.leaves():
        leaf.grad = torch.zeros_like(leaf)
    return extra_mib(measured, device)


def _contestants(
    compared: Comparison, head: str, workload: Workload, lacking: dict[Cell, str]
) -> Iterator[tuple[Cell, Evaluation | None]]:
    """Yield (cell, evaluation) for cells that can be measured. Add the others to `lacking`."""
    with torch.no_grad():
        mixture = workload.distribution()
    for impl in compared.impls:
        cells = [Cell(head, impl, *way) for way in compared.ways]
        reasons = {cell: implementations.lacks(cell, mixture, compared.setting) for cell in cells}
        lacking |= {cell: reason for cell, reason in reasons.items() if reason}
        possible, make = [cell for cell, reason in reasons.items() if not reason], IMPLEMENTATIONS[impl].make
        evaluation = make() if possible and make is not None else None
        yield from ((cell, evaluation) for cell in possible)


def _within(cell: Cell, call: Callable[[], Result], device: torch.device) -> Callable[[], Result]:
    """A call with the precision and route of a cell, and its form of the loss, which is chosen in the first call."""
    form = Choice(pieces=IMPLEMENTATIONS[cell.impl].pieces, forms=implementations.forms_of(cell.impl, device))

    def within() -> Result:
        with arithmetic(cell, device), using(form):
            return call()

    return within


def _check(cell: Cell, workload: Workload, call: Callable[[], torch.Tensor], expected: dict[bool, float]) -> None:
    """Raises ExecutionError if the loss of a call differs from the reference with the same dropout.

    expected: that loss, without and with the epsilon of the published code; computed where it is not there yet.
    """
    with_epsilon = cell.impl == PUBLISHED
    if with_epsilon not in expected:
        torch.manual_seed(SEED)
        expected[with_epsilon] = expected_loss(workload, with_epsilon=with_epsilon)
    torch.manual_seed(SEED)
    found, right = call().item(), expected[with_epsilon]
    if not abs(found - right) <= TOLERANCE[cell.precision] * abs(right):
        raise ExecutionError(
            f"{cell}: the loss is {found:.6f}, but that of the reference is {right:.6f}; nothing is timed"
        )


def _excused(cell: Cell, error: Exception) -> str:
    """Why a cell has no value: all but ours may have too little memory, a library may fail, and a form of ours may be
    left out, because it disagreed on this device. Any other error is raised.
    """
    how, no_memory = IMPLEMENTATIONS[cell.impl], isinstance(error, torch.OutOfMemoryError)
    if cell.impl == OURS or not (no_memory or how.library or (how.pieces and isinstance(error, ValueError))):
        raise error
    return f"failed: {type(error).__name__}"


def _chunk_products(setting: Setting, way: Way, device: torch.device) -> Callable[[], None]:
    """Return a function that computes the three products of a chunk: logits, gradients of facets and of the matrix."""
    rows = CHUNK_ROWS[device.type]
    dtype = torch.bfloat16 if way[0] == "bf16" else torch.float32
    h, w, z = (
        torch.randn(shape, device=device).to(dtype)
        for shape in ((rows, setting.width), (setting.vocab, setting.width), (rows, setting.vocab))
    )
    logits, dh, dw = torch.empty_like(z), torch.empty_like(h), torch.empty_like(w)

    def multiply() -> None:
        with Products(*way).switched(device):
            torch.mm(h, w.t(), out=logits)
            torch.mm(z, w, out=dh)
            torch.mm(z.t(), h, out=dw)

    return multiply


def _refuse(contended: tuple[str, ...], strict: bool) -> None:
    if strict and contended:
        raise ExecutionError(f"--strict: the machine is contended: {'; '.join(contended)}")
