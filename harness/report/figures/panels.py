"""Draw each kind of plot. A function returns axes and a caption, or a sentence on why there is nothing to show."""

import statistics
from collections.abc import Callable, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from harness.errors import RecordError
from harness.report.evidence import Evidence
from harness.report.figures import points
from harness.report.figures.points import METRIC, BandOverSeeds, Gain, Point, Series
from harness.report.figures.style import FAINT, INK, LOOKS, axes, legend, logarithmic, shown, style
from harness.report.table_rows import Row, of_head, time_of

MOST = 12  # rows in a plot; of more rows, those with the lowest perplexity
MOST_GAINS = 6
MAX_BASELINE = 12  # characters of its name on an axis; a longer one is in the legend only
RANGE = "from the lowest seed to the highest"  # the one kind of bars and bands
Drawn = tuple[Axes, str] | str


def by_parameter(name: str, label: str, lines: list[Row], evidence: Evidence) -> Drawn:
    """Mean test perplexity against an integer parameter of heads, ranges over seeds; the baseline as a band, printed
    values as stars.

    Args:
        name: of the parameter, 'num_mixtures'.
        label: of the x axis.
    """
    found = points.by_parameter(name, lines, evidence.printed)
    if not found:
        return f"no finished trial's head has {name}"
    if len({point.x for series in found for point in series.points}) < 2:
        return f"all finished trials have the same {name}"
    on, entries = axes(label, f"test perplexity\n{_over_seeds(found, 'bars')}"), []
    reference = _baseline(lines, evidence)
    level = points.baseline(reference, evidence.printed) if reference else None
    if level is not None:
        on.axhspan(level.low, level.high, color=FAINT, alpha=0.22, linewidth=0)
        entries.append((on.axhline(level.y, color=INK, linestyle=(0, (2, 1.5)), linewidth=1.2), reference.head))
        if level.printed is not None:
            line = on.axhline(level.printed, color=INK, linestyle=(0, (8, 3)), linewidth=0.8)
            entries.append((line, f"{reference.head}, printed"))
    counts = sorted({point.x for series in found for point in series.points})
    step = (counts[-1] - counts[0] or 1) / 100
    for index, series in enumerate(found):
        aside = (index - (len(found) - 1) / 2) * step  # bars at one K are side by side
        entries.append((_bars(on, series, index, aside=aside, line=True), series.label))
    _printed(on, found, evidence, entries)
    on.set_xticks(counts if len(counts) <= 12 else counts[:: -(-len(counts) // 12)])
    legend(on, entries)
    fewest = min(series.seeds for series in found)
    band = f"; the band is that of {reference.head}" if level is not None and level.low < level.high else ""
    return on, f"Mean test perplexity; bars {RANGE}{band}. Each point has {fewest} or more seeds."


def curves(lines: list[Row], evidence: Evidence, *, by_backbone: bool = False) -> Drawn:
    """Validation perplexity after each epoch, on a log scale: the mean over seeds, a band over all of them, and printed
    values as stars. Early epochs are left out by the rule of points.readable_from.

    Args:
        by_backbone: the rows are of one head on variants of a backbone; a value that is printed for the end of training
            is a line.
    """
    names = points.differing([line.trials[0].backbone for line in lines]) if by_backbone else None
    chosen, left = _chosen(lines, evidence, MOST)
    whole = {index: series for index in chosen if (series := points.curve(lines[index], evidence.printed)) is not None}
    if max((len(series.points) for series in whole.values()), default=0) < 2:
        return "no finished trial has a curve of two epochs"
    first = points.readable_from(list(whole.values()))
    found = {index: points.since(series, first) for index, series in whole.items()}
    early = any(series.points[0].x < first for series in whole.values())
    label = f"validation perplexity\n{_over_seeds(list(found.values()), 'bands')}"
    on, entries = axes(f"epoch (from {first:g} on)" if early else "epoch", label), []
    for index, series in found.items():
        entries.append((_line(on, series, _look(index, chosen, lines)), names[index] if names else series.label))
    ends = _ends(on, [lines[index] for index in found], evidence, entries) if by_backbone else []
    on.xaxis.set_major_locator(MaxNLocator(integer=True))
    colours = [style(_look(index, chosen, lines)).colour for index in found]
    _printed(on, list(found.values()), evidence, entries, colours)
    every = [point for series in found.values() for point in series.points]
    heights = [*ends, *(y for point in every for y in (point.low, point.high, point.printed) if y is not None)]
    logarithmic(on.yaxis, min(heights), max(heights))
    legend(on, entries)
    steep = (
        f" Left out: the epochs before {first:g}, in which a curve is above {points.STEEP:g} times its lowest value."
    )
    return on, f"Mean over seeds after each epoch; bands {RANGE}.{steep if early else ''}{left}"


def _ends(on: Axes, lines: list[Row], evidence: Evidence, entries: list[tuple[Artist, str]]) -> list[float]:
    """Draw the validation perplexities that are printed for the end of training as lines, and return them."""
    found = points.printed_ends(lines, evidence.printed)
    for height, source in found.items():
        line = on.axhline(height, color=INK, linestyle=(0, (8, 3)), linewidth=0.8)
        entries.append((line, f"printed: {height:g} ({evidence.printed.title(source)})"))
    return list(found)


def by_time(lines: list[Row], evidence: Evidence) -> Drawn:
    """Test perplexity against ms/batch of training, of one pass and device, with the Pareto front."""
    times = [time_of(line, "train_ms_per_batch", evidence.timings) for line in lines]
    drawn = _against(lines, [time and time.value for time in times], "training time, ms per batch", evidence)
    if isinstance(drawn, str):
        return drawn
    on, caption = drawn
    time = next(time for time in times if time is not None)
    how = "one trial at a time" if time.pass_id else "measured during training"
    how += "" if time.exclusive else ", while other work ran on the machine"
    return on, f"{caption} Times on {time.device}, {how}; all trials have the same number of batches."


def by_size(lines: list[Row], evidence: Evidence) -> Drawn:
    """Test perplexity against the number of parameters, with the Pareto front."""
    return _against(lines, [float(line.params_total) for line in lines], "parameters", evidence)


def _against(lines: list[Row], costs: list[float | None], label: str, evidence: Evidence) -> Drawn:
    """Perplexity against a cost, with the Pareto front of all rows, shown or not; a front of one row is no line."""
    all_of = [points.at_cost(line, cost, evidence.printed) for line, cost in zip(lines, costs, strict=True)]
    chosen, left = _chosen(lines, evidence, MOST)
    found = {index: series for index in chosen if (series := all_of[index]) is not None}
    if len(found) < 2:
        return "fewer than two rows have a finished trial with this value"
    on, entries = axes(label, f"test perplexity\n{_over_seeds(list(found.values()), 'bars')}"), []
    backbones = len({each.backbone for each in lines}) > 1
    for index, series in found.items():
        name = f"{lines[index].backbone}: {series.label}" if backbones else series.label
        entries.append((_bars(on, series, _look(index, chosen, lines)), name))
    if label == "parameters":  # a printed time is of another device, so it is not drawn at ours
        _printed(on, list(found.values()), evidence, entries)
    caption = f"Mean test perplexity; bars {RANGE}."
    if line := _front(on, [series.points[0] for series in all_of if series is not None]):
        entries.append((line, "Pareto front"))
        caption += " Pareto front: the rows for which no other row is better in both."
    at = [series.points[0].x for series in found.values()]
    logarithmic(on.xaxis, min(at), max(at))
    if label == "parameters":
        if on.get_xscale() == "linear":
            on.xaxis.set_major_locator(MaxNLocator(5))
        on.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g} M" if value >= 1e6 else f"{value / 1e3:g} k")
    legend(on, entries)
    return on, f"{caption}{left}"


def _front(on: Axes, every: Sequence[Point]) -> Artist | None:
    """The line of the Pareto front; None where one row is the best in both."""
    best = points.front(every)
    if len(best) < 2:
        return None
    at, heights = [point.x for point in best], [point.y for point in best]
    (line,) = on.step(at, heights, where="post", color=FAINT, linestyle="--", zorder=1)
    return line


def by_frequency(lines: list[Row], evidence: Evidence) -> Drawn:
    """Nats per token less those of the baseline, by the frequency of the token in training."""
    return _gain(lines, evidence, "occurrences of the target in training", lambda gain: gain.by_frequency)


def by_position(lines: list[Row], evidence: Evidence) -> Drawn:
    """Nats per token less those of the baseline, by the position of the target in its segment."""
    return _gain(lines, evidence, "tokens of the segment before the target", lambda gain: gain.by_position)


def _gain(
    lines: list[Row], evidence: Evidence, label: str, bands_of: Callable[[Gain], tuple[BandOverSeeds, ...]]
) -> Drawn:
    reference = _baseline(lines, evidence)
    if reference is None:
        return "the suite names no baseline (table.baseline), or none of its rows is here"
    chosen, left = _chosen(lines, evidence, MOST_GAINS + 1)
    others = [index for index in chosen if lines[index] is not reference]
    try:
        found = [gain for gain in points.gains(lines, others, reference, evidence) if bands_of(gain)]
    except RecordError as problem:
        return str(problem)
    if not found:
        return "no row shares a seed with the baseline for which both trials have token scores"
    seeds = "one seed" if max(gain.seeds for gain in found) == 1 else "mean; bars: lowest to highest seed"
    base = "the baseline" if len(reference.head) > MAX_BASELINE else shown(reference.head)
    on, entries = axes(label, f"Change of loss against {base}\n(nats per token; below 0 is better)\n{seeds}"), []
    entries.append((on.axhline(0, color=INK, linewidth=1), f"0: as {reference.head}"))
    bands = list(dict.fromkeys(band.label for gain in found for band in bands_of(gain)))
    for place, gain in enumerate(found):
        aside = (place - (len(found) - 1) / 2) * 0.6 / len(found)
        places = [
            Point(x=bands.index(band.label), y=band.mean, low=band.low, high=band.high) for band in bands_of(gain)
        ]
        series = Series(label=lines[gain.row].head, points=tuple(places), seeds=gain.seeds)
        bars = _bars(on, series, _look(gain.row, chosen, lines), aside=aside, line=True)
        entries.append((bars, series.label))
    _shares(on, bands_of(found[0]), bands)
    legend(on, entries)
    return on, (
        f"Loss per test token less that of {reference.head}: below 0 the head is better. Averaged over the shared "
        f"seeds, {min(gain.seeds for gain in found)} or more. Bars {RANGE}. "
        f"Below each band: its share of the test tokens.{left}"
    )


def _shares(on: Axes, bands: tuple[BandOverSeeds, ...], labels: list[str]) -> None:
    """The bands on the x axis, each with its share of the tokens."""
    total, tokens = sum(band.tokens for band in bands), {band.label: band.tokens for band in bands}
    shares = [f"{100 * tokens.get(label, 0) / total:.0f} %" for label in labels]
    on.set_xticks(range(len(labels)), [f"{label}\n{share}" for label, share in zip(labels, shares, strict=True)])


def _look(index: int, chosen: list[int], lines: list[Row]) -> int:
    """The number of a row's style: the same in all plots of the same rows, if there are enough styles."""
    return index if len(lines) <= LOOKS else chosen.index(index)


def _bars(on: Axes, series: Series, index: int, *, aside: float = 0.0, line: bool = False):
    """The points of a series with their bars."""
    how = style(index)
    return on.errorbar(
        [point.x + aside for point in series.points],
        [point.y for point in series.points],
        yerr=[
            [max(0.0, point.y - point.low) for point in series.points],
            [max(0.0, point.high - point.y) for point in series.points],
        ],
        color=how.colour,
        marker=how.marker,
        linestyle=how.line if line else "",
        capsize=2.5,
        elinewidth=1,
    )


def _line(on: Axes, series: Series, index: int) -> Artist:
    """A curve with its band."""
    how, at = style(index), [point.x for point in series.points]
    (line,) = on.plot(
        at,
        [point.y for point in series.points],
        color=how.colour,
        linestyle=how.line,
        marker=how.marker,
        markevery=max(1, len(at) // 8),
    )
    ends = [point.low for point in series.points], [point.high for point in series.points]
    on.fill_between(at, *ends, color=how.colour, alpha=0.18, linewidth=0)
    return line


def _over_seeds(found: Sequence[Series], what: str) -> str:
    """What the bars or bands are, for an axis."""
    several = any(series.seeds > 1 or any(point.low < point.high for point in series.points) for series in found)
    return f"mean; {what}: lowest to highest seed" if several else "one seed"


def _printed(
    on: Axes,
    found: Sequence[Series],
    evidence: Evidence,
    entries: list[tuple[Artist, str]],
    colours: Sequence[str] = (),
) -> None:
    """Printed values as stars, in the colours of their series if these are given; the legend names their sources."""
    for place, series in enumerate(found):
        known = [point for point in series.points if point.printed is not None]
        if known:
            at, heights = [point.x for point in known], [point.printed for point in known]
            on.plot(at, heights, "*", color=colours[place] if colours else INK, markersize=9, fillstyle="none")
    for source in dict.fromkeys(point.source for each in found for point in each.points if point.printed is not None):
        mark = Line2D([], [], marker="*", linestyle="", color=INK, markersize=9, fillstyle="none")
        entries.append((mark, evidence.printed.title(source)))


def _baseline(lines: Sequence[Row], evidence: Evidence) -> Row | None:
    return next(iter(of_head(lines, evidence.suite.table.baseline)), None)


def _chosen(lines: list[Row], evidence: Evidence, most: int) -> tuple[list[int], str]:
    """The rows of a plot, in the order of the suite, and a sentence if rows are left out. The baseline is kept."""
    measured = [index for index, line in enumerate(lines) if line.values(METRIC)]
    if len(measured) <= most:
        return measured, ""
    reference = _baseline(lines, evidence)
    ranked = sorted(
        measured, key=lambda index: (lines[index] is not reference, statistics.fmean(lines[index].values(METRIC)))
    )
    kept = "the baseline and " if reference is not None else ""
    return sorted(
        ranked[:most]
    ), f" Shown: {most} of {len(measured)} rows, {kept}those with the lowest test perplexity."
