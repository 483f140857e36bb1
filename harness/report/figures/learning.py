"""Plots of training: learning curves, and validation perplexity by a tuned key, which shows how sensitive a row is.

A function that draws returns axes and a caption, or a sentence on why there is nothing to show.
"""

import math
import statistics
from dataclasses import dataclass

from matplotlib.ticker import MaxNLocator

from harness.plan.specs import as_number
from harness.plan.suite import Suite
from harness.plan.tuning import epochs_text
from harness.report.evidence import Evidence
from harness.report.figures.comparison import (
    FEW,
    MOST,
    RANGE,
    Drawn,
    baseline_of,
    chosen_of,
    comparable,
    over_seeds,
)
from harness.report.figures.lines import PlotPoint, Series, lines
from harness.report.figures.looks import by_index, looks_of
from harness.report.figures.style import Frame
from harness.report.findings import percent
from harness.report.printed_numbers import PrintedNumbers
from harness.report.row_facts import RowFacts

CEILING = 10.0  # times the lowest perplexity of a plot of tuning: a value above it would make the others a flat line
_CROSSES = f" Crosses at the top: every trial of the value failed, or has more than {CEILING:g} times the lowest."


def curves(
    rows: list[RowFacts], evidence: Evidence, frame: Frame | None = None, *, of_backbones: bool = False
) -> Drawn:
    """Validation perplexity after each epoch, with bands over the seeds: as the change against the baseline if there is
    one and no curve has printed values. The axis fits the second half of each curve, not its steep beginning.

    Args:
        of_backbones: the rows are of one head on variants of a backbone: none is the baseline, and what is printed for
            the end of training is a star at the last epoch.
    """
    chosen, left = (rows, "") if of_backbones else chosen_of(rows, evidence, FEW)
    found: dict[RowFacts, list[PlotPoint]] = {}
    for row in chosen:
        points = curve(row, evidence.printed, with_end=of_backbones)
        if points:
            found[row] = points
    if max(map(len, found.values()), default=0) < 2:
        return "no finished trial has a curve of two epochs"
    against, y, what = baseline_of(chosen, evidence), "validation perplexity", "Mean over seeds"
    printed = [point.printed for points in found.values() for point in points if point.printed is not None]
    if against in found and not printed and not of_backbones:
        found = {row: change(row, against) for row in found}
        y += f"\nagainst {against.head}, %"
        what = f"Change against {against.head}, the mean over shared seeds,"
    series, heights, looks = [], printed, looks_of(evidence)
    for number, (row, points) in enumerate(found.items()):
        label, look = (row.backbone, by_index(number)) if of_backbones else (row.head, looks[row])
        if points:
            series.append(Series(label=label, look=look, points=tuple(points)))
        for point in points[len(points) // 2 :]:
            heights += [point.low, point.high]
    on = lines(series, "epoch", f"{y}\n{over_seeds(chosen, 'bands')}", frame, bands=True)
    room = 0.1 * (max(heights) - min(heights)) or 1.0
    top = max(heights) + room
    on.set_ylim(min(heights) - room, top)
    on.set_xlim(left=min(point.x for each in series for point in each.points if point.y <= top))
    on.xaxis.set_major_locator(MaxNLocator(integer=True))
    return on, f"{what} after each epoch; bands {RANGE}. The axis fits the second half of each curve.{left}"


def curve(row: RowFacts, printed: PrintedNumbers, *, with_end: bool = False) -> list[PlotPoint]:
    """Validation perplexity by epoch, for the epochs that all ok trials have, with printed values.

    Args:
        with_end: also the value printed for the end of training.
    """
    theirs = dict(printed.curve(row.spec, row.params, "valid_ppl"))
    epochs = list(zip(*(record.curve for record in row.ok), strict=False))  # to the shortest
    if epochs and with_end:
        theirs[epochs[-1][0].epoch] = printed.find(row.spec, row.params, "valid_ppl")
    points = []
    for each in epochs:
        epoch, values = each[0].epoch, [point.valid_ppl for point in each]
        of_paper = comparable(theirs.get(epoch), row, printed)
        points.append(PlotPoint(x=epoch, y=statistics.fmean(values), low=min(values), high=max(values), **of_paper))
    return points


def change(row: RowFacts, reference: RowFacts) -> list[PlotPoint]:
    """The change of validation perplexity against a reference in percent, by epoch: over the seeds and epochs that both
    have, the mean of the ratios of a seed.
    """
    ratios: dict[float, list[float]] = {}
    shared = [seed for seed in row.ok_seeds if seed in reference.ok_seeds]
    for seed in shared:
        theirs = {point.epoch: point.valid_ppl for point in reference.records[seed].curve}
        for point in row.records[seed].curve:
            if point.epoch in theirs:
                ratios.setdefault(point.epoch, []).append(math.log(point.valid_ppl / theirs[point.epoch]))
    points = []
    for epoch, each in ratios.items():
        if len(each) == len(shared):
            mean, low, high = percent(statistics.fmean(each)), percent(min(each)), percent(max(each))
            points.append(PlotPoint(x=epoch, y=mean, low=low, high=high))
    return points


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The tuning trials of a row that compare with the chosen one.

    Args:
        lowest: value of the key -> the lowest validation perplexity of its trials; None if all of them failed.
        best: the chosen value and its perplexity.
    """

    row: RowFacts
    lowest: dict[float, float | None]
    best: tuple[float, float]
    epochs: tuple[float, ...]


def keys(suite: Suite) -> list[str]:
    """The keys of a tuned suite that have a plot: those whose values are in an order."""
    return [] if suite.tune is None else [key for key, axis in suite.tune.space.items() if axis.ordered]


def tried(key: str, rows: list[RowFacts], suite: Suite) -> list[Tried]:
    """The tuning of the rows to which a key applies and for which a point is chosen."""
    found = []
    for row in rows:
        choice = row.planned.choice
        if choice is None or key not in choice.point:
            continue
        lowest, epochs = {}, []
        for point, trial in row.planned.compared(choice):
            value, ppl = as_number(point[key]), choice.valid_ppl[trial.id]
            known = [each for each in (lowest.get(value), ppl) if each is not None]
            lowest[value] = min(known, default=None)
            epochs.append(trial.train.epochs)
        best = as_number(choice.point[key]), choice.valid_ppl[choice.trial]
        found.append(Tried(row=row, lowest=dict(sorted(lowest.items())), best=best, epochs=tuple(epochs)))
    return found


def tuning(key: str, rows: list[RowFacts], evidence: Evidence, frame: Frame | None = None) -> Drawn:
    """The lowest validation perplexity that each row reached with each value of a key; the chosen one is circled, and
    values with which all trials failed are crosses at the top.
    """
    every = tried(key, rows, evidence.suite)
    if not every:
        return "no tuned row has this key"
    by_ppl = sorted(every, key=lambda each: each.best[1])
    shown = [each for each in every if each in by_ppl[:MOST]]
    tune, looks, series, crosses = evidence.suite.tune, looks_of(evidence), [], []
    joined = len(keys(evidence.suite)) == 1  # with a second key, a line would join points that differ in more
    for each in shown:
        points, limit = [], max(CEILING * by_ppl[0].best[1], each.best[1])
        for value, ppl in each.lowest.items():
            if ppl is None or ppl > limit:
                crosses.append((each, value))
            else:
                points.append(PlotPoint(x=value, y=ppl, low=ppl, high=ppl))
        series.append(Series(label=each.row.head, look=looks[each.row], points=tuple(points), joined=joined))
    log = "y" if tune.space[key].uniform is not None else "xy"
    on = lines(series, key.removeprefix("train."), "validation perplexity", frame, log=log)
    for number, each in enumerate(shown):
        colour = looks[each.row].colour
        on.plot(*each.best, "o", color=colour, markersize=10, fillstyle="none")
        at = [value for row, value in crosses if row is each]
        on.plot(at, [0.98 - 0.03 * number] * len(at), "x", color=colour, transform=on.get_xaxis_transform())
    budget = epochs_text(*(epochs for each in shown for epochs in each.epochs))
    caption = f"The lowest of the tuning trials with each value: of {budget}, seed {tune.seed}. Circled: the chosen."
    caption += _CROSSES if crosses else ""
    if len(shown) < len(every):
        caption += f" Shown: {MOST} of {len(every)} rows, those with the lowest perplexity."
    return on, caption
