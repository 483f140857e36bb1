"""The columns of a table: each with a header, and a cell for each row. layouts.py arranges them."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from harness.plan.specs import value_text
from harness.records.metrics import METRICS, Metric, metrics_of
from harness.report import convergence, printed_numbers
from harness.report.content import (
    COARSE,
    FAILED_MARK,
    NOTHING,
    TIE_MARK,
    Cell,
    Column,
    Topic,
)
from harness.report.findings import Findings, certificate_mark, percent
from harness.report.printed_numbers import PrintedCell
from harness.report.row_facts import RowFacts, head_counts, ratio, time_mark, time_of
from harness.report.statistics import WIDEST
from harness.report.verdicts import STRONGEST, Compared, Verdict, difference, shared_seeds

PRINTED_TIMES = {  # the papers' times -> their name in a column
    "train_ms_per_batch": "ms/batch",
    "inference_ms_per_batch": "inference ms/batch",
}
EMPTY = Cell(text=NOTHING)
UNTESTED = ("lower", "higher")  # what a change is called that was not tested
ColumnKind = Literal["counts", "size", "cost", "quality", "state"]
CellOf = Callable[[RowFacts], Cell]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A column before it is arranged: what the table says of every row.

    Args:
        cells: that of each row.
        kind: the head's 'counts', the 'size' of the model, its 'cost' in time and memory, the
            'quality' of its predictions, or the 'state' of the row's trials.
        rows: those that have the quantity, even where their cells are empty; None: the rows whose
            cells are not empty.
        metric: the metric that it shows, where a reduction against the baseline can be given, else
            ''.
    """

    column: Column
    cells: dict[RowFacts, Cell]
    kind: ColumnKind
    rows: frozenset[RowFacts] | None = None
    metric: str = ""

    def is_of(self, rows: Iterable[RowFacts]) -> bool:
        """Whether a table of these rows has the column."""
        if self.rows is not None:
            return not self.rows.isdisjoint(rows)
        return any(self.cells[row].text != NOTHING for row in rows)


def quantities(findings: Findings) -> list[Quantity]:
    """All columns that a table of the suite can have, in order."""
    return [
        *_counts(findings),
        *_sizes(findings),
        *_tuned(findings),
        *_scores(findings),
        *_comparisons(findings),
        *_printed(findings),
        *_costs(findings),
        _state(findings),
    ]


def _quantity(
    findings: Findings,
    name: str,
    kind: ColumnKind,
    cell_of: CellOf,
    *topics: Topic,
    key: str = "",
    numeric: bool = True,
    spread: str = "sd",
    rows: frozenset[RowFacts] | None = None,
    metric: str = "",
) -> Quantity:
    """A column by its header and the cell of a row."""
    cells = {row: cell_of(row) for row in findings.rows}
    column = Column(name=name, numeric=numeric, spread=spread, key=key, topics=topics)
    return Quantity(column=column, cells=cells, kind=kind, rows=rows, metric=metric)


def _shown(*kinds: str) -> list[Metric]:
    return [metric for metric in metrics_of(*kinds) if metric.table != "never"]


def _where(metric: Metric, findings: Findings) -> frozenset[RowFacts] | None:
    """All rows, of a metric that a table has even where no trial has measured it."""
    return frozenset(findings.rows) if metric.table == "always" else None


def _counts(findings: Findings) -> list[Quantity]:
    def count(symbol: str) -> CellOf:
        return lambda row: _whole(head_counts(row)[symbol])

    symbols = ("#S", "#I", "#P")
    return [_quantity(findings, each, "counts", count(each), key="counts") for each in symbols]


def _sizes(findings: Findings) -> list[Quantity]:
    """What was matched, counts and settings."""
    found = _matched(findings)
    for metric in _shown("count", "setting"):
        cell_of = _size(metric)
        about = {"key": metric.name, "rows": _where(metric, findings)}
        found.append(_quantity(findings, metric.label, "size", cell_of, **about))
    return found


def _matched(findings: Findings) -> list[Quantity]:
    """The width or the epochs that matching has chosen for each row."""
    match = findings.evidence.suite.match
    if match is None:
        return []

    def chosen(row: RowFacts) -> Cell:
        if match.by_epochs:
            return _setting(row.trials[0].train.epochs)
        params = row.params_of("backbone") | row.params_of("head")
        return _whole(params.get(match.vary))

    name = f"{'epochs' if match.by_epochs else match.vary} (matched)"
    about = {"key": "tuned", "rows": frozenset(findings.rows)}
    return [_quantity(findings, name, "size", chosen, **about)]


