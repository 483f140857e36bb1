"""What a table says of its rows, quantity by quantity: a header, and a cell for each row. shapes.py lays them out."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from harness.records.metrics import METRICS
from harness.report.evidence.comparisons import Compared
from harness.report.evidence.findings import BLOCKS_MARK, SHARED_MARK, TIE_MARK, UNCERTIFIED_MARK, Findings, percent
from harness.report.evidence.printed_numbers import PrintedCell
from harness.report.evidence.table_rows import Row
from harness.report.evidence.times import time_of
from harness.report.table.content import NOTHING, Cell, Column
from harness.report.table.head_counts import head_counts

PRINTED = {  # metrics that are set beside a paper's -> their name in a column, decimals
    "valid_ppl": ("valid ppl", 2),
    "test_ppl": ("test ppl", 2),
    "test_ppl_word": ("test ppl/word", 2),
    "test_ppl_byte": ("test ppl/byte", 3),
    "test_bits_per_character": ("bits/char", 3),
}
EMPTY = Cell(text=NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One thing that is said of every row.

    Args:
        cells: one for each row.
        kind: what it is of: the head's 'counts', the model's 'size', its 'cost' in time and memory, the 'quality' of
            its predictions, or the 'state' of the row's trials.
        rows: indices of those that it is told of, whatever their cells hold; None: of those that have something.
        metric: of the records, where a reduction of it can be told, else ''.
    """

    column: Column
    cells: tuple[Cell, ...]
    kind: Literal["counts", "size", "cost", "quality", "state"]
    rows: frozenset[int] | None = None
    metric: str = ""

    def is_of(self, indices: Iterable[int]) -> bool:
        """Whether a table of some rows has it."""
        if self.rows is not None:
            return not self.rows.isdisjoint(indices)
        return any(self.cells[index].text != NOTHING for index in indices)


def quantities(findings: Findings) -> list[Quantity]:
    """All that can be said of a suite's rows, in the order in which a table says it."""
    return [
        *_counts(findings),
        *_sizes(findings),
        *_perplexities(findings),
        *_comparisons(findings),
        *_printed(findings),
        *_costs(findings),
        Quantity(
            column=Column(name="n"),
            cells=tuple(_state(line) for line in findings.lines),
            kind="state",
            rows=_all(findings),
        ),
    ]


def _all(findings: Findings) -> frozenset[int]:
    return frozenset(range(len(findings.lines)))


def _numbers(name: str, cells: Iterable[Cell], kind: str, *, spread: str = "sd", **more) -> Quantity:
    return Quantity(column=Column(name=name, numeric=True, spread=spread), cells=tuple(cells), kind=kind, **more)


def _counts(findings: Findings) -> list[Quantity]:
    counts = [head_counts(line, findings.evidence.suite) for line in findings.lines]
    by_sign = {
        "#S": [each.softmaxes for each in counts],
        "#I": [each.inputs for each in counts],
        "#P": [each.partitions for each in counts],
    }
    return [_numbers(sign, map(_whole, values), "counts") for sign, values in by_sign.items()]


def _sizes(findings: Findings) -> list[Quantity]:
    match, lines = findings.evidence.suite.match, findings.lines
    told = {"params": [line.params_total for line in lines], "head params": [line.params_head for line in lines]}
    if match is not None:
        widths = [line.head_params.get(match.vary, line.backbone_params.get(match.vary)) for line in lines]
        told = {f"{match.vary} (matched)": widths, **told}
    return [_numbers(name, map(_whole, values), "size", rows=_all(findings)) for name, values in told.items()]


def _perplexities(findings: Findings) -> list[Quantity]:
    lines = findings.lines
    found = [_means("valid ppl before training", "start_valid_ppl", lines)]
    for metric, (name, digits) in PRINTED.items():
        cells = [_mean(line, metric, digits) for line in lines]
        if metric == "test_ppl":
            cells = [_ranked(cell, index, findings) for index, cell in enumerate(cells)]
        always = _all(findings) if metric in ("valid_ppl", "test_ppl") else None
        found.append(_numbers(name, cells, "quality", metric=metric, rows=always))
    differ = frozenset(index for index, line in enumerate(lines) if line.boundary == "sos_eos")
    standard = [_mean(line, "test_ppl_standard") if index in differ else EMPTY for index, line in enumerate(lines)]
    more = {"metric": "test_ppl_standard", "rows": differ}
    return [*found, _numbers("test ppl, standard counting", standard, "quality", **more)]


def _comparisons(findings: Findings) -> list[Quantity]:
    baseline = findings.evidence.suite.table.baseline
    if baseline is None:
        return []
    each = [findings.compared.get(index) for index in range(len(findings.lines))]
    holm = [compared and compared.p_holm for compared in each]
    signs = [compared and compared.paired.p_sign_flip for compared in each]
    pairs = [compared and len(compared.seeds) for compared in each]
    return [
        _numbers(f"vs {baseline}", map(_against, each), "quality", rows=_all(findings)),
        _numbers("p (Holm)", map(_probability, holm), "quality"),
        _numbers("p (signs)", map(_probability, signs), "quality"),
        _numbers("pairs", map(_whole, pairs), "quality"),
    ]


