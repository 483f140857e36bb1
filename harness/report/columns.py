"""The columns of a table: each with a header, and a cell for each row. layouts.py arranges them."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from harness.plan.specs import value_text
from harness.records.metrics import METRICS, Metric, metrics_of
from harness.report import convergence, printed_numbers
from harness.report.content import BLOCKS_MARK, NOTHING, SHARED_MARK, TIE_MARK, Cell, Column
from harness.report.findings import Findings, certificate_mark, percent
from harness.report.printed_numbers import PrintedCell
from harness.report.statistics import WIDEST
from harness.report.table_rows import Row, Time, head_counts, ratio, time_of
from harness.report.verdicts import Compared

PRINTED_TIMES = {  # the papers' times -> their name in a column
    "train_ms_per_batch": "ms/batch",
    "inference_ms_per_batch": "inference ms/batch",
}
EMPTY = Cell(text=NOTHING)
TOO_WIDE = "[too wide]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A column before it is arranged: what the table says of every row.

    Args:
        cells: one for each row.
        kind: the head's 'counts', the 'size' of the model, its 'cost' in time and memory, the 'quality' of its
            predictions, or the 'state' of the row's trials.
        rows: indices of the rows that have the quantity, even where their cells are empty; None: the rows whose cells
            are not empty.
        metric: the metric that it shows, where a reduction against the baseline can be given, else ''.
    """

    column: Column
    cells: tuple[Cell, ...]
    kind: Literal["counts", "size", "cost", "quality", "state"]
    rows: frozenset[int] | None = None
    metric: str = ""

    def is_of(self, indices: Iterable[int]) -> bool:
        """Whether a table of these rows has the column."""
        if self.rows is not None:
            return not self.rows.isdisjoint(indices)
        return any(self.cells[index].text != NOTHING for index in indices)


def quantities(findings: Findings) -> list[Quantity]:
    """All columns that a table of the suite can have, in order."""
    return [
        *_counts(findings),
        *_sizes(findings),
        *_scores(findings),
        *_comparisons(findings),
        *_printed(findings),
        *_costs(findings),
        Quantity(
            column=Column(name="n", key="n"),
            cells=tuple(_state(line, findings) for line in findings.lines),
            kind="state",
            rows=_all(findings),
        ),
    ]


def _all(findings: Findings) -> frozenset[int]:
    return frozenset(range(len(findings.lines)))


def _where(metric: Metric, findings: Findings) -> frozenset[int] | None:
    return _all(findings) if metric.table == "always" else None


def _shown(*kinds: str) -> list[Metric]:
    return [metric for metric in metrics_of(*kinds) if metric.table != "never"]


def _numbers(name: str, cells: Iterable[Cell], kind: str, *, key: str = "", spread: str = "sd", **more) -> Quantity:
    column = Column(name=name, numeric=True, spread=spread, key=key)
    return Quantity(column=column, cells=tuple(cells), kind=kind, **more)


def _counts(findings: Findings) -> list[Quantity]:
    counts = [head_counts(line, findings.evidence.suite) for line in findings.lines]
    by_name = {
        "#S": [each.softmaxes for each in counts],
        "#I": [each.inputs for each in counts],
        "#P": [each.partitions for each in counts],
    }
    return [_numbers(name, map(_whole, values), "counts", key="counts") for name, values in by_name.items()]


def _sizes(findings: Findings) -> list[Quantity]:
    """Counts and settings. Numbers of parameters are the plan's, which knows them before a trial has run."""
    match, lines, found = findings.evidence.suite.match, findings.lines, []
    if match is not None and match.time is not None:
        epochs = [Cell(text=f"{each:g}", value=each) for each in (line.trials[0].train.epochs for line in lines)]
        found.append(_numbers("epochs (matched)", epochs, "size", key="tuned", rows=_all(findings)))
    elif match is not None:
        widths = [line.head_params.get(match.vary, line.backbone_params.get(match.vary)) for line in lines]
        found.append(_numbers(f"{match.vary} (matched)", map(_whole, widths), "size", key="tuned", rows=_all(findings)))
    counts = {
        "params_total": [line.params_total for line in lines],
        "params_head": [line.params_head for line in lines],
        "stored_ngrams": [next(map(int, line.values("stored_ngrams")), None) for line in lines],
    }
    for metric in _shown("count", "setting"):
        known = counts.get(metric.name)
        cells = [_mean(line, metric) for line in lines] if known is None else map(_whole, known)
        found.append(_numbers(metric.label, cells, "size", key=metric.name, rows=_where(metric, findings)))
    return found


