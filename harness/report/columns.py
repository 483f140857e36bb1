"""The columns of a table: each with a header, and a cell for each row. layouts.py arranges them."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal

from harness.plan.specs import value_text
from harness.records.metrics import METRICS, Metric, metrics_of
from harness.records.sidecars import Timing
from harness.report import convergence, printed_numbers
from harness.report.content import (
    COARSE,
    FAILED_MARK,
    NOTHING,
    OUTDATED_MARK,
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


@dataclass(frozen=True, slots=True)
class Quantity:
    """A column before it is arranged: what a view may say of every row.

    Args:
        kind: the head's 'counts', the 'size' of the model, its 'cost' in time and memory, the
            'quality' of its predictions, or the 'state' of the row's trials.
        cell_of: the cell of a row.
        rows: those that have the quantity, even where their cells are empty; None: the rows whose
            cells are not empty.
        metric: the metric that it shows, where a reduction against the baseline can be given, else
            ''.
    """

    column: Column
    kind: ColumnKind
    cell_of: CellOf
    _: KW_ONLY
    rows: frozenset[RowFacts] | None = None
    metric: str = ""
    cells: dict[RowFacts, Cell] = field(default_factory=dict, init=False, repr=False, compare=False)

    def cell(self, row: RowFacts) -> Cell:
        """The cell of a row, which is made once."""
        if row not in self.cells:
            self.cells[row] = self.cell_of(row)
        return self.cells[row]

    def is_of(self, rows: Iterable[RowFacts]) -> bool:
        """Whether a table of these rows has the column."""
        if self.rows is not None:
            return not self.rows.isdisjoint(rows)
        return any(self.cell(row).text != NOTHING for row in rows)


def quantities(findings: Findings) -> list[Quantity]:
    """All columns that a table of the suite can have, in order."""
    return [
        *_counts(),
        *_sizes(findings),
        *_tuned(findings),
        *_scores(findings),
        *_comparisons(findings),
        *_printed(findings),
        *_costs(findings),
        _state(findings),
    ]


def measured(row: RowFacts, metric: Metric, timings: dict[str, Timing]) -> Cell:
    """A metric of a row, as every view of rows shows it: the mean over its seeds and the standard
    deviation; the numbers of parameters, which the plan counts before a trial has run; a time that
    `time_of` chooses, with its spread.
    """
    if metric.name in ("params_total", "params_head"):
        number = getattr(row, metric.name)
        # A row without a plan has the numbers of its records, of which there may be none.
        return EMPTY if row.planned is None and not number else _whole(number)
    if metric.name == "stored_ngrams":
        return _whole(next(map(int, row.values(metric.name)), None))
    if metric.timed:
        time = time_of(row, metric.name, timings)
        return EMPTY if time is None else Cell.of(time.value, time.spread, metric.digits)
    return Cell.mean(row.values(metric.name), metric.digits)


def _of(findings: Findings, metric: Metric) -> CellOf:
    return lambda row: measured(row, metric, findings.evidence.timings)


def _column(name: str, *topics: Topic, key: str = "", spread: str = "sd") -> Column:
    return Column(name=name, numeric=True, spread=spread, key=key, topics=topics)


def _shown(*kinds: str) -> list[Metric]:
    return [metric for metric in metrics_of(*kinds) if metric.table != "never"]


def _where(metric: Metric, findings: Findings) -> frozenset[RowFacts] | None:
    """All rows, of a metric that a table has even where no trial has measured it."""
    return frozenset(findings.rows) if metric.table == "always" else None


def _counts() -> list[Quantity]:
    def count(symbol: str) -> CellOf:
        return lambda row: _whole(head_counts(row)[symbol])

    symbols = ("#S", "#I", "#P")
    return [Quantity(_column(each, key="counts"), "counts", count(each)) for each in symbols]


def _sizes(findings: Findings) -> list[Quantity]:
    """What was matched, counts and settings."""
    found = _matched(findings)
    for metric in _shown("count", "setting"):
        column, rows = _column(metric.label, key=metric.name), _where(metric, findings)
        found.append(Quantity(column, "size", _of(findings, metric), rows=rows))
    return found


def _matched(findings: Findings) -> list[Quantity]:
    """The width or the epochs that matching has chosen for each row."""
    match = findings.evidence.suite.match
    if match is None:
        return []

    def chosen(row: RowFacts) -> Cell:
        if match.by_epochs:
            return _setting(row.spec.train.epochs)
        params = row.params_of("backbone") | row.params_of("head")
        return _whole(params.get(match.vary))

    column = _column(f"{'epochs' if match.by_epochs else match.vary} (matched)", key="tuned")
    return [Quantity(column, "size", chosen, rows=frozenset(findings.rows))]


def _tuned(findings: Findings) -> list[Quantity]:
    """A column for each tuned key. A key need not apply to every row."""

    def chosen(key: str) -> CellOf:
        return lambda row: _setting(row.tuned[key]) if key in row.tuned else EMPTY

    found, tune = [], findings.evidence.suite.tune
    for key in () if tune is None else tune.space:
        cells = [chosen(key)(row) for row in findings.rows if key in row.tuned]
        numeric = all(cell.value is not None for cell in cells)
        column = Column(name=f"{key.removeprefix('train.')} (tuned)", numeric=numeric, key="tuned")
        found.append(Quantity(column, "quality", chosen(key)))
    return found


def _scores(findings: Findings) -> list[Quantity]:
    """The metrics of predictions."""
    found = []
    # Standard counting is shown where the suite's own counting is another one.
    differ = frozenset(row for row in findings.rows if row.boundary == "sos_eos")
    for metric in _shown("score"):
        cell_of, rows = _of(findings, metric), _where(metric, findings)
        if metric.name == "test_ppl":
            cell_of = _ranked(metric, findings)
        if metric.name == "test_ppl_standard":
            cell_of, rows = _of_some(cell_of, differ), differ
        reducible = metric.name if metric.direction == "lower" else ""
        column = _column(metric.label, key=metric.name)
        found.append(Quantity(column, "quality", cell_of, rows=rows, metric=reducible))
    return found


def _of_some(cell_of: CellOf, rows: frozenset[RowFacts]) -> CellOf:
    return lambda row: cell_of(row) if row in rows else EMPTY


def _ranked(metric: Metric, findings: Findings) -> CellOf:
    """The mean with its rank, and the mark of a row that is collapsed or not converged."""

    def cell_of(row: RowFacts) -> Cell:
        cell = measured(row, metric, findings.evidence.timings)
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

    versus, topic = f"vs {findings.reference}", "comparison"
    words = of(lambda compared: _untested(compared, compared.control, "test_ppl_known"))
    holm = of(lambda compared: _probability(compared.p_holm))
    sign_flip = of(lambda compared: _probability(compared.p_sign_flip))
    baseline = _column(f"vs {findings.baseline}", topic, key="change_baseline")
    said = Column(name="verdict", key="verdict", topics=(topic,))
    change_column = _column(versus, topic, key="change")
    return [
        Quantity(change_column, "quality", change_of, rows=frozenset(findings.rows)),
        Quantity(baseline, "quality", against_baseline),
        Quantity(_column(f"{versus}, known words", topic, key="change_known"), "quality", words),
        Quantity(said, "quality", verdict),
        Quantity(_column("p (Holm)", topic), "quality", holm),
        Quantity(_column("p (signs)", topic), "quality", sign_flip),
        Quantity(_column("pairs"), "quality", of(lambda compared: _whole(len(compared.seeds)))),
        Quantity(_column("correlation"), "quality", of(_correlation)),
    ]


def _printed(findings: Findings) -> list[Quantity]:
    """The papers' scores, and ours less theirs: of the weights that the paper tested."""
    found = []
    for metric in _shown("score"):
        found += _printed_score(metric, findings)

    def answer(row: RowFacts) -> Cell:
        return Cell(text=printed_numbers.in_short(findings.reproduced[row]) or NOTHING)

    column = Column(name="reproduced", key="reproduced", topics=("reproduced",))
    return [*found, Quantity(column, "quality", answer)]


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
        cell_of = _of(findings, last)
        found.append(Quantity(_column(last.label), "quality", cell_of, rows=rows, metric=last.name))

    def difference_of(row: RowFacts) -> Cell:
        return _difference(row, ours[row], printed[row])

    is_main = metric.name == "test_ppl"  # which the default form shows
    as_printed = _column(f"printed {metric.label}", "printed", key="printed" if is_main else "")
    found.append(Quantity(as_printed, "quality", _as_printed(printed), rows=rows))
    key = "difference" if is_main else ""
    less = _column(f"ours - printed {metric.label}", "printed", "difference", key=key)
    return [*found, Quantity(less, "quality", difference_of, rows=rows)]


