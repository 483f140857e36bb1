"""The records of benchmarks: raw numbers, and the machine on which they were measured, as JSON files."""

import json
import math
import re
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from harness.benchmarks.settings import Setting, mixtures
from harness.errors import ExecutionError
from harness.kernels.products import Precision, Route
from harness.machine import environment, limits
from harness.machine.files import write_atomically

Kind = Literal["head", "step", "eval", "inference", "memory"]
Way = tuple[Precision, Route]
Rows = list[list[str]]  # of a table: a header, and the rows
OURS, PUBLISHED = "ours", "published"  # names of implementations
VARIATION = 0.15  # a larger variation of the product rate between rounds means that the machine was shared


class Values(BaseModel):
    """Values that do not change. An unknown key of a file is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Record(Values):
    """What the records of all benchmarks have. `load_average` at the start is None in old records that do not say it;
    `contended`: what shows that other programs used the machine, a sentence each.
    """

    stem: ClassVar[str] = ""
    kind: str
    device: str
    device_type: Literal["cpu", "cuda"] = "cpu"
    threads: int = 1
    load_average: float | None = None
    torch: str = ""
    commit: str
    started: str
    contended: tuple[str, ...] = ()
    rounds: int = 1

    @property
    def holds(self) -> bool:
        """Whether what was measured is as it has to be."""
        return True

    def tables(self) -> list[Rows]:
        """The tables that are shown."""
        return []

    def markdown(self) -> str:
        """The tables with a description of the measurement."""
        return ""

    def draw(self, folder: Path) -> list[Path]:
        """Write the plots into a folder; return their paths."""
        return []


R = TypeVar("R", bound=Record)


class Cell(NamedTuple):
    """One cell of a comparison. A time or an amount of memory belongs to a cell."""

    head: str
    impl: str
    precision: Precision
    route: Route

    def __str__(self) -> str:
        return " ".join(self)


class CellValues(Values):
    """The values of one cell: milliseconds of each round, or one peak in MiB; or the reason why there are none."""

    head: str
    impl: str
    precision: Precision
    route: Route
    values: tuple[float, ...] = ()
    lacking: str = ""

    @property
    def cell(self) -> Cell:
        return Cell(self.head, self.impl, self.precision, self.route)


class ProductRate(Values):
    """The GFLOP/s of the three products of a chunk, one number for each round."""

    precision: Precision
    route: Route
    gflops: tuple[float, ...]


class Measurement(Record):
    """The measurement of one comparison. `products_alone`: milliseconds of all matrix products of our step, computed
    alone.
    """

    kind: Kind
    setting: str
    tokens: int
    width: int
    vocab: int
    graph: bool = False
    cells: tuple[CellValues, ...]
    products: tuple[ProductRate, ...] = ()
    backbone: str = "transformer_encoder"
    products_alone: tuple[CellValues, ...] = ()

    def named(self, field: str) -> list[str]:
        """The 'head's or 'impl's, in the order of the cells."""
        return list(dict.fromkeys(getattr(each, field) for each in self.cells))

    @property
    def ways(self) -> list[Way]:
        """The pairs (precision, route), in the order of the cells."""
        return list(dict.fromkeys((each.precision, each.route) for each in self.cells))

    def medians(self) -> dict[Cell, float]:
        """The median of every cell that was measured, in milliseconds or MiB."""
        return {each.cell: statistics.median(each.values) for each in self.cells if each.values}

    def alone(self) -> dict[Cell, float]:
        """The median milliseconds of the matrix products of each step, computed alone."""
        return {each.cell: statistics.median(each.values) for each in self.products_alone}

    def best(self, head: str, impl: str, precision: str, route: str | None = None) -> float:
        """The median of a route, or the smallest of all routes; nan if there is none."""
        wanted = (head, impl, precision)
        found = [took for cell, took in self.medians().items() if cell[:3] == wanted and route in (None, cell.route)]
        return min(found, default=math.nan)

    def base(self, head: str) -> float:
        """The median of the published structure in float32 by torch's default route; nan if there is none."""
        return self.best(head, PUBLISHED, "fp32", "default")

    def rate(self, way: Way) -> float:
        """The median GFLOP/s of the chunk's products in the same measurement; nan if there is none."""
        found = (statistics.median(each.gflops) for each in self.products if (each.precision, each.route) == way)
        return next(found, math.nan)

    def gflop(self, head: str) -> float:
        """The GFLOP of one head's products: 2 N K V d in the forward pass, three times that with the backward pass."""
        passes = 1 if self.kind in ("eval", "inference") else 3
        return passes * 2e-9 * self.tokens * mixtures(head) * self.vocab * self.width

    @property
    def place(self) -> Path:
        """'amd_epyc/head_ptb_n700.json', with '_t2' for two threads and '_lstm' for this backbone."""
        threads = "" if self.threads == 1 else f"_t{self.threads}"
        backbone = "" if self.backbone == "transformer_encoder" else f"_{self.backbone}"
        end = f"{backbone}{threads}{'_graph' if self.graph else ''}.json"
        return Path(slug(self.device)) / f"{self.kind}_{self.setting}_n{self.tokens}{end}"


