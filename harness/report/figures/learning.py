"""Plots of training: learning curves, and validation perplexity by a tuned key, which shows how sensitive a row is.

A function that draws returns axes and a caption, or a sentence on why there is nothing to show.
"""

import math
import statistics
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from harness.plan.loaded_suite import Suite
from harness.plan.specs import ComponentSpec, as_number, canonical
from harness.plan.tuning import epochs_text
from harness.report.evidence import Evidence
from harness.report.figures.comparison import (
    METRIC,
    MOST,
    RANGE,
    Drawn,
    Point,
    Series,
    baseline_of,
    comparable,
    every_head_first,
    over_seeds,
    stars,
)
from harness.report.figures.labels import Label, named
from harness.report.figures.looks import FAINT, INK, Look, by_index, looks_of
from harness.report.figures.style import Frame, axes, belongs, least_span, logarithmic
from harness.report.findings import percent
from harness.report.printed_numbers import PrintedNumbers
from harness.report.table_rows import Row

STEEP = 2.0  # a learning curve above so many times its lowest value is in its first, steep part
IN_COLOUR = 4  # learning curves of a plot
FAR = 4.0  # a pale curve that ends farther off than so many times all others leaves the axes
CEILING = 10.0  # times the lowest perplexity of a plot of tuning: a trial above it would make the others a flat line
_PALE = " Pale: trials with another value of a key that has a list of values."
_CROSSES = f" Crosses at the top: trials that failed, or have more than {CEILING:g} times the lowest perplexity."
Place = tuple[float, float]


def curves(lines: list[Row], evidence: Evidence, frame: Frame | None = None, *, of_backbones: bool = False) -> Drawn:
    """Validation perplexity after each epoch, as the change against the baseline if there is one and no curve has
    printed values. A few rows are in colour, with bands over the seeds; the others are thin and grey. Early epochs are
    left out by the rule of readable_from.

    Args:
        of_backbones: the rows are of one head on variants of a backbone: all are in colour, none is the baseline, and
            what is printed for the end of training is a line.
    """
    found = {line: series for line in lines if (series := curve(line, evidence.printed)) is not None}
    if max((len(series.points) for series in found.values()), default=0) < 2:
        return "no finished trial has a curve of two epochs"
    first, against = readable_from(list(found.values())), None if of_backbones else baseline_of(lines, evidence)
    early = min(series.points[0].x for series in found.values()) < first
    if any(point.printed is not None for series in found.values() for point in series.points):
        against = None
    if against is not None and curve(against, evidence.printed) is not None:
        found = {line: series for line in found if (series := change(line, against)) is not None}
    else:
        against = None
    found = {line: cut for line, series in found.items() if (cut := since(series, first)).points}
    coloured = [*found][:MOST] if of_backbones else in_colour(lines, evidence)
    strong = [line for line in found if line in coloured]
    looks, names = looks_of(evidence), {line: line.head for line in lines}
    if of_backbones:
        looks = {line: replace(by_index(place), row=looks[line].row) for place, line in enumerate(lines)}
        names = dict(zip(lines, differing([line.trials[0].backbone for line in lines]), strict=True))
    what = "validation perplexity" if against is None else f"validation perplexity\nagainst {against.head}, %"
    bands = over_seeds([found[line] for line in strong], "bands")
    on = axes(f"epoch (from {first:g} on)" if early else "epoch", f"{what}\n{bands}", frame)
    for line, series in found.items():
        if line in strong or not of_backbones:
            _curve(on, series, looks[line], pale=line not in strong)
    ends, marks = printed_ends(lines, evidence.printed) if of_backbones else {}, []
    for height, source in ends.items():
        drawn = on.axhline(height, color=INK, linestyle=(0, (8, 3)), linewidth=0.8)
        marks.append((drawn, f"printed: {height:g} ({evidence.printed.title(source)})"))
    stars(on, list(found.values()), evidence, marks, [looks[line] for line in found])
    on.set_xlim(right=max(series.points[-1].x for series in found.values()))
    on.xaxis.set_major_locator(MaxNLocator(integer=True))
    margin = None if against is None else 100 * evidence.suite.table.margin
    pale = [] if of_backbones else [series for line, series in found.items() if line not in strong]
    _heights(on, [found[line] for line in strong], pale, margin=margin, also=list(ends))
    points = {line: found[line].points[-1] for line in strong}
    named(on, [Label(text=names[line], x=at.x, y=at.y, look=looks[line]) for line, at in points.items()], marks)
    mean = "Mean over seeds" if against is None else f"Change against {against.head}, the mean over shared seeds,"
    parts = {
        f"{mean} after each epoch; bands {RANGE}.": True,
        " In colour: the best row, the baseline, the best of other heads; thin: the other rows.": bool(pale),
        f" Left out: epochs before {first:g}, in which a curve is above {STEEP:g} times its lowest value.": early,
        f" Shown: {len(strong)} of {len(found)} rows.": of_backbones and len(strong) < len(found),
    }
    return on, "".join(part for part, applies in parts.items() if applies)