def _size(metric: Metric) -> CellOf:
    # The plan counts parameters before a trial has run, so that a row has them without a record.
    if metric.name in ("params_total", "params_head"):
        return lambda row: _whole(getattr(row, metric.name))
    if metric.name == "stored_ngrams":
        return lambda row: _whole(next(map(int, row.values(metric.name)), None))
    return _mean(metric)


def _tuned(findings: Findings) -> list[Quantity]:
    """A column for each tuned key. A key need not apply to every row."""

    def chosen(key: str) -> CellOf:
        return lambda row: _setting(row.tuned[key]) if key in row.tuned else EMPTY

    found, tune = [], findings.evidence.suite.tune
    for key in () if tune is None else tune.space:
        name = f"{key.removeprefix('train.')} (tuned)"
        made = _quantity(findings, name, "quality", chosen(key), key="tuned")
        cells = [cell for cell in made.cells.values() if cell is not EMPTY]
        numeric = all(cell.value is not None for cell in cells)
        found.append(replace(made, column=replace(made.column, numeric=numeric)))
    return found


def _scores(findings: Findings) -> list[Quantity]:
    """The metrics of predictions."""
    found = []
    # Standard counting is shown where the suite's own counting is another one.
    differ = frozenset(row for row in findings.rows if row.boundary == "sos_eos")
    for metric in _shown("score"):
        cell_of, rows = _mean(metric), _where(metric, findings)
        if metric.name == "test_ppl":
            cell_of = _ranked(metric, findings)
        if metric.name == "test_ppl_standard":
            cell_of, rows = _mean_of_some(metric, differ), differ
        reducible = metric.name if metric.direction == "lower" else ""
        about = {"key": metric.name, "metric": reducible, "rows": rows}
        found.append(_quantity(findings, metric.label, "quality", cell_of, **about))
    return found


def _mean(metric: Metric) -> CellOf:
    return lambda row: Cell.mean(row.values(metric.name), metric.digits)


def _mean_of_some(metric: Metric, rows: frozenset[RowFacts]) -> CellOf:
    mean = _mean(metric)
    return lambda row: mean(row) if row in rows else EMPTY


def _ranked(metric: Metric, findings: Findings) -> CellOf:
    """The mean with its rank, and the mark of a row that is collapsed or not converged."""
    mean = _mean(metric)

    def cell_of(row: RowFacts) -> Cell:
        cell = mean(row)
        if cell.value is None:
            return cell
        rank = findings.ranks.get(row, "")
        if rank == "tie":
            cell = replace(cell, text=f"{cell.text} {TIE_MARK}")
        return replace(cell.marked(convergence.mark(row)), rank=rank)

    return cell_of


def _comparisons(findings: Findings) -> list[Quantity]:
    """What is said of rows that are compared; none without a baseline."""
    if findings.reference is None:
        return []

    def of(cell: Callable[[Compared], Cell]) -> CellOf:
        known = findings.compared
        return lambda row: cell(known[row]) if row in known else EMPTY

    def change_of(row: RowFacts) -> Cell:
        cell, role = of(_against)(row), findings.role(row)
        return replace(cell, summary=Cell(text=role)) if role else cell

    def verdict(row: RowFacts) -> Cell:
        if findings.role(row) == STRONGEST:
            return Cell(text=STRONGEST)
        return of(lambda compared: Cell(text=compared.verdict))(row)

    def against_baseline(row: RowFacts) -> Cell:
        # Empty where the baseline is the strongest control: the column before it says the same.
        compared, baseline = findings.compared.get(row), findings.baselines.get(row.group)
        if compared is None or baseline in (row, compared.control):
            return EMPTY
        return _untested(compared, baseline, "test_ppl")

    def add(name: str, cell_of: CellOf, *topics: Topic, **about) -> Quantity:
        return _quantity(findings, name, "quality", cell_of, *topics, **about)

    versus, every = f"vs {findings.reference}", frozenset(findings.rows)
    known = of(lambda compared: _untested(compared, compared.control, "test_ppl_known"))
    baseline = f"vs {findings.baseline}"
    return [
        add(versus, change_of, "comparison", key="change", rows=every),
        add(baseline, against_baseline, "comparison", key="change_baseline"),
        add(f"{versus}, known words", known, "comparison", key="change_known"),
        add("verdict", verdict, "comparison", numeric=False, key="verdict"),
        add("p (Holm)", of(lambda compared: _probability(compared.p_holm)), "comparison"),
        add("p (signs)", of(lambda compared: _probability(compared.p_sign_flip)), "comparison"),
        add("pairs", of(lambda compared: _whole(len(compared.seeds)))),
        add("correlation", of(_correlation)),
    ]