def _scores(findings: Findings) -> list[Quantity]:
    """The metrics of predictions. Standard counting is shown where the suite's own counting is another."""
    lines, found = findings.lines, []
    differ = frozenset(index for index, line in enumerate(lines) if line.boundary == "sos_eos")
    for metric in _shown("score"):
        cells, rows = [_mean(line, metric) for line in lines], _where(metric, findings)
        if metric.name == "test_ppl":
            cells = [_ranked(cell, index, findings) for index, cell in enumerate(cells)]
        if metric.name == "test_ppl_standard":
            cells, rows = [cell if index in differ else EMPTY for index, cell in enumerate(cells)], differ
        reducible = metric.name if metric.direction == "lower" else ""
        found.append(_numbers(metric.label, cells, "quality", key=metric.name, metric=reducible, rows=rows))
    return found


def _comparisons(findings: Findings) -> list[Quantity]:
    if findings.baseline is None:
        return []
    each = [findings.compared.get(index) for index in range(len(findings.lines))]
    holm = [compared and compared.p_holm for compared in each]
    flips = [compared and compared.p_sign_flip for compared in each]
    pairs = [compared and len(compared.seeds) for compared in each]
    verdicts = tuple(EMPTY if compared is None else Cell(text=compared.verdict) for compared in each)
    return [
        _numbers(f"vs {findings.baseline}", map(_against, each), "quality", key="change", rows=_all(findings)),
        Quantity(column=Column(name="verdict", key="verdict"), cells=verdicts, kind="quality"),
        _numbers("p (Holm)", map(probability, holm), "quality"),
        _numbers("p (signs)", map(probability, flips), "quality"),
        _numbers("pairs", map(_whole, pairs), "quality"),
        _numbers("correlation", map(_correlation, each), "quality"),
    ]


def _printed(findings: Findings) -> list[Quantity]:
    """The papers' scores, and ours less theirs: of the weights that the paper tested."""
    found = []
    for metric in _shown("score"):
        cells = _printed_cells(findings, metric.name)
        rows = frozenset(index for index, cell in enumerate(cells) if cell)
        last = METRICS.get(f"last_{metric.name}")
        ours = [METRICS[cell.of_ours] if cell else metric for cell in cells]
        if last in ours:
            means = [_mean(line, last) for line in findings.lines]
            found.append(_numbers(last.label, means, "quality", rows=rows, metric=last.name))
        key = "printed" if metric.name == "test_ppl" else ""
        found.append(_numbers(f"printed {metric.label}", map(_as_printed, cells), "quality", key=key, rows=rows))
        differences = map(_difference, findings.lines, ours, cells)
        key = "difference" if metric.name == "test_ppl" else ""
        found.append(_numbers(f"ours - printed {metric.label}", differences, "quality", key=key, rows=rows))
    answers = [printed_numbers.in_short(each) or NOTHING for each in findings.reproduced]
    cells = tuple(Cell(text=answer) for answer in answers)
    return [*found, Quantity(column=Column(name="reproduced", key="reproduced"), cells=cells, kind="quality")]


def _costs(findings: Findings) -> list[Quantity]:
    lines, times, others = findings.lines, [], []
    for metric in _shown("cost"):
        where = _where(metric, findings)
        if metric.timed:
            cells = [_time(line, metric, findings) for line in lines]
            name, what = _with_batch(metric, lines), {"spread": "spread", "rows": where}
            times.append(_numbers(name, cells, "cost", key=metric.name, **what))
        else:
            cells = [_mean(line, metric) for line in lines]
            others.append(_numbers(metric.label, cells, "cost", key=metric.name, rows=where))
    printed = []
    for metric, name in PRINTED_TIMES.items():
        cells = _printed_cells(findings, metric)
        devices = ", ".join(dict.fromkeys(cell.note for cell in cells if cell))
        printed.append(_numbers(f"printed {name} ({devices})", map(_as_printed, cells), "cost"))
    return [*times, *printed, *others]


def _with_batch(metric: Metric, lines: list[Row]) -> str:
    """The header of a time, with the batch size for inference, which is its own: 'inference ms/batch (b=4)'."""
    if metric.name != "inference_ms_per_batch":
        return metric.label
    batches = dict.fromkeys(value for line in lines for value in line.values("inference_batch"))
    return f"{metric.label} (b={', '.join(f'{value:g}' for value in batches)})"


def _printed_cells(findings: Findings, metric: str) -> list[PrintedCell | None]:
    printed = findings.evidence.printed
    return [printed.find(line.trials[0], line.params, metric) for line in findings.lines]


def _mean(line: Row, metric: Metric) -> Cell:
    return Cell.mean(line.values(metric.name), metric.digits)


def _time(line: Row, metric: Metric, findings: Findings) -> Cell:
    time = time_of(line, metric.name, findings.evidence.timings)
    if time is None:
        return EMPTY
    cell, times = Cell.of(time.value, time.spread, metric.digits), _against_baseline(line, metric, time, findings)
    if times is not None:
        cell = replace(cell, text=f"{cell.text} ({times:.1f}x)", ratio=times)
    return cell.marked("" if time.exclusive else SHARED_MARK)


