"""The plot of a ladder: the loss against the size, and the gain of each head at each size."""

import statistics
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from harness.ladder.curve import curve
from harness.ladder.facts import HeadOnLadder, Ladder, losses_of, of_findings
from harness.ladder.gains import fraction
from harness.report.evidence import Evidence
from harness.report.figures.drawn import LADDER
from harness.report.figures.looks import FAINT, INK, Look, looks_of
from harness.report.figures.plots import PlotKind
from harness.report.figures.style import Frame, axes, belongs, logarithmic, shown
from harness.report.findings import Findings
from harness.report.row_facts import RowFacts

WIDE, NARROW = 6.6, 5.0  # inches: as it is drawn, and below which one panel stands above the other
HEIGHT, STACKED = 2.9, 4.6  # inches
MOST = 10  # heads, the baseline among them
POINTS = 60  # of the baseline's curve
LINE = 8.5  # points between two labels
APART = 0.06  # of a doubling: between the intervals of two heads


def kinds(findings: Findings) -> list[PlotKind]:
    """The plot of a suite with a ladder, as a kind for its page; [] without one."""
    ladders = of_findings(findings)
    if not ladders:
        return []

    def draw(rows: list[RowFacts], evidence: Evidence, frame: Frame) -> tuple[Axes, str] | str:
        ladder = next((each for each in ladders if set(each.baseline) & set(rows)), None)
        return "no size of the ladder is here" if ladder is None else drawn(ladder, evidence, frame)

    return [PlotKind(LADDER, "Loss and gain by size", _family, draw, narrow=2.7)]


def _family(row: RowFacts, evidence: Evidence) -> tuple[str, ...] | None:
    if row.planned is None or row.planned.size is None:
        return None
    return row.corpus, row.planned.family[1]


def drawn(ladder: Ladder, evidence: Evidence, frame: Frame) -> tuple[Axes, str]:
    """Two panels of one figure, and a caption."""
    stacked = (frame.width or WIDE) < NARROW
    height = STACKED if stacked else HEIGHT
    losses = axes("parameters without embeddings", "test loss, nats per token", frame, (WIDE, height))
    figure = losses.figure
    if frame.width is not None:
        figure.set_figheight(height)
    grid = figure.add_gridspec(*((2, 1) if stacked else (1, 2)))
    losses.set_subplotspec(grid[0])
    gains = figure.add_subplot(grid[1])
    gains.set_xlabel(losses.get_xlabel())
    gains.set_ylabel(f"gain over {shown(ladder.reference, 24)}, %")
    heads, looks = _shown(ladder), looks_of(evidence)
    _baseline(losses, ladder, looks[ladder.baseline[0]])
    gains.axhline(0, color=INK, linewidth=0.8)
    ends = [(0.0, ladder.reference, looks[ladder.baseline[0]])]
    for place, head in enumerate(heads):
        first = next(row for row in head.rows if row is not None)
        look = looks[first]
        artists = _losses(losses, ladder, head.rows, look)
        aside = 2 ** (APART * (place - (len(heads) - 1) / 2))
        more, end = _gains(gains, ladder, head, look, aside)
        belongs(look.row, [*artists, *more])
        if end is not None:
            ends.append((end, head.name, look))
    _labels(gains, ends)
    for panel in (losses, gains):
        logarithmic(panel.xaxis, ladder.numbers)
        panel.set_xticks(ladder.numbers, [each.rpartition(" ")[2] for each in ladder.sizes])
        panel.minorticks_off()
        panel.tick_params(labelsize=7)
    number = sum(head.rows != ladder.baseline for head in ladder.heads)
    left = f" Shown: {len(heads)} of {number} heads." if len(heads) < number else ""
    caption = (
        f"Above zero a head has a lower perplexity than {ladder.reference}. Bars: 95 % t intervals over shared seeds; "
        f"dots: seeds; the grey line: the curve of {ladder.reference}, with its band over seeds.{left}"
    )
    return losses, caption


