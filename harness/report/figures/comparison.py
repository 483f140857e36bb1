"""Plots that compare rows: perplexity by a parameter and against its cost, and where a gain is.

A function that draws returns axes and a caption, or a sentence on why there is nothing to show.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from harness.errors import RecordError
from harness.plan.specs import ComponentSpec, canonical
from harness.records.sidecars import TokenScores
from harness.report.diff import mean_scores
from harness.report.evidence import Evidence
from harness.report.figures.labels import Label, named
from harness.report.figures.looks import FAINT, INK, MARKERS, Look, looks_of
from harness.report.figures.style import Frame, axes, belongs, least_span, logarithmic, shown
from harness.report.printed_numbers import PrintedCell, PrintedNumbers
from harness.report.table_rows import Row, of_head, time_of
from harness.report.tokens import Band

METRIC = "test_ppl"  # by the suite's own counting rule, which is that of the paper
MOST = 12  # rows in a plot
MOST_GAINS = 6
MAX_BASELINE = 12  # characters of its name on an axis; a longer one is beside its line only
RANGE = "from the lowest seed to the highest"  # the one kind of bars and bands
Drawn = tuple[Axes, str] | str
BandsOf = Callable[[TokenScores, TokenScores], tuple[Band, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of a row in a plot.

    Args:
        x, y: its coordinates; y is a mean over seeds.
        low, high: the ends of its bar or band, of the lowest seed and of the highest; both are y if there is one.
        printed: y in the paper, if the paper counts tokens in the same way.
        source: of the printed value, '<paper>/<table>'; '' without one.
    """

    x: float
    y: float
    low: float
    high: float
    printed: float | None = None
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points that belong together, in the order of x.

    Args:
        rows: those of the points, or the one row of all of them.
        seeds: each point has so many seeds or more.
    """

    label: str
    points: tuple[Point, ...]
    seeds: int
    rows: tuple[Row, ...] = ()


def by_parameter(name: str, label: str, lines: list[Row], evidence: Evidence, frame: Frame | None = None) -> Drawn:
    """Mean test perplexity against an integer parameter of heads, ranges over seeds; the baseline as a band, printed
    values as stars.
    """
    found, looks = series_by(name, lines, evidence.printed), looks_of(evidence)
    if not found:
        return f"no finished trial's head has {name}"
    counts = sorted({point.x for series in found for point in series.points})
    if len(counts) < 2:
        return f"all finished trials have the same {name}"
    on, marks, labels = axes(label, f"test perplexity\n{over_seeds(found, 'bars')}", frame), [], []
    reference = baseline_of(lines, evidence)
    level = _over_seeds(reference, math.nan, evidence.printed) if reference and reference.values(METRIC) else None
    if level is not None:
        on.axhspan(level.low, level.high, color=FAINT, alpha=0.22, linewidth=0)
        on.axhline(level.y, color=INK, linestyle=(0, (2, 1.5)), linewidth=1.2)
        name = "baseline" if reference.head in [series.label for series in found] else reference.head
        labels.append(Label(text=name, x=counts[-1], y=level.y, look=replace(looks[reference], colour=INK)))
        if level.printed is not None:
            line = on.axhline(level.printed, color=INK, linestyle=(0, (8, 3)), linewidth=0.8)
            marks.append((line, f"{reference.head}, printed"))
    step = (counts[-1] - counts[0] or 1) / 100
    for index, series in enumerate(found):
        aside = (index - (len(found) - 1) / 2) * step  # bars at one K are side by side
        of_rows = [looks[row] for row in series.rows]
        last, at = series.points[-1], [point.x + aside for point in series.points]
        line = of_rows[len(of_rows) // 2]
        on.plot(at, [point.y for point in series.points], color=line.colour, linestyle=line.line, linewidth=1)
        for point, look in zip(series.points, of_rows, strict=True):
            _bars(on, [point], look, aside=aside)
        labels.append(Label(text=series.label, x=last.x + aside, y=last.y, look=of_rows[-1]))
    stars(on, found, evidence, marks)
    on.set_xticks(counts if len(counts) <= 12 else counts[:: -(-len(counts) // 12)])
    on.set_xlim(right=counts[-1] + 3 * step)
    least_span(on.yaxis, _spreads(found))
    named(on, labels, marks)
    fewest = min(series.seeds for series in found)
    band = f"; the band is that of {reference.head}" if level is not None and level.low < level.high else ""
    return on, f"Mean test perplexity; bars {RANGE}{band}. Each point has {fewest} or more seeds."


def by_time(lines: list[Row], evidence: Evidence, frame: Frame | None = None) -> Drawn:
    """Test perplexity against ms/batch of training, of one pass and device, with the Pareto front."""
    times = [time_of(line, "train_ms_per_batch", evidence.timings) for line in lines]
    costs, noise = [time and time.value for time in times], [time.spread or 0.0 for time in times if time is not None]
    drawn = _against(lines, costs, noise, "training time, ms per batch", evidence, frame)
    if isinstance(drawn, str):
        return drawn
    on, caption = drawn
    time = next(time for time in times if time is not None)
    how = "one trial at a time" if time.pass_id else "measured during training"
    how += "" if time.exclusive else ", while other work ran on the machine"
    return on, f"{caption} Times on {time.device}, {how}; all trials have the same number of batches."


def by_size(lines: list[Row], evidence: Evidence, frame: Frame | None = None) -> Drawn:
    """Test perplexity against the number of parameters, with the Pareto front."""
    return _against(lines, [float(line.params_total) for line in lines], [], "parameters", evidence, frame)


def _against(
    lines: list[Row],
    costs: list[float | None],
    noise: Sequence[float],
    label: str,
    evidence: Evidence,
    frame: Frame | None,
) -> Drawn:
    """Perplexity against a cost, with the Pareto front of all rows, shown or not; a front of one row is no line."""
    all_of = {line: at_cost(line, cost, evidence.printed) for line, cost in zip(lines, costs, strict=True)}
    chosen, left = chosen_of(lines, evidence, MOST)
    found = {line: series for line in chosen if (series := all_of[line]) is not None}
    if len(found) < 2:
        return "fewer than two rows have a finished trial with this value"
    on = axes(label, f"test perplexity\n{over_seeds(list(found.values()), 'bars')}", frame)
    backbones, looks = list(dict.fromkeys(each.backbone for each in lines)), looks_of(evidence)
    labels, marks = [], []
    for index, (line, series) in enumerate(found.items()):
        # without lines, greys and blues of one marker are hard to distinguish
        (point,), look = series.points, replace(looks[line], marker=MARKERS[index % len(MARKERS)])
        _bars(on, series.points, look, fill=("full", "none")[backbones.index(line.backbone) % 2])
        name = f"{line.backbone}: {series.label}" if len(backbones) > 1 else series.label
        labels.append(Label(text=name, x=point.x, y=point.y, look=look))
    if label == "parameters":  # a printed time is of another device, so it is not drawn at ours
        stars(on, list(found.values()), evidence, marks)
    caption = f"Mean test perplexity; bars {RANGE}."
    points = [series.points[0] for series in found.values()]
    best = front([series.points[0] for series in all_of.values() if series is not None])
    if len(best) > 1:
        at, heights = [point.x for point in best], [point.y for point in best]
        on.step(at, heights, where="post", color=FAINT, linestyle="--", linewidth=0.8, zorder=1)
        caption += " Dashed: the Pareto front, of the rows for which no other row is better in both."
    on.margins(x=0.12, y=0.1)
    logarithmic(on.xaxis, min(point.x for point in points), max(point.x for point in points))
    least_span(on.xaxis, noise)
    least_span(on.yaxis, _spreads(list(found.values())))
    if label == "parameters":
        if on.get_xscale() == "linear":
            on.xaxis.set_major_locator(MaxNLocator(5))
        on.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g} M" if value >= 1e6 else f"{value / 1e3:g} k")
    named(on, labels, marks, points=True)
    return on, f"{caption}{left}"


def gain(bands_of: BandsOf, label: str, lines: list[Row], evidence: Evidence, frame: Frame | None = None) -> Drawn:
    """Nats per token less those of the baseline, by bands of tokens: of frequency or position (harness.report.tokens).

    Args:
        label: of the axis of bands.
    """
    reference = baseline_of(lines, evidence)
    if reference is None:
        return "the suite names no baseline (table.baseline), or none of its rows is here"
    chosen, left = chosen_of(lines, evidence, MOST_GAINS + 1)
    others = [line for line in chosen if line is not reference]
    try:
        found = [each for each in gains(others, reference, evidence, bands_of) if each.bands]
    except RecordError as problem:
        return str(problem)
    if not found:
        return "no row shares a seed with the baseline for which both trials have token scores"
    seeds = "one seed" if max(each.seeds for each in found) == 1 else "mean; bars: lowest to highest seed"
    base = "the baseline" if len(reference.head) > MAX_BASELINE else shown(reference.head)
    on = axes(label, f"Change of loss against {base}\n(nats per token; below 0 is better)\n{seeds}", frame)
    on.axhline(0, color=INK, linewidth=1)
    looks, labels = looks_of(evidence), []
    bands = list(dict.fromkeys(band.label for each in found for band in each.bands))
    for place, each in enumerate(found):
        aside = (place - (len(found) - 1) / 2) * 0.6 / len(found)
        points = [Point(x=bands.index(band.label), y=band.mean, low=band.low, high=band.high) for band in each.bands]
        _bars(on, points, looks[each.row], aside=aside, line=True)
        labels.append(Label(text=each.row.head, x=points[-1].x + aside, y=points[-1].y, look=looks[each.row]))
    number = {band.label: band.tokens for band in found[0].bands}
    shares = [100 * number.get(band, 0) / sum(number.values()) for band in bands]
    ticks = [f"{band}\n{share:.0f} %" for band, share in zip(bands, shares, strict=True)]
    on.set_xticks(range(len(bands)), ticks, fontsize=7 if len(bands) < 7 else 6)
    labels.append(
        Label(text=f"0: {reference.head}", x=on.get_xlim()[1], y=0, look=replace(looks[reference], colour=INK))
    )
    least_span(on.yaxis, [band.high - band.low for each in found for band in each.bands])
    named(on, labels)
    return on, (
        f"Loss per test token less that of {reference.head}: below 0 the head is better. Averaged over the shared "
        f"seeds, {min(each.seeds for each in found)} or more. Bars {RANGE}. "
        f"Below each band: its share of the test tokens.{left}"
    )


def _bars(
    on: Axes, points: Sequence[Point], look: Look, *, aside: float = 0.0, line: bool = False, fill: str = "full"
) -> None:
    drawn = on.errorbar(
        [point.x + aside for point in points],
        [point.y for point in points],
        yerr=[
            [max(0.0, point.y - point.low) for point in points],
            [max(0.0, point.high - point.y) for point in points],
        ],
        color=look.colour,
        marker=look.marker,
        fillstyle=fill,
        linestyle=look.line if line else "",
        ecolor=(look.colour, 0.6),
        elinewidth=1.2,
    )
    belongs(look, "points", *drawn.get_children())


def over_seeds(found: Sequence[Series], what: str) -> str:
    """What the bars or bands are, for an axis."""
    several = any(series.seeds > 1 or any(point.low < point.high for point in series.points) for series in found)
    return f"mean; {what}: lowest to highest seed" if several else "one seed"


def _spreads(found: Sequence[Series]) -> list[float]:
    return [point.high - point.low for series in found for point in series.points]


def stars(
    on: Axes, found: Sequence[Series], evidence: Evidence, marks: list[tuple[Artist, str]], looks: Sequence[Look] = ()
) -> None:
    """Draw printed values as stars, in the colours of their series if given, and add their sources to `marks`."""
    for place, series in enumerate(found):
        known = [point for point in series.points if point.printed is not None]
        if known:
            at, heights = [point.x for point in known], [point.printed for point in known]
            colour = looks[place].colour if looks else INK
            on.plot(at, heights, "*", color=colour, markersize=9, fillstyle="none", clip_on=False)
    for source in dict.fromkeys(point.source for each in found for point in each.points if point.printed is not None):
        mark = Line2D([], [], marker="*", linestyle="", color=INK, markersize=9, fillstyle="none")
        marks.append((mark, evidence.printed.title(source)))


def baseline_of(lines: Sequence[Row], evidence: Evidence) -> Row | None:
    return next(iter(of_head(lines, evidence.suite.table.baseline)), None)


def chosen_of(lines: list[Row], evidence: Evidence, most: int) -> tuple[list[Row], str]:
    """The rows of a plot, in the order of the suite, and a sentence if rows are left out. The baseline is kept."""
    measured = [line for line in lines if line.values(METRIC)]
    if len(measured) <= most:
        return measured, ""
    reference = baseline_of(lines, evidence)
    first = [line for line in measured if line is reference]
    shown = list(dict.fromkeys([*first, *every_head_first(measured)]))[:most]
    kept = "the baseline, " if first else ""
    left = f" Shown: {most} of {len(measured)} rows, {kept}the best of each head and those with the lowest perplexity."
    return [line for line in measured if line in shown], left


def every_head_first(measured: Sequence[Row]) -> list[Row]:
    """Rows by test perplexity, but the best one of each class of heads before all others, so that a plot of some rows
    compares heads, not the variants of one.
    """
    ranked = sorted(measured, key=lambda line: statistics.fmean(line.values(METRIC)))
    best: dict[str, Row] = {}
    for line in ranked:
        best.setdefault(line.trials[0].head.name, line)
    return list(dict.fromkeys([*best.values(), *ranked]))


def series_by(name: str, lines: Sequence[Row], printed: PrintedNumbers) -> list[Series]:
    """Test perplexity against an integer parameter of heads: a series for each head with fixed other parameters.

    Bars reach from the lowest seed to the highest.
    """
    entries: dict[str, dict[int, Row]] = {}
    heads: dict[str, ComponentSpec] = {}
    for line in lines:
        head, params = line.trials[0].head, line.params_of("head")
        value = params.get(name)
        if not line.values(METRIC) or isinstance(value, bool) or not isinstance(value, int):
            continue
        tuned = {key.removeprefix("head.") for key in line.tuned if key.startswith("head.")}
        others = {other: params[other] for other in params if other not in tuned | {name}}
        key = f"{head.name} {canonical(others)}"
        entries.setdefault(key, {})[value] = line
        heads[key] = ComponentSpec(name=head.name, params={k: v for k, v in head.params.items() if k in others})
    shared = {key: _shared_name([row.head for row in found.values()]) for key, found in entries.items()}
    used = Counter(shared.values())
    return [
        Series(
            label=shared[key] if shared[key] and used[shared[key]] == 1 else str(heads[key]),
            points=tuple(_over_seeds(row, x, printed) for x, row in sorted(found.items())),
            seeds=min(len(row.ok_seeds) for row in found.values()),
            rows=tuple(row for _, row in sorted(found.items())),
        )
        for key, found in entries.items()
    ]


def _shared_name(names: Sequence[str]) -> str:
    """The words with which all names begin: 'MoS' of 'MoS 2' and 'MoS 10'."""
    alike = takewhile(lambda words: len(set(words)) == 1, zip(*(name.split() for name in names), strict=False))
    return " ".join(words[0] for words in alike).rstrip(",")


def at_cost(line: Row, x: float | None, printed: PrintedNumbers) -> Series | None:
    """Test perplexity against a cost, with a bar from the lowest seed to the highest; None without both."""
    values = line.values(METRIC)
    if not values or x is None:
        return None
    return Series(label=line.head, points=(_over_seeds(line, x, printed),), seeds=len(values), rows=(line,))


def front(points: Sequence[Point]) -> list[Point]:
    """The Pareto front: the points for which no other is lower in both x and y, in the order of x."""
    best, found = math.inf, []
    for point in sorted(points, key=lambda point: (point.x, point.y)):
        if point.y < best:
            best = point.y
            found.append(point)
    return found


def comparable(cell: PrintedCell | None, line: Row) -> Mapping[str, Any]:
    """`printed` and `source` of a point: a cell's number and source, if it was counted as ours."""
    if cell is None or cell.number is None or (cell.counting and cell.counting != line.boundary):
        return {}
    return {"printed": cell.number, "source": cell.source}


