"""The record of one `harness bench`: raw numbers, and the machine on which they were measured."""

import json
import re
import statistics
from pathlib import Path
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from harness.benchmarks.cells import Cell
from harness.benchmarks.settings import Setting, mixtures
from harness.errors import ExecutionError
from harness.kernels.products import Precision, Route
from harness.machine import environment
from harness.machine.files import write_atomically

Kind = Literal["head", "step", "eval", "inference", "memory"]
KINDS: tuple[Kind, ...] = ("head", "step", "eval", "inference", "memory")
WHOLE_MODELS = ("step", "inference")  # kinds whose times include a backbone
VARIATION = 0.15  # a larger variation of the product rate between rounds means that the machine was shared


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CellValues(_Record):
    """The values of one cell: milliseconds of each round, or one peak in MiB; or the reason why there are none."""

    head: str
    impl: str
    precision: Precision
    route: Route
    values: tuple[float, ...] = ()
    lacking: str = ""

    @property
    def cell(self) -> Cell:
        """The cell that the values belong to."""
        return Cell(self.head, self.impl, self.precision, self.route)


class ProductRate(_Record):
    """The GFLOP/s of the three products of a chunk, one number for each round."""

    precision: Precision
    route: Route
    gflops: tuple[float, ...]


class Measurement(_Record):
    """The measurement of one comparison.

    backbone: of whole steps. products_alone: the milliseconds of all matrix products of our step, computed alone.
    """

    kind: Kind
    setting: str
    tokens: int
    width: int
    vocab: int
    device: str
    device_type: Literal["cpu", "cuda"]
    threads: int
    load_average: float
    torch: str
    commit: str
    started: str
    rounds: int
    graph: bool
    contended: tuple[str, ...] = ()
    cells: tuple[CellValues, ...]
    products: tuple[ProductRate, ...] = ()
    backbone: str = "transformer_encoder"
    products_alone: tuple[CellValues, ...] = ()

    def medians(self) -> dict[Cell, float]:
        """Return the median of every cell that was measured, in milliseconds or MiB."""
        return {each.cell: statistics.median(each.values) for each in self.cells if each.values}

    def alone(self, cell: Cell) -> float | None:
        """Return the median milliseconds of the matrix products of a cell's step, computed alone."""
        return next((statistics.median(each.values) for each in self.products_alone if each.cell == cell), None)

    def rate(self, precision: str, route: str) -> float | None:
        """Return the median GFLOP/s of the chunk's products in the same measurement."""
        found = [each.gflops for each in self.products if (each.precision, each.route) == (precision, route)]
        return statistics.median(found[0]) if found else None

    def gflop(self, head: str) -> float:
        """Return the GFLOP of one head's products: 2 N K V d in the forward pass, three times that with the backward
        pass.
        """
        passes = 1 if self.kind in ("eval", "inference") else 3
        return passes * 2e-9 * self.tokens * mixtures(head) * self.vocab * self.width

    @property
    def file_name(self) -> str:
        """'head_ptb_n700.json', with '_t2' for two threads and '_lstm' for this backbone."""
        threads = "" if self.threads == 1 else f"_t{self.threads}"
        backbone = "" if self.backbone == "transformer_encoder" else f"_{self.backbone}"
        return f"{self.kind}_{self.setting}_n{self.tokens}{backbone}{threads}{'_graph' if self.graph else ''}.json"


def about(setting: Setting, device: torch.device, threads: int) -> dict:
    """Return the fields of a Measurement that describe setting and machine. Call this before the measurement."""
    return {
        "setting": setting.name,
        "tokens": setting.tokens,
        "width": setting.width,
        "vocab": setting.vocab,
        "backbone": setting.backbone,
        "device": environment.device_name(device),
        "device_type": device.type,
        "threads": threads,
        "load_average": round(environment.load_average(), 2),
        "torch": torch.__version__,
        "commit": environment.commit(),
        "started": environment.now(),
    }


def unsteady(products: list[ProductRate]) -> list[str]:
    """Return a sentence for each product rate that varied between the rounds by more than VARIATION."""
    sentences = []
    for each in products:
        variation = (max(each.gflops) - min(each.gflops)) / statistics.median(each.gflops)
        if variation > VARIATION:
            sentences.append(f"the {each.precision} {each.route} product rate varied by {100 * variation:.0f} %")
    return sentences


def slug(device: str) -> str:
    """'AMD EPYC 9B45' -> 'amd_epyc_9b45'."""
    return re.sub(r"[^a-z0-9]+", "_", device.lower()).strip("_")


def save(measured: BaseModel, path: Path) -> None:
    """Save a record as JSON. The folder is made if necessary."""
    write_atomically(path, (json.dumps(measured.model_dump(mode="json"), indent=1) + "\n").encode())


def save_with_table(name: str, measured: BaseModel, table: str, results: Path) -> list[Path]:
    """Save a record and its table in markdown; return their paths."""
    places = [results / "bench" / f"{name}.json", results / "tables" / f"{name}.md"]
    save(measured, places[0])
    write_atomically(places[1], table.encode())
    return places


def loses(measurement: Measurement, path: Path) -> str:
    """What the record at `path` has that the new one has not, as a sentence; '' where nothing would be lost."""
    if not path.exists():
        return ""
    kept = load(path)
    gone = [str(cell) for cell in kept.medians() if cell not in measurement.medians()]
    if gone:
        return f"{path} has {len(gone)} cells more than this measurement, such as {gone[0]}"
    if measurement.contended and not kept.contended:
        return f"{path} was measured on a quiet machine, and this measurement is contended"
    return ""


def load(path: Path) -> Measurement:
    """Raises ExecutionError when the file is no measurement."""
    try:
        return Measurement.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise ExecutionError(f"{path} is not a measurement of harness bench: {error.errors()[0]['msg']}") from None
