"""The columns of a table: each with a header, and a cell for each row. layouts.py arranges them."""

import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from harness.plan.specs import value_text
from harness.records.metrics import METRICS, Metric, metrics_of
from harness.report import convergence, printed_numbers
from harness.report.content import COARSE, FAILED_MARK, NOTHING, TIE_MARK, Cell, Column, Topic
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A column before it is arranged: what the table says of every row.

    Args:
        cells: that of each row.
        kind: the head's 'counts', the 'size' of the model, its 'cost' in time and memory, the 'quality' of its
            predictions, or the 'state' of the row's trials.
        rows: those that have the quantity, even where their cells are empty; None: the rows whose cells are not empty.
        metric: the metric that it shows, where a reduction against the baseline can be given, else ''.
    """

    column: Column
    cells: dict[RowFacts, Cell]
    kind: Literal["counts", "size", "cost", "quality", "state"]
    rows: frozenset[RowFacts] | None = None
    metric: str = ""

    def is_of(self, rows: Iterable[RowFacts]) -> bool:
        """Whether a table of these rows has the column."""
        if self.rows is not None:
            return not self.rows.isdisjoint(rows)
        return any(self.cells[row].text != NOTHING for row in rows)


def quantities(findings: Findings) -> list[Quantity]:
    """All columns that a table of the suite can have, in order."""
    state = {line: _state(line, findings) for line in findings.lines}
    return [
        *_counts(findings),
        *_sizes(findings),
        *_tuned(findings),
        *_scores(findings),
        *_comparisons(findings),
        *_printed(findings),
        *_costs(findings),
        _quantity("n", state, "state", numeric=False, key="n", rows=frozenset(findings.lines)),
    ]


def _where(metric: Metric, findings: Findings) -> frozenset[RowFacts] | None:
    return frozenset(findings.lines) if metric.table == "always" else None


def _shown(*kinds: str) -> list[Metric]:
    return [metric for metric in metrics_of(*kinds) if metric.table != "never"]


def _quantity(
    name: str,
    cells: dict[RowFacts, Cell],
    kind: str,
    *topics: Topic,
    numeric: bool = True,
    key: str = "",
    spread: str = "sd",
    **more,
) -> Quantity:
    column = Column(name=name, numeric=numeric, spread=spread, key=key, topics=topics)
    return Quantity(column=column, cells=cells, kind=kind, **more)


def _counts(findings: Findings) -> list[Quantity]:
    counts = {line: head_counts(line) for line in findings.lines}
    return [
        _quantity(symbol, {line: _whole(each[symbol]) for line, each in counts.items()}, "counts", key="counts")
        for symbol in ("#S", "#I", "#P")
    ]


def _sizes(findings: Findings) -> list[Quantity]:
    """Counts and settings. Numbers of parameters are the plan's, which knows them before a trial has run."""
    match, lines, found = findings.evidence.suite.match, findings.lines, []
    if match is not None:
        if match.time is not None:
            name, cells = "epochs", {line: _setting(line.trials[0].train.epochs) for line in lines}
        else:
            params = {line: {**line.params_of("backbone"), **line.params_of("head")} for line in lines}
            name, cells = match.vary, {line: _whole(each.get(match.vary)) for line, each in params.items()}
        found.append(_quantity(f"{name} (matched)", cells, "size", key="tuned", rows=frozenset(lines)))
    counts = {
        "params_total": {line: line.params_total for line in lines},
        "params_head": {line: line.params_head for line in lines},
        "stored_ngrams": {line: next(map(int, line.values("stored_ngrams")), None) for line in lines},
    }
    for metric in _shown("count", "setting"):
        known = counts.get(metric.name)
        cells = {line: _mean(line, metric) if known is None else _whole(known[line]) for line in lines}
        found.append(_quantity(metric.label, cells, "size", key=metric.name, rows=_where(metric, findings)))
    return found


def _tuned(findings: Findings) -> list[Quantity]:
    """A column for each tuned key."""
    tune, found = findings.evidence.suite.tune, []
    for key in () if tune is None else tune.space:
        cells = {line: _setting(line.tuned[key]) if key in line.tuned else EMPTY for line in findings.lines}
        numeric = all(cell is EMPTY or cell.value is not None for cell in cells.values())
        found.append(_quantity(f"{key.removeprefix('train.')} (tuned)", cells, "quality", numeric=numeric, key="tuned"))
    return found