def about(device: torch.device, threads: int = 1) -> dict[str, Any]:
    """The fields of a Record that describe the machine. Call this before the measurement.

    It is contended if other processes leave fewer cores free than we use. A load of 0.25 is ignored as noise.
    """
    load, cores = environment.load_average(), limits.cpus_available()
    busy = f"load {load:.2f} at the start on {cores} cores, of which this measurement uses {threads}"
    return {
        "device": environment.device_name(device),
        "device_type": device.type,
        "threads": threads,
        "load_average": round(load, 2),
        "torch": str(torch.__version__),
        "commit": environment.commit(),
        "started": environment.now(),
        "contended": (busy,) if load > cores - threads + 0.25 else (),
    }


def sizes(setting: Setting) -> dict[str, Any]:
    """The fields of a record that describe a setting."""
    return {"setting": setting.name} | {name: getattr(setting, name) for name in ("tokens", "width", "vocab")}


def unsteady(products: Iterable[ProductRate]) -> list[str]:
    """A sentence for each product rate that varied between the rounds by more than VARIATION."""
    variations = {each: (max(each.gflops) - min(each.gflops)) / statistics.median(each.gflops) for each in products}
    return [
        f"the {each.precision} {each.route} product rate varied by {100 * variation:.0f} %"
        for each, variation in variations.items()
        if variation > VARIATION
    ]


def slug(device: str) -> str:
    """'AMD EPYC 9B45' -> 'amd_epyc_9b45'."""
    return re.sub(r"[^a-z0-9]+", "_", device.lower()).strip("_")


def save(measured: Record, path: Path) -> None:
    """Save a record as JSON. The folder is made if necessary."""
    write_atomically(path, (json.dumps(measured.model_dump(mode="json"), indent=1) + "\n").encode())


def save_with_table(measured: Record, results: Path) -> list[Path]:
    """Save a record, its table in markdown and its plots, named by the device, too; return their paths."""
    name = f"{measured.stem}_{slug(measured.device)}"
    places = [results / "bench" / f"{name}.json", results / "tables" / f"{name}.md"]
    save(measured, places[0])
    write_atomically(places[1], measured.markdown().encode())
    return [*places, *measured.draw(results / "plots" / name)]


def load(record: type[R], path: Path) -> R:
    """Read a record. Raises ExecutionError when the file is none of this type."""
    try:
        return record.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise ExecutionError(f"{path} is not a measurement of harness bench: {error.errors()[0]['msg']}") from None


def loses(measured: Measurement, path: Path) -> str:
    """What the record at `path` has that the new one has not, as a sentence; '' where nothing would be lost."""
    if not path.exists():
        return ""
    kept = load(Measurement, path)
    gone = [cell for cell in kept.medians() if cell not in measured.medians()]
    if gone:
        return f"{path} has {len(gone)} cells more than this measurement, such as {gone[0]}"
    if measured.contended and not kept.contended:
        return f"{path} was measured on a quiet machine, and this measurement is contended"
    return ""
