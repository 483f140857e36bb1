"""Plots that compare rows: perplexity by a parameter and against its cost, and where a gain is.

A function that draws returns axes and a caption, or a sentence on why there is nothing to show.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from harness.errors import RecordError
from harness.plan.specs import canonical
from harness.records.sidecars import TokenScores
from harness.report.evidence import Evidence
from harness.report.figures.lines import PlotPoint, Series, apart, lines
from harness.report.figures.looks import FAINT, INK, looks_of
from harness.report.figures.style import Frame, shown
from harness.report.printed_numbers import PrintedCell, PrintedNumbers
from harness.report.row_facts import RowFacts, of_head, time_of
from harness.report.tokens import Band

METRIC = "test_ppl"  # by the suite's own counting rule, which is that of the paper
MOST, FEW = 12, 6  # rows in a plot of points, and in one of lines
MAX_BASELINE = 12  # characters of its name on an axis; a longer one is beside its line only
RANGE = "from the lowest seed to the highest"  # the one kind of bars and bands
Drawn = tuple[Axes, str] | str
BandsOf = Callable[[TokenScores, TokenScores], tuple[Band, ...]]


def by_parameter(name: str, label: str, rows: list[RowFacts], evidence: Evidence, frame: Frame | None = None) -> Drawn:
    """Mean test perplexity against an integer parameter of heads, ranges over seeds; the baseline as a band, printed
    values as stars.
    """
    found = series_by(name, rows, evidence)
    if not found:
        return f"no finished trial's head has {name}"
    values = sorted({point.x for series in found for point in series.points})
    if len(values) < 2:
        return f"all finished trials have the same {name}"
    on = lines(apart(found), label, f"test perplexity\n{over_seeds(rows, 'bars')}", frame)
    on.set_xticks(values if len(values) <= 12 else values[:: -(-len(values) // 12)])
    reference, band = baseline_of(rows, evidence), ""
    if reference is not None and reference.values(METRIC):
        level = at(reference, 0, evidence.printed)
        on.axhspan(level.low, level.high, color=FAINT, alpha=0.22, linewidth=0)
        on.axhline(level.y, color=INK, linewidth=0.8, label=shown(f"baseline: {reference.head}"))
        band = f"; the band is that of {reference.head}" if level.low < level.high else ""
    return on, f"Mean test perplexity; bars {RANGE}{band}."


def by_time(rows: list[RowFacts], evidence: Evidence, frame: Frame | None = None) -> Drawn:
    """Test perplexity against ms/batch of training, of one pass and device, with the Pareto front."""
    times = [time_of(row, "train_ms_per_batch", evidence.timings) for row in rows]
    costs = [time and time.value for time in times]
    printed = PrintedNumbers((), ())  # a printed time is of another device, so it is not drawn at ours
    drawn = _against(rows, costs, "training time, ms per batch", evidence, printed, frame)
    if isinstance(drawn, str):
        return drawn
    on, caption = drawn
    time = next(time for time in times if time is not None)
    how = "one trial at a time" if time.pass_id else "measured during training"
    how += "" if time.exclusive else ", while other work ran on the machine"
    return on, f"{caption} Times on {time.device}, {how}; all trials have the same number of batches."


def by_size(rows: list[RowFacts], evidence: Evidence, frame: Frame | None = None) -> Drawn:
    """Test perplexity against the number of parameters, with the Pareto front."""
    costs = [float(row.params_total) for row in rows]
    drawn = _against(rows, costs, "parameters", evidence, evidence.printed, frame)
    if not isinstance(drawn, str):
        drawn[0].xaxis.set_major_formatter(EngFormatter())  # 300 k
    return drawn


def _against(
    rows: list[RowFacts],
    costs: list[float | None],
    label: str,
    evidence: Evidence,
    printed: PrintedNumbers,
    frame: Frame | None,
) -> Drawn:
    """Perplexity against a cost, with the Pareto front of all rows, shown or not; a front of one row is no line."""
    chosen, left = chosen_of(rows, evidence, MOST)
    several, looks = len({row.backbone for row in rows}) > 1, looks_of(evidence)
    points, found = [], []
    for row, cost in zip(rows, costs, strict=True):
        if cost is None or not row.values(METRIC):
            continue
        point = at(row, cost, printed)
        points.append(point)
        if row in chosen:
            name = f"{row.backbone}: {row.head}" if several else row.head
            found.append(Series(label=name, look=looks[row], points=(point,), joined=False))
    if len(found) < 2:
        return "fewer than two rows have a finished trial with this value"
    on = lines(found, label, f"test perplexity\n{over_seeds(chosen, 'bars')}", frame, log="x")
    caption, best = f"Mean test perplexity; bars {RANGE}.", front(points)
    if len(best) > 1:
        places, heights = [point.x for point in best], [point.y for point in best]
        on.step(places, heights, where="post", color=FAINT, linestyle="--", linewidth=0.8, label="Pareto front")
        caption += " The Pareto front has the rows for which no other row is better in both."
    return on, f"{caption}{left}"


def gain(bands_of: BandsOf, label: str, rows: list[RowFacts], evidence: Evidence, frame: Frame | None = None) -> Drawn:
    """Nats per token less those of the baseline, by bands of tokens: of frequency or position (harness.report.tokens).

    Args:
        label: of the axis of bands.
    """
    reference = baseline_of(rows, evidence)
    if reference is None:
        return "the suite names no baseline (table.baseline), or none of its rows is here"
    chosen, left = chosen_of(rows, evidence, FEW + 1)
    gains: dict[RowFacts, dict[str, list[Band]]] = {}
    try:
        for row in chosen:
            if row is not reference and (bands := bands_over_seeds(row, reference, evidence, bands_of)):
                gains[row] = bands
    except RecordError as problem:
        return str(problem)
    if not gains:
        return "no row shares a seed with the baseline for which both trials have token scores"
    tokens = {name: each[0].tokens for bands in gains.values() for name, each in bands.items()}
    names, looks, found, seeds = list(tokens), looks_of(evidence), [], []
    for row, bands in gains.items():
        points = []
        for name, each in bands.items():
            means = [band.mean for band in each]
            points.append(PlotPoint(x=names.index(name), y=statistics.fmean(means), low=min(means), high=max(means)))
            seeds.append(len(means))
        found.append(Series(label=row.head, look=looks[row], points=tuple(points)))
    base = "the baseline" if len(reference.head) > MAX_BASELINE else shown(reference.head)
    what = "one seed" if max(seeds) == 1 else "mean; bars: lowest to highest seed"
    y = f"Change of loss against {base}\n(nats per token; below 0 is better)\n{what}"
    on = lines(apart(found), label, y, frame)
    on.axhline(0, color=INK, linewidth=1, label=shown(f"0: {reference.head}"))
    shares = [f"{name}\n{100 * tokens[name] / sum(tokens.values()):.0f} %" for name in names]
    on.set_xticks(range(len(names)), shares, fontsize=7 if len(names) < 7 else 6)
    return on, (
        f"Loss per test token less that of {reference.head}: below 0 the head is better. Averaged over the shared "
        f"seeds, {min(seeds)} or more. Bars {RANGE}. "
        f"Below each band: its share of the test tokens.{left}"
    )


def bands_over_seeds(
    row: RowFacts, reference: RowFacts, evidence: Evidence, bands_of: BandsOf
) -> dict[str, list[Band]]:
    """The name of each band of tokens -> the row less the reference, for each shared seed for which both trials have
    token scores.

    Raises: RecordError when the scores are of two test splits.
    """
    found: dict[str, list[Band]] = {}
    for seed in row.ok_seeds:
        if seed not in reference.ok_seeds:
            continue
        theirs = evidence.token_scores(reference.records[seed].id)
        ours = evidence.token_scores(row.records[seed].id)
        if theirs is not None and ours is not None:
            for band in bands_of(theirs, ours):
                found.setdefault(band.label, []).append(band)
    return found


def over_seeds(rows: Sequence[RowFacts], what: str) -> str:
    """What the bars or bands are, for an axis."""
    several = any(len(row.ok_seeds) > 1 for row in rows)
    return f"mean; {what}: lowest to highest seed" if several else "one seed"


def baseline_of(rows: Sequence[RowFacts], evidence: Evidence) -> RowFacts | None:
    return next(iter(of_head(rows, evidence.suite.table.baseline)), None)


def chosen_of(rows: list[RowFacts], evidence: Evidence, most: int) -> tuple[list[RowFacts], str]:
    """The rows of a plot, in the order of the suite, and a sentence if rows are left out.

    Of many rows these are the baseline, the best of each class of heads, so that a plot compares heads and not the
    variants of one, and then those with the lowest perplexity.
    """
    measured = [row for row in rows if row.values(METRIC)]
    if len(measured) <= most:
        return measured, ""
    ranked = sorted(measured, key=lambda row: statistics.fmean(row.values(METRIC)))
    reference, classes, best = baseline_of(rows, evidence), set(), []
    for row in ranked:
        if row is reference:
            best.insert(0, row)
        elif row.spec.head.name not in classes:
            best.append(row)
        classes.add(row.spec.head.name)
    kept = list(dict.fromkeys([*best, *ranked]))[:most]
    first = "the baseline, " if reference in kept else ""
    left = f" Shown: {most} of {len(measured)} rows, {first}the best of each head and those with the lowest perplexity."
    return [row for row in measured if row in kept], left


def series_by(name: str, rows: Sequence[RowFacts], evidence: Evidence) -> list[Series]:
    """Test perplexity against an integer parameter of heads: a series for each head with fixed other parameters."""
    groups: dict[str, list[tuple[int, RowFacts]]] = {}
    for row in rows:
        head, params = row.spec.head, row.params_of("head")
        if row.values(METRIC) and isinstance(params.get(name), int):
            fixed = {key: value for key, value in params.items() if key != name and f"head.{key}" not in row.tuned}
            groups.setdefault(f"{head.name} {canonical(fixed)}", []).append((params[name], row))
    found, looks = [], looks_of(evidence)
    for group in groups.values():
        group.sort(key=lambda each: each[0])
        first, last = group[0][1], group[-1][1]
        label = first.head if first is last else f"{first.head} to {last.head}"
        points = tuple(at(row, value, evidence.printed) for value, row in group)
        found.append(Series(label=label, look=looks[last], points=points))
    return found


def front(points: Sequence[PlotPoint]) -> list[PlotPoint]:
    """The Pareto front: the points for which no other is lower in both x and y, in the order of x."""
    best, found = math.inf, []
    for point in sorted(points, key=lambda point: (point.x, point.y)):
        if point.y < best:
            best = point.y
            found.append(point)
    return found


def at(row: RowFacts, x: float, printed: PrintedNumbers) -> PlotPoint:
    """The test perplexity of a row, over its seeds."""
    values = row.values(METRIC)
    theirs = comparable(printed.find(row.spec, row.params, METRIC), row, printed)
    return PlotPoint(x=x, y=statistics.fmean(values), low=min(values), high=max(values), **theirs)


def comparable(cell: PrintedCell | None, row: RowFacts, printed: PrintedNumbers) -> Mapping[str, Any]:
    """`printed` and `source` of a point: a cell's number and source, if it was counted as ours."""
    if cell is None or cell.number is None or (cell.counting and cell.counting != row.boundary):
        return {}
    return {"printed": cell.number, "source": printed.title(cell.source)}