def _scores(findings: Findings) -> list[Quantity]:
    """The metrics of predictions. Standard counting is shown where the suite's own counting is another."""
    lines, found = findings.lines, []
    differ = frozenset(line for line in lines if line.boundary == "sos_eos")
    for metric in _shown("score"):
        cells, rows = {line: _mean(line, metric) for line in lines}, _where(metric, findings)
        if metric.name == "test_ppl":
            cells = {line: _ranked(cell, line, findings) for line, cell in cells.items()}
        if metric.name == "test_ppl_standard":
            cells, rows = {line: cell if line in differ else EMPTY for line, cell in cells.items()}, differ
        reducible = metric.name if metric.direction == "lower" else ""
        found.append(_quantity(metric.label, cells, "quality", key=metric.name, metric=reducible, rows=rows))
    return found


def _comparisons(findings: Findings) -> list[Quantity]:
    if findings.reference is None:
        return []

    def of(cell_of: Callable[[Compared], Cell]) -> dict[RowFacts, Cell]:
        known = findings.compared
        return {line: cell_of(known[line]) if line in known else EMPTY for line in findings.lines}

    changes = of(_against)
    verdicts = of(lambda compared: Cell(text=compared.verdict))
    for line in findings.lines:
        role = findings.role(line)
        if role:
            changes[line] = replace(changes[line], summary=Cell(text=role))
        if role == STRONGEST:
            verdicts[line] = Cell(text=STRONGEST)
    versus = f"vs {findings.reference}"
    return [
        _quantity(versus, changes, "quality", "comparison", key="change", rows=frozenset(findings.lines)),
        *_against_baseline(findings),
        _quantity(f"{versus}, known words", of(_against_known), "quality", "comparison", key="change_known"),
        _quantity("verdict", verdicts, "quality", "comparison", numeric=False, key="verdict"),
        _quantity("p (Holm)", of(lambda compared: _probability(compared.p_holm)), "quality", "comparison"),
        _quantity("p (signs)", of(lambda compared: _probability(compared.p_sign_flip)), "quality", "comparison"),
        _quantity("pairs", of(lambda compared: _whole(len(compared.seeds))), "quality"),
        _quantity("correlation", of(_correlation), "quality"),
    ]


def _printed(findings: Findings) -> list[Quantity]:
    """The papers' scores, and ours less theirs: of the weights that the paper tested."""
    found = []
    for metric in _shown("score"):
        cells = _printed_cells(findings, metric.name)
        rows = frozenset(line for line, cell in cells.items() if cell)
        last = METRICS.get(f"last_{metric.name}")
        ours = {line: METRICS[cell.of_ours] if cell else metric for line, cell in cells.items()}
        if last in ours.values():
            means = {line: _mean(line, last) for line in findings.lines}
            found.append(_quantity(last.label, means, "quality", rows=rows, metric=last.name))
        key = "printed" if metric.name == "test_ppl" else ""
        printed = {line: _as_printed(cell) for line, cell in cells.items()}
        found.append(_quantity(f"printed {metric.label}", printed, "quality", "printed", key=key, rows=rows))
        differences = {line: _difference(line, ours[line], cell) for line, cell in cells.items()}
        key = "difference" if metric.name == "test_ppl" else ""
        topics: tuple[Topic, ...] = ("printed", "difference")
        found.append(_quantity(f"ours - printed {metric.label}", differences, "quality", *topics, key=key, rows=rows))
    known = findings.reproduced.items()
    answers = {line: Cell(text=printed_numbers.in_short(each) or NOTHING) for line, each in known}
    return [*found, _quantity("reproduced", answers, "quality", "reproduced", numeric=False, key="reproduced")]