def in_colour(lines: Sequence[Row], evidence: Evidence) -> list[Row]:
    """The rows whose learning curves are in colour: the one with the lowest test perplexity, the baseline, and the best
    of other heads.
    """
    ranked = every_head_first([line for line in lines if line.values(METRIC)])
    reference = baseline_of(lines, evidence)
    first = [*ranked[:1], *(line for line in ranked if line is reference)]
    return list(dict.fromkeys([*first, *ranked]))[:IN_COLOUR]


def _curve(on: Axes, series: Series, look: Look, *, pale: bool = False) -> None:
    at, heights = [point.x for point in series.points], [point.y for point in series.points]
    if pale:
        belongs(look, "pale", *on.plot(at, heights, color=FAINT, linewidth=0.6, alpha=0.6, zorder=1))
        return
    ends = [point.low for point in series.points], [point.high for point in series.points]
    belongs(look, "band", on.fill_between(at, *ends, color=look.colour, alpha=0.15, linewidth=0))
    belongs(look, "line", *on.plot(at, heights, color=look.colour, linestyle=look.line, zorder=3))


def _heights(
    on: Axes,
    strong: Sequence[Series],
    pale: Sequence[Series],
    *,
    margin: float | None = None,
    also: Sequence[float] = (),
) -> None:
    """The ends of the axis of learning curves: all of those in colour are inside, and the ends of pale ones.

    Args:
        margin: of changes against a baseline, the smallest difference of interest in percent, which counts as noise.
    """
    points = [point for series in strong for point in series.points]
    inside = [*also, *(y for point in points for y in (point.low, point.high, point.printed) if y is not None)]
    if margin is not None:
        far = FAR * max(abs(y) for y in inside)
        inside += [series.points[-1].y for series in pale if abs(series.points[-1].y) <= far]
        on.axhline(0, color=INK, linewidth=0.8, zorder=2)
    else:
        inside += [point.y for series in pale for point in series.points]
    low, high = min(inside), max(inside)
    logarithmic(on.yaxis, low, high)
    if on.get_yscale() == "linear":
        room = 0.04 * (high - low)
        noise = [max(margin or 0.0, series.points[-1].high - series.points[-1].low) for series in strong]
        least_span(on.yaxis, noise, low - room, high + room)


def curve(line: Row, printed: PrintedNumbers) -> Series | None:
    """Validation perplexity by epoch, for the epochs that all ok trials have, with bands from the lowest seed to the
    highest, and printed values; None without a curve.
    """
    found = [line.records[seed].curve for seed in line.ok_seeds]
    theirs = printed.curve(line.trials[0], line.params, "valid_ppl")
    points = [
        Point(
            x=at[0].epoch,
            y=statistics.fmean(point.valid_ppl for point in at),
            low=min(point.valid_ppl for point in at),
            high=max(point.valid_ppl for point in at),
            **comparable(theirs.get(at[0].epoch), line),
        )
        for at in zip(*found, strict=False)  # to the shortest
    ]
    return Series(label=line.head, points=tuple(points), seeds=len(found)) if points else None