def _against_baseline(line: Row, metric: Metric, time: Time, findings: Findings) -> float | None:
    reference = findings.baselines.get(line.group)
    if reference is None or reference is line:
        return None
    return ratio(time, time_of(reference, metric.name, findings.evidence.timings))


def _ranked(cell: Cell, index: int, findings: Findings) -> Cell:
    """The test perplexity with its rank, and the marks of a row that is collapsed or not converged."""
    if cell.value is None:
        return cell
    rank, mark = findings.ranks.get(index, ""), convergence.marks(findings.lines[index])
    tied = replace(cell, text=f"{cell.text} {TIE_MARK}") if rank == "tie" else cell
    return replace(tied.marked(mark), rank=rank)


def _state(line: Row, findings: Findings) -> Cell:
    return Cell(text=line.state, short=line.done).marked(certificate_mark(line, findings.lines))


def _whole(value: object) -> Cell:
    """A count with commas. The width of a matched suite may be of another type: it is shown as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Cell(text=f"{value:,}", value=value)
    return EMPTY if value is None else Cell(text=str(value))


def _against(compared: Compared | None) -> Cell:
    return EMPTY if compared is None else against(compared)


def _correlation(compared: Compared | None) -> Cell:
    found = None if compared is None else compared.correlation
    return EMPTY if found is None else Cell(text=f"{found:+.2f}", value=found)


def _as_printed(cell: PrintedCell | None) -> Cell:
    return EMPTY if cell is None else Cell(text=cell.value, value=cell.number)


def _difference(line: Row, metric: Metric, cell: PrintedCell | None) -> Cell:
    """Ours minus printed, if both count tokens in the same way."""
    values = line.values(metric.name)
    if cell is None or not values:
        return EMPTY
    if cell.counting and cell.counting != line.boundary:
        return Cell(text=f"{NOTHING} (counted by {cell.counting})")
    if cell.number is None:
        return EMPTY
    difference = statistics.fmean(values) - cell.number
    return Cell(text=f"{difference:+.{metric.digits}f}", value=difference)


def change(nats: float, low: float | None, high: float | None, mark: str = "") -> Cell:
    """'-1.3 % [-1.9, -0.7] ***' of a difference in nats; without an interval '-1.3 %'.

    An interval whose ends are further apart than by the factor WIDEST is not written out: '-1.3 % [too wide]'.
    """
    value = percent(nats)
    if low is None or high is None:
        return Cell(text=f"{value:+.1f} %", value=value)
    bounds = percent(low), percent(high)
    shown = TOO_WIDE if is_too_wide(low, high) else f"[{bounds[0]:+.1f}, {bounds[1]:+.1f}]"
    text = f"{value:+.1f} % {shown} {mark}".strip()
    return Cell(text=text, value=value, interval=bounds, mark=mark)


def is_too_wide(low: float | None, high: float | None) -> bool:
    """Whether an interval in nats is not written out, since its ends are further apart than by the factor WIDEST."""
    return low is not None and high - low > math.log(WIDEST)


def against(compared: Compared) -> Cell:
    """The change of test perplexity against the baseline, with its interval if there is one."""
    difference, blocks = compared.difference, compared.interval
    if difference.low is None and blocks is not None:
        return change(difference.mean, blocks.low, blocks.high, BLOCKS_MARK)
    return change(difference.mean, difference.low, difference.high, compared.stars)


def probability(value: float | None) -> Cell:
    """'0.031', '< 0.001'; '-' for None."""
    if value is None:
        return Cell(text=NOTHING)
    return Cell(text=f"{value:.3f}" if value >= 0.001 else "< 0.001", value=value)


def with_tuned(said: list[Quantity], findings: Findings) -> list[Quantity]:
    """The quantities of a table, with a column for each tuned key before the quality of the predictions."""
    tuning = findings.evidence.suite.tuning
    if tuning is None:
        return said
    first = next(index for index, each in enumerate(said) if each.kind == "quality")
    return [*said[:first], *(_column(key, findings) for key in tuning.spec.space), *said[first:]]


def _column(key: str, findings: Findings) -> Quantity:
    cells = tuple(_cell(line.tuned[key]) if key in line.tuned else EMPTY for line in findings.lines)
    numeric = all(cell is EMPTY or cell.value is not None for cell in cells)
    return Quantity(
        column=Column(name=f"{key.removeprefix('train.')} (tuned)", numeric=numeric, key="tuned"),
        cells=cells,
        kind="quality",
    )


def _cell(value: object) -> Cell:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(text=f"{value:g}", value=value)
    return Cell(text=value_text(value))