def _shown(ladder: Ladder) -> list[HeadOnLadder]:
    """The heads with a result, at most MOST with the baseline: those with the largest gains or losses."""
    others = [head for head in ladder.heads if head.rows != ladder.baseline]
    measured = []
    for head in others:
        if any(gain.difference is not None for gain in head.gains):
            measured.append(head)
    if len(measured) < MOST:
        return measured

    def size(head: HeadOnLadder) -> float:
        return max(abs(gain.difference.mean) for gain in head.gains if gain.difference is not None)

    kept = sorted(measured, key=size, reverse=True)[: MOST - 1]
    return [head for head in measured if head in kept]


def _baseline(on: Axes, ladder: Ladder, look: Look) -> None:
    found = curve(ladder.numbers, ladder.losses)
    xs = np.geomspace(ladder.numbers[0], ladder.numbers[-1], POINTS)
    line = [found.loss_at(min(x, ladder.numbers[-1])) for x in xs]
    on.plot(xs, [each.value for each in line], color=FAINT, linewidth=2)
    if all(each.low is not None for each in line):
        band = [each.low for each in line], [each.high for each in line]
        on.fill_between(xs, *band, color=FAINT, alpha=0.25, linewidth=0)
    belongs(look.row, _losses(on, ladder, ladder.baseline, look))


def _losses(on: Axes, ladder: Ladder, rows: Sequence[RowFacts | None], look: Look) -> list:
    """A line through the mean losses, and a dot for each seed."""
    places, means, artists = [], [], []
    for number, row in zip(ladder.numbers, rows, strict=True):
        values = [] if row is None else list(losses_of(row).values())
        if values:
            places.append(number)
            means.append(statistics.fmean(values))
            artists += on.plot([number] * len(values), values, ".", color=look.colour, markersize=2, alpha=0.6)
    style = {"linestyle": look.line, "marker": look.marker, "markersize": 4, "linewidth": 1.2}
    return [*on.plot(places, means, color=look.colour, **style), *artists]


def _gains(on: Axes, ladder: Ladder, head: HeadOnLadder, look: Look, aside: float) -> tuple[list, float | None]:
    """A line through the gains with their intervals; also where it ends."""
    places, values, artists = [], [], []
    for number, gain in zip(ladder.numbers, head.gains, strict=True):
        if gain.difference is None:
            continue
        found = gain.difference
        places.append(number * aside)
        values.append(100 * fraction(found.mean))
        if found.low is not None and found.high is not None:
            ends = 100 * fraction(found.low), 100 * fraction(found.high)
            artists.append(on.vlines(places[-1], *ends, color=look.colour, alpha=0.7, linewidth=1.2))
    style = {"linestyle": look.line, "marker": look.marker, "markersize": 4, "linewidth": 1.2}
    artists += on.plot(places, values, color=look.colour, **style)
    return artists, values[-1] if values else None


def _labels(on: Axes, ends: list[tuple[float, str, Look]]) -> None:
    """The name of each head at the end of its line, moved up or down so that no two overlap."""
    low, high = on.get_ylim()
    points = 72 * on.figure.get_figheight() * 0.75 / (high - low)  # of a unit of y, about
    ordered = sorted(ends, key=lambda each: each[0])
    places: list[float] = []
    for end, *_ in ordered:
        place = (end - low) * points
        places.append(place if not places else max(place, places[-1] + LINE))
    over = max(0.0, places[-1] - (high - low) * points)
    for (end, name, look), place in zip(ordered, places, strict=True):
        shift = place - over - (end - low) * points
        beside = {"xytext": (5, shift), "textcoords": ("offset points", "offset points"), "va": "center"}
        on.annotate(
            shown(name, 24), (1, end), xycoords=("axes fraction", "data"), color=look.colour, fontsize=7, **beside
        )