def _costs(findings: Findings) -> list[Quantity]:
    """Times, the papers' times, then memory and other costs."""
    times, printed, others = [], [], []
    for metric in _shown("cost"):
        rows = _where(metric, findings)
        if metric.timed:
            name = _with_batch(metric, findings.rows)
            column = _column(name, "time", key=metric.name, spread="spread")
            times.append(Quantity(column, "cost", _time(metric, findings), rows=rows))
        else:
            column = _column(metric.label, "memory", key=metric.name)
            others.append(Quantity(column, "cost", _of(findings, metric), rows=rows))
    for metric, name in PRINTED_TIMES.items():
        cells = _printed_cells(findings, metric)
        devices = ", ".join(dict.fromkeys(cell.note for cell in cells.values() if cell))
        column = _column(f"printed {name} ({devices})", "printed", "time")
        printed.append(Quantity(column, "cost", _as_printed(cells)))
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
    cell, time = measured(row, metric, timings), time_of(row, metric.name, timings)
    if time is None:
        return cell
    baseline = findings.baselines.get(row.group)
    if baseline is not None:
        reference = time_of(baseline, metric.name, timings)
        times = None if baseline is row else ratio(time, reference)
        if times is not None:
            cell = replace(cell, text=f"{cell.text} ({times:.1f}x)", ratio=times)
    else:  # marks are against the first row of the group that was timed
        alike = (each for each in findings.rows if each.group == row.group)
        known = (time_of(each, metric.name, timings) for each in alike)
        reference = next(each for each in known if each is not None)
    outdated = OUTDATED_MARK if row.outdated else ""  # later code may be faster
    return cell.marked(" ".join(filter(None, [time_mark(time, reference), outdated])))