def change(line: Row, reference: Row) -> Series | None:
    """The change of validation perplexity against a reference in percent, by epoch: over the seeds and epochs that both
    have, the mean of the ratios of a seed; None without any.
    """
    seeds = [seed for seed in line.ok_seeds if seed in reference.ok_seeds]
    pairs = [
        [{point.epoch: point.valid_ppl for point in row.records[seed].curve} for row in (line, reference)]
        for seed in seeds
    ]
    points = []
    for epoch in pairs[0][0] if pairs else ():
        if all(epoch in each for pair in pairs for each in pair):
            ratios = [math.log(ours[epoch] / theirs[epoch]) for ours, theirs in pairs]
            mean, low, high = map(percent, (statistics.fmean(ratios), min(ratios), max(ratios)))
            points.append(Point(x=epoch, y=mean, low=low, high=high))
    return Series(label=line.head, points=tuple(points), seeds=len(seeds)) if points else None


def printed_ends(lines: Sequence[Row], printed: PrintedNumbers) -> dict[float, str]:
    """Validation perplexities that are printed for the end of training and counted as ours, and their sources."""
    cells = [comparable(printed.find(line.trials[0], line.params, "valid_ppl"), line) for line in lines]
    return {cell["printed"]: cell["source"] for cell in cells if cell}


def differing(components: Sequence[ComponentSpec]) -> list[str]:
    """What distinguishes components of one name: 'd_model=200, d_ff=200'."""
    given = [each.params for each in components]
    keys = dict.fromkeys(key for params in given for key in params)
    apart = [key for key in keys if len({canonical(params.get(key)) for params in given}) > 1]
    return [", ".join(f"{key}={params.get(key)}" for key in apart) for params in given]