def _printed(findings: Findings) -> list[Quantity]:
    """The papers' scores, and ours less theirs: of the weights that the paper tested."""
    found = []
    for metric in _shown("score"):
        found += _printed_score(metric, findings)

    def answer(row: RowFacts) -> Cell:
        return Cell(text=printed_numbers.in_short(findings.reproduced[row]) or NOTHING)

    about = {"key": "reproduced", "numeric": False}
    found.append(_quantity(findings, "reproduced", "quality", answer, "reproduced", **about))
    return found


def _printed_score(metric: Metric, findings: Findings) -> list[Quantity]:
    printed = _printed_cells(findings, metric.name)
    known = [row for row, cell in printed.items() if cell]
    rows = frozenset(known)
    # A paper that tested the weights after the last epoch is compared with that metric of ours.
    ours = dict.fromkeys(findings.rows, metric)
    for row in known:
        ours[row] = METRICS[printed[row].of_ours]
    last, found = METRICS.get(f"last_{metric.name}"), []
    if last in ours.values() and last.table == "never":  # else it has its column among the scores
        about = {"rows": rows, "metric": last.name}
        found.append(_quantity(findings, last.label, "quality", _mean(last), **about))

    def difference_of(row: RowFacts) -> Cell:
        return _difference(row, ours[row], printed[row])

    is_main = metric.name == "test_ppl"  # which the default form shows
    name, as_printed = f"printed {metric.label}", _as_printed(printed)
    about = {"key": "printed" if is_main else "", "rows": rows}
    found.append(_quantity(findings, name, "quality", as_printed, "printed", **about))
    topics: tuple[Topic, ...] = ("printed", "difference")
    about["key"] = "difference" if is_main else ""
    name = f"ours - printed {metric.label}"
    found.append(_quantity(findings, name, "quality", difference_of, *topics, **about))
    return found


def _costs(findings: Findings) -> list[Quantity]:
    """Times, the papers' times, then memory and other costs."""
    times, printed, others = [], [], []
    for metric in _shown("cost"):
        about = {"key": metric.name, "rows": _where(metric, findings)}
        if metric.timed:
            name, cell_of = _with_batch(metric, findings.rows), _time(metric, findings)
            about["spread"] = "spread"
            times.append(_quantity(findings, name, "cost", cell_of, "time", **about))
        else:
            cell_of = _mean(metric)
            others.append(_quantity(findings, metric.label, "cost", cell_of, "memory", **about))
    for metric, name in PRINTED_TIMES.items():
        cells = _printed_cells(findings, metric)
        devices = ", ".join(dict.fromkeys(cell.note for cell in cells.values() if cell))
        header, cell_of = f"printed {name} ({devices})", _as_printed(cells)
        printed.append(_quantity(findings, header, "cost", cell_of, "printed", "time"))
    return [*times, *printed, *others]


def _with_batch(metric: Metric, lines: list[RowFacts]) -> str:
    """The header of a time, with the batch size for inference, which is its own: 'inference
    ms/batch (b=4)'.
    """
    if metric.name != "inference_ms_per_batch":
        return metric.label
    sizes = {}
    for line in lines:
        sizes |= dict.fromkeys(line.values("inference_batch"))
    return f"{metric.label} (b={', '.join(f'{size:g}' for size in sizes)})"


def _time(metric: Metric, findings: Findings) -> CellOf:
    return lambda row: time_cell(row, metric, findings)


def time_cell(row: RowFacts, metric: Metric, findings: Findings) -> Cell:
    """'63.2 ± 1.5 (4.6x)': a time, and how many times that of the baseline it is."""
    timings = findings.evidence.timings
    time, baseline = time_of(row, metric.name, timings), findings.baselines.get(row.group)
    if time is None:
        return EMPTY
    cell = Cell.of(time.value, time.spread, metric.digits)
    if baseline is not None:
        reference = time_of(baseline, metric.name, timings)
        times = None if baseline is row else ratio(time, reference)
        if times is not None:
            cell = replace(cell, text=f"{cell.text} ({times:.1f}x)", ratio=times)
    else:  # marks are against the first row of the group that was timed
        alike = (each for each in findings.rows if each.group == row.group)
        known = (time_of(each, metric.name, timings) for each in alike)
        reference = next(each for each in known if each is not None)
    return cell.marked(time_mark(time, reference))