def _state(findings: Findings) -> Quantity:
    def cell_of(row: RowFacts) -> Cell:
        # The text says how many trials failed, and how; a compact table has a mark instead.
        short = f"{row.done} {FAILED_MARK}" if row.failed else row.done
        mark = certificate_mark(row, findings.rows)
        return Cell(text=row.state, short=short).marked(mark)

    column = Column(name="n", key="n")
    return Quantity(column, "state", cell_of, rows=frozenset(findings.rows))


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
    return {row: printed.find(row.spec, row.params, metric) for row in findings.rows}


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

    An interval whose ends are further apart than by the factor WIDEST is not written out:
    '-1.3 % [too wide]'.
    """
    value = percent(nats)
    if low is None or high is None:
        return Cell(text=f"{value:+.1f} %", value=value)
    bounds = percent(low), percent(high)
    too_wide = high - low > math.log(WIDEST)
    shown = "[too wide]" if too_wide else f"[{bounds[0]:+.1f}, {bounds[1]:+.1f}]"
    text = f"{value:+.1f} % {shown} {mark}".strip()
    return Cell(text=text, value=value, interval=bounds, mark=mark)


def _against(compared: Compared) -> Cell:
    """The change of test perplexity against the strongest control, with its interval."""
    difference, blocks = compared.difference, compared.interval
    if difference.low is None and blocks is not None:
        cell = change(difference.mean, blocks.low, blocks.high)
    else:
        cell = change(difference.mean, difference.low, difference.high, compared.stars)
    return replace(cell, summary=in_words(cell, compared.judged))


def in_words(cell: Cell, judged: Verdict) -> Cell:
    """'-3.2 % [-4.0, -2.4] better', in short '3.2 % better'; '3.2 % lower' where it is untested;
    'equivalent -0.1 %', 'undecided: seeds failed'.

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