def _costs(findings: Findings) -> list[Quantity]:
    lines, times, others = findings.lines, [], []
    for metric in _shown("cost"):
        about = {"key": metric.name, "rows": _where(metric, findings)}
        if metric.timed:
            cells = {line: time_cell(line, metric, findings) for line in lines}
            times.append(_quantity(_with_batch(metric, lines), cells, "cost", "time", spread="spread", **about))
        else:
            means = {line: _mean(line, metric) for line in lines}
            others.append(_quantity(metric.label, means, "cost", "memory", **about))
    printed = []
    for metric, name in PRINTED_TIMES.items():
        cells = _printed_cells(findings, metric)
        devices = ", ".join(dict.fromkeys(cell.note for cell in cells.values() if cell))
        shown = {line: _as_printed(cell) for line, cell in cells.items()}
        printed.append(_quantity(f"printed {name} ({devices})", shown, "cost", "printed", "time"))
    return [*times, *printed, *others]


def _with_batch(metric: Metric, lines: list[RowFacts]) -> str:
    """The header of a time, with the batch size for inference, which is its own: 'inference ms/batch (b=4)'."""
    if metric.name != "inference_ms_per_batch":
        return metric.label
    batches = dict.fromkeys(value for line in lines for value in line.values("inference_batch"))
    return f"{metric.label} (b={', '.join(f'{value:g}' for value in batches)})"


def _printed_cells(findings: Findings, metric: str) -> dict[RowFacts, PrintedCell | None]:
    printed = findings.evidence.printed
    return {line: printed.find(line.trials[0], line.params, metric) for line in findings.lines}


def _mean(line: RowFacts, metric: Metric) -> Cell:
    return Cell.mean(line.values(metric.name), metric.digits)


def time_cell(line: RowFacts, metric: Metric, findings: Findings) -> Cell:
    """'63.2 ± 1.5 (4.6x)': a time, and how many times that of the baseline it is."""
    time = time_of(line, metric.name, findings.evidence.timings)
    if time is None:
        return EMPTY
    cell, baseline = Cell.of(time.value, time.spread, metric.digits), findings.baselines.get(line.group)
    reference = None if baseline is None else time_of(baseline, metric.name, findings.evidence.timings)
    times = None if baseline is line else ratio(time, reference)
    cell = cell if times is None else replace(cell, text=f"{cell.text} ({times:.1f}x)", ratio=times)
    if baseline is None:  # the first row of the group that was timed
        rows = (row for row in findings.lines if row.group == line.group)
        known = (time_of(row, metric.name, findings.evidence.timings) for row in rows)
        reference = next(each for each in known if each is not None)
    return cell.marked(time_mark(time, reference))


def _ranked(cell: Cell, line: RowFacts, findings: Findings) -> Cell:
    """The test perplexity with its rank, and the mark of a row that is collapsed or not converged."""
    if cell.value is None:
        return cell
    rank, mark = findings.ranks.get(line, ""), convergence.mark(line)
    tied = replace(cell, text=f"{cell.text} {TIE_MARK}") if rank == "tie" else cell
    return replace(tied.marked(mark), rank=rank)


def _state(line: RowFacts, findings: Findings) -> Cell:
    short = f"{line.done} {FAILED_MARK}" if line.failed else line.done  # the text says how many failed, and how
    return Cell(text=line.state, short=short).marked(certificate_mark(line, findings.lines))


def _whole(value: object) -> Cell:
    """A count with commas. The width of a matched suite may be of another type: it is shown as text."""
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


def _as_printed(cell: PrintedCell | None) -> Cell:
    return EMPTY if cell is None else Cell(text=cell.value, value=cell.number)


def _difference(line: RowFacts, metric: Metric, cell: PrintedCell | None) -> Cell:
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


def _against_baseline(findings: Findings) -> list[Quantity]:
    """The same against the baseline, without stars, where that is not the strongest control."""
    cells = dict.fromkeys(findings.lines, EMPTY)
    for row, compared in findings.compared.items():
        baseline = findings.baselines[row.group]
        if baseline not in (row, compared.control):
            cells[row] = _untested(compared, baseline, "test_ppl")
    return [_quantity(f"vs {findings.baseline}", cells, "quality", "comparison", key="change_baseline")]


def _against_known(compared: Compared) -> Cell:
    """The same of the perplexity on known words; empty where a row does not have it."""
    return _untested(compared, compared.control, "test_ppl_known")


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