def _over_seeds(line: Row, x: float, printed: PrintedNumbers) -> Point:
    values = line.values(METRIC)
    theirs = comparable(printed.find(line.trials[0], line.params, METRIC), line)
    return Point(x=x, y=statistics.fmean(values), low=min(values), high=max(values), **theirs)


class BandOverSeeds(NamedTuple):
    """A band of tokens: their number, the mean difference in nats, and those of the lowest and the highest seed."""

    label: str
    tokens: int
    mean: float
    low: float
    high: float


class Gain(NamedTuple):
    """A row's nats per token less those of the baseline, by bands of tokens: below 0 the row is better. They are
    averaged over so many shared seeds.
    """

    row: Row
    seeds: int
    bands: tuple[BandOverSeeds, ...]


def gains(lines: Sequence[Row], reference: Row, evidence: Evidence, bands_of: BandsOf) -> list[Gain]:
    """The gains of the rows that share a seed with the reference for which both trials have token scores.

    Raises: RecordError when the scores are of two test splits.
    """
    found = []
    for line in lines:
        shared = [seed for seed in line.ok_seeds if seed in reference.ok_seeds]
        scores = ([evidence.token_scores(row.records[seed].id) for row in (reference, line)] for seed in shared)
        if pairs := [of_both for of_both in scores if None not in of_both]:
            found.append(Gain(line, len(pairs), _over_pairs(bands_of, pairs)))
    return found


def _over_pairs(bands_of: BandsOf, pairs: Sequence[Sequence[TokenScores]]) -> tuple[BandOverSeeds, ...]:
    each = [bands_of(*pair) for pair in pairs]
    found = []
    for band in bands_of(*(mean_scores(kept) for kept in zip(*pairs, strict=True))):
        seeds = [one.mean for bands in each for one in bands if one.label == band.label]
        found.append(BandOverSeeds(band.label, band.tokens, band.mean, min(seeds), max(seeds)))
    return tuple(found)