def readable_from(found: Sequence[Series]) -> float:
    """The first epoch of a plot of learning curves: the first by which each curve has been within STEEP times its
    lowest value. At least half of the epochs of each curve are shown, and every epoch from the first printed value on.
    """
    reached = [
        next(point.x for point in series.points if point.y <= STEEP * min(each.y for each in series.points))
        for series in found
    ]
    halves = [series.points[(len(series.points) - 1) // 2].x for series in found]
    printed = [point.x for series in found for point in series.points if point.printed is not None]
    return min([max(reached), *halves, *printed])


def since(series: Series, first: float) -> Series:
    """The points of a series from an x on."""
    return replace(series, points=tuple(point for point in series.points if point.x >= first))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The tuning trials of a row that compare with the chosen one, in the order of a key's values.

    Args:
        curves: (value of the key, validation perplexity) of the trials that are ok, in a group for each value of the
            other keys that are in no order. The first group has the chosen trial.
    """

    row: Row
    curves: tuple[tuple[Place, ...], ...]
    failed: tuple[float, ...]
    best: Place
    epochs: tuple[float, ...]

    @property
    def places(self) -> list[Place]:
        """Those of all groups."""
        return sorted(place for curve in self.curves for place in curve)


def keys(suite: Suite) -> list[str]:
    """The keys of a tuned suite that have a plot: those whose values are in an order."""
    return [] if suite.tuning is None else [key for key, axis in suite.tuning.spec.space.items() if axis.ordered]


def tried(key: str, lines: list[Row], suite: Suite) -> list[Tried]:
    """The tuning of the rows to which a key applies and for which a point is chosen."""
    found, ordered = [], keys(suite)
    of_trial = {trial.id: row for row in range(len(suite.tuning.rows)) for trial in suite.tuning.of_table(row)}
    for line in lines:
        index = of_trial[line.trials[0].id]
        choice = suite.tuning.choices[index]
        if key not in choice.point:
            continue
        compared = suite.tuning.rows[index].compared(choice)
        ppl = [(point, choice.valid_ppl[trial.id]) for point, trial in compared]
        groups: dict[str, list[Place]] = {_others(choice.point, ordered): []}  # the one with the chosen point is first
        for point, y in ppl:
            if y is not None:
                groups.setdefault(_others(point, ordered), []).append((as_number(point[key]), y))
        found.append(
            Tried(
                row=line,
                curves=tuple(tuple(sorted(group)) for group in groups.values()),
                failed=tuple(sorted(as_number(point[key]) for point, y in ppl if y is None)),
                best=(as_number(choice.point[key]), choice.valid_ppl[choice.trial]),
                epochs=tuple(trial.train.epochs for _, trial in compared),
            )
        )
    return found


def tuning(key: str, lines: list[Row], evidence: Evidence, frame: Frame | None = None) -> Drawn:
    """Validation perplexity of every tuning trial against the value of a key; the chosen point is circled, and trials
    that failed are crosses at the top.
    """
    every = tried(key, lines, evidence.suite)
    if not every:
        return "no tuned row has this key"
    rows = [every[index] for index in sorted(sorted(range(len(every)), key=lambda each: every[each].best[1])[:MOST])]
    lowest = min(row.best[1] for row in every)
    of, name, looks = evidence.suite.tuning, key.removeprefix("train."), looks_of(evidence)
    joined = len(keys(evidence.suite)) == 1  # with a second key, a line would join points that differ in more
    on, labels, inside, above = axes(name, "validation perplexity", frame), [], [], []
    for number, row in enumerate(rows):
        limit, look = max(CEILING * lowest, row.best[1]), looks[row.row]
        inside += [place for place in row.places if place[1] <= limit]
        crosses = [*row.failed, *(x for x, y in row.places if y > limit)]
        x, y = _tried(on, row, limit, look, joined=joined)
        labels.append(Label(text=row.row.head, x=x, y=y, look=look))
        if crosses:
            at_top = [0.98 - 0.03 * number] * len(crosses)
            failed = on.plot(crosses, at_top, "x", color=look.colour, transform=on.get_xaxis_transform())
            belongs(look, "failed", *failed)
            above += crosses
    values, heights = [*(x for x, _ in inside), *above], [y for _, y in inside]
    if of.spec.space[key].uniform is None:
        logarithmic(on.xaxis, min(values), max(values))
    logarithmic(on.yaxis, min(heights), max(heights))
    least_span(on.yaxis, [])
    named(on, labels)
    budget = epochs_text(*(epochs for row in rows for epochs in row.epochs))
    return on, "".join(
        (
            f"Each point is one tuning trial of {budget}, seed {of.spec.seed}; the chosen one is circled.",
            _PALE if any(len(row.curves) > 1 for row in rows) else "",
            _CROSSES if above else "",
            f" Shown: {MOST} of {len(every)} rows, those with the lowest perplexity." if len(rows) < len(every) else "",
        )
    )


def _tried(on: Axes, row: Tried, limit: float, look: Look, *, joined: bool) -> Place:
    """Draw the trials of a row below a limit, in a line for each group; that of the chosen point is not pale. Returns
    the end of its line.
    """
    drawn, ends = [], []
    for group in row.curves:
        places = [place for place in group if place[1] <= limit]
        line, alpha = look.line if joined else "", 0.3 if drawn else 1.0
        at, heights = [x for x, _ in places], [y for _, y in places]
        drawn += on.plot(at, heights, color=look.colour, marker=look.marker, markersize=4, linestyle=line, alpha=alpha)
        ends += places[-1:]
    drawn += on.plot(*row.best, "o", color=look.colour, markersize=10, fillstyle="none")
    belongs(look, "tried", *drawn)
    return ends[0] if joined else row.best


def _others(point: Mapping[str, Any], ordered: Container[str]) -> str:
    """The values of the keys of a point that are in no order."""
    return canonical({name: value for name, value in point.items() if name not in ordered})