def _printed(findings: Findings) -> list[Quantity]:
    """The papers' numbers, and ours less theirs: of the weights that the paper tested."""
    found = []
    for metric, (name, digits) in PRINTED.items():
        cells = _printed_cells(findings, metric)
        told = frozenset(index for index, cell in enumerate(cells) if cell)
        last = f"last_{metric}"
        ours = [last if cell and cell.weights == "last" and last in METRICS else metric for cell in cells]
        if last in ours:
            found.append(_means(f"{name}, last epoch", last, findings.lines, rows=told, metric=last))
        found.append(_numbers(f"printed {name}", map(_as_printed, cells), "quality", rows=told))
        differences = map(_difference, findings.lines, ours, cells, [digits] * len(cells))
        found.append(_numbers(f"ours - printed {name}", differences, "quality", rows=told))
    return found


def _costs(findings: Findings) -> list[Quantity]:
    lines = findings.lines
    batches = dict.fromkeys(value for line in lines for value in line.values("inference_batch"))
    batch = ", ".join(f"{value:g}" for value in batches)
    times = {
        "train": "train ms/batch",
        "eval": "eval ms/batch",
        "inference": f"inference ms/batch (b={batch})",
    }
    found = []
    for what, name in times.items():
        cells = [_time(line, f"{what}_ms_per_batch", findings) for line in lines]
        always = _all(findings) if what != "inference" else None
        found.append(_numbers(name, cells, "cost", spread="spread", rows=always))
    for what, name in {"train": "ms/batch", "inference": "inference ms/batch"}.items():
        cells = _printed_cells(findings, f"{what}_ms_per_batch")
        devices = ", ".join(dict.fromkeys(cell.note for cell in cells if cell))
        found.append(_numbers(f"printed {name} ({devices})", map(_as_printed, cells), "cost"))
    return [*found, _means("peak MiB", "peak_memory_mib", lines, digits=0, kind="cost")]


def _printed_cells(findings: Findings, metric: str) -> list[PrintedCell | None]:
    printed = findings.evidence.printed
    return [printed.find(line.trials[0], line.params, metric) for line in findings.lines]


def _means(name: str, source: str, lines: list[Row], *, digits: int = 2, kind: str = "quality", **more) -> Quantity:
    return _numbers(name, [_mean(line, source, digits) for line in lines], kind, **more)


def _mean(line: Row, metric: str, digits: int = 2) -> Cell:
    """'mean ± sd' over seeds; the value itself when there is one."""
    values = line.values(metric)
    if not values:
        return EMPTY
    return _spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, digits)


def _spread(value: float, spread: float | None, digits: int) -> Cell:
    text = f"{value:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")
    return Cell(text=text, value=value, spread=spread)


def _time(line: Row, metric: str, findings: Findings) -> Cell:
    time = time_of(line, metric, findings.evidence.timings)
    if time is None:
        return EMPTY
    cell = _spread(time.value, time.spread, 1)
    return cell if time.exclusive else _marked(cell, SHARED_MARK)


def _marked(cell: Cell, mark: str) -> Cell:
    return replace(cell, text=f"{cell.text} {mark}", mark=mark)


def _ranked(cell: Cell, index: int, findings: Findings) -> Cell:
    tie = f" {TIE_MARK}" if index in findings.tied else ""
    return replace(cell, text=cell.text + tie, rank=findings.ranks.get(index, ""))


def _state(line: Row) -> Cell:
    cell = Cell(text=line.state)
    return _marked(cell, UNCERTIFIED_MARK) if line.uncertified else cell


def _whole(value: object) -> Cell:
    """A count with commas; anything else that a width of a matched suite might be, as it is."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Cell(text=f"{value:,}", value=value)
    return EMPTY if value is None else Cell(text=str(value))


def _against(compared: Compared | None) -> Cell:
    """'-1.3 % [-1.9, -0.7] ***': the change of test perplexity, with its interval where there is one."""
    if compared is None:
        return EMPTY
    paired, blocks = compared.paired, compared.interval
    change, bounds = percent(paired.mean), (paired.low, paired.high)
    mark = compared.stars
    if paired.low is None and blocks is not None and blocks.low is not None:
        bounds, mark = (blocks.low, blocks.high), BLOCKS_MARK
    if None in bounds:
        return Cell(text=f"{change:+.1f} %", value=change)
    low, high = map(percent, bounds)
    cell = Cell(text=f"{change:+.1f} % [{low:+.1f}, {high:+.1f}]", value=change, interval=(low, high))
    return _marked(cell, mark) if mark else cell


def _probability(value: float | None) -> Cell:
    if value is None:
        return EMPTY
    return Cell(text=f"{value:.3f}" if value >= 0.001 else "< 0.001", value=value)


def _as_printed(cell: PrintedCell | None) -> Cell:
    return EMPTY if cell is None else Cell(text=cell.value, value=cell.number)


def _difference(line: Row, metric: str, cell: PrintedCell | None, digits: int) -> Cell:
    """Ours minus printed, only where both count tokens alike."""
    values = line.values(metric)
    if cell is None or not values:
        return EMPTY
    if cell.counting and cell.counting != line.boundary:
        return Cell(text=f"{NOTHING} (counted by {cell.counting})")
    if cell.number is None:
        return EMPTY
    difference = statistics.fmean(values) - cell.number
    return Cell(text=f"{difference:+.{digits}f}", value=difference)