def _state(findings: Findings) -> Quantity:
    def cell_of(row: RowFacts) -> Cell:
        # The text says how many trials failed, and how; a compact table has a mark instead.
        short = f"{row.done} {FAILED_MARK}" if row.failed else row.done
        mark = certificate_mark(row, findings.rows)
        return Cell(text=row.state, short=short).marked(mark)

    about = {"key": "n", "numeric": False, "rows": frozenset(findings.rows)}
    return _quantity(findings, "n", "state", cell_of, **about)


def _whole(value: object) -> Cell:
    """A count with commas. The width of a matched suite may be of another type: it is shown as
    text.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return Cell(text=f"{value:,}", value=value)
    return EMPTY if value is None else Cell(text=str(value))


def _setting(value: object) -> Cell:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(text=f"{value:g}", value=value)
    return Cell(text=value_text(value))


def _correlation(compared: Compared) -> Cell:
    found = compared.correlation
    return EMPTY if found is None else Cell(text=f"{found:+.2f}", value=found)


def _printed_cells(findings: Findings, metric: str) -> dict[RowFacts, PrintedCell | None]:
    printed = findings.evidence.printed
    return {row: printed.find(row.trials[0], row.params, metric) for row in findings.rows}


def _as_printed(cells: Mapping[RowFacts, PrintedCell | None]) -> CellOf:
    def cell_of(row: RowFacts) -> Cell:
        cell = cells[row]
        return EMPTY if cell is None else Cell(text=cell.value, value=cell.number)

    return cell_of


def _difference(row: RowFacts, metric: Metric, cell: PrintedCell | None) -> Cell:
    """Ours minus printed, if both count tokens in the same way."""
    values = row.values(metric.name)
    if cell is None or not values:
        return EMPTY
    if cell.counting and cell.counting != row.boundary:
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
    shown = "[too wide]" if high - low > math.log(WIDEST) else f"[{bounds[0]:+.1f}, {bounds[1]:+.1f}]"
    text = f"{value:+.1f} % {shown} {mark}".strip()
    return Cell(text=text, value=value, interval=bounds, mark=mark)


def _against(compared: Compared) -> Cell:
    """The change of test perplexity against the strongest control, with its interval if there is one."""
    difference, blocks = compared.difference, compared.interval
    if difference.low is None and blocks is not None:
        cell = change(difference.mean, blocks.low, blocks.high)
    else:
        cell = change(difference.mean, difference.low, difference.high, compared.stars)
    return replace(cell, summary=in_words(cell, compared.judged))


def in_words(cell: Cell, judged: Verdict) -> Cell:
    """'-3.2 % [-4.0, -2.4] better', in short '3.2 % better'; '3.2 % lower' where it is untested; 'equivalent -0.1 %',
    'undecided: seeds failed'.

    That a row is collapsed or not converged is said by the mark of its perplexity.
    """
    value, word = cell.value, str(judged._replace(limits=()))
    if word == "too few seeds":
        word = UNTESTED[value > 0]
    is_size = word in ("better", "worse", *UNTESTED)
    short = f"{abs(value):.1f} % {word}" if is_size else f"{word} {value:+.1f} %"
    whole = f"{cell.text.removesuffix(cell.mark).strip()} {word}" if cell.interval else short
    coarse = f", {COARSE}" if COARSE in judged.limits else ""
    return Cell(text=f"{whole}{coarse}", short=f"{short}{coarse}")


def _untested(compared: Compared, other: RowFacts, metric: str) -> Cell:
    """The change of a metric against another row, without a test."""
    seeds = shared_seeds(compared.row, other, metric)
    if not seeds:
        return EMPTY
    found = difference(compared.row, other, seeds, compared.test, metric)
    return change(found.mean, found.low, found.high)


def _probability(value: float | None) -> Cell:
    """'0.031', '< 0.001'; '-' for None."""
    if value is None:
        return EMPTY
    return Cell(text=f"{value:.3f}" if value >= 0.001 else "< 0.001", value=value)
