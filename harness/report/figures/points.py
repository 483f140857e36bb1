"""The numbers that the plots of a suite show."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.plan.specs import ComponentSpec, canonical
from harness.records.sidecars import TokenScores
from harness.report.diff import mean_scores
from harness.report.evidence import Evidence
from harness.report.printed_numbers import PrintedCell, PrintedNumbers
from harness.report.table_rows import Row
from harness.report.tokens import Band, by_frequency, by_position

BandsOf = Callable[[TokenScores, TokenScores], tuple[Band, ...]]
METRIC = "test_ppl"  # by the suite's own counting rule, which is that of the paper
STEEP = 2.0  # a learning curve above so many times its lowest value is in its first, steep part


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
    """Points that belong together, in the order of x. `seeds`: each point has so many seeds or more."""

    label: str
    points: tuple[Point, ...]
    seeds: int


def by_parameter(name: str, lines: Sequence[Row], printed: PrintedNumbers) -> list[Series]:
    """Test perplexity against an integer parameter of heads: a series for each head with fixed other parameters.

    Bars reach from the lowest seed to the highest.
    """
    entries: dict[str, dict[int, Row]] = {}
    heads: dict[str, ComponentSpec] = {}
    for line in lines:
        head, params = line.trials[0].head, line.head_params
        value = params.get(name)
        if not line.values(METRIC) or isinstance(value, bool) or not isinstance(value, int):
            continue
        tuned = {key.removeprefix("head.") for key in line.tuned if key.startswith("head.")}
        others = {other: params[other] for other in params if other not in tuned | {name}}
        key = f"{head.name} {canonical(others)}"
        entries.setdefault(key, {})[value] = line
        heads[key] = ComponentSpec(name=head.name, params={k: v for k, v in head.params.items() if k in others})
    names = [head.name for head in heads.values()]
    return [
        Series(
            label=heads[key].name if names.count(heads[key].name) == 1 else str(heads[key]),
            points=tuple(_over_seeds(line, x, printed) for x, line in sorted(found.items())),
            seeds=min(len(line.ok_seeds) for line in found.values()),
        )
        for key, found in entries.items()
    ]


def baseline(line: Row, printed: PrintedNumbers) -> Point | None:
    """A row's mean test perplexity with its range over seeds, without x; None without a finished trial."""
    return _over_seeds(line, math.nan, printed) if line.values(METRIC) else None


def curve(line: Row, printed: PrintedNumbers) -> Series | None:
    """Validation perplexity by epoch, for the epochs that all ok trials have, with bands from the lowest seed to the
    highest, and printed values; None without a curve.
    """
    curves = [line.records[seed].curve for seed in line.ok_seeds]
    theirs = printed.curve(line.trials[0], line.params, "valid_ppl")
    points = [
        Point(
            x=at[0].epoch,
            y=statistics.fmean(point.valid_ppl for point in at),
            low=min(point.valid_ppl for point in at),
            high=max(point.valid_ppl for point in at),
            **_comparable(theirs.get(at[0].epoch), line),
        )
        for at in zip(*curves, strict=False)  # to the shortest
    ]
    return Series(label=line.head, points=tuple(points), seeds=len(curves)) if points else None


def printed_ends(lines: Sequence[Row], printed: PrintedNumbers) -> dict[float, str]:
    """Validation perplexities that are printed for the end of training and counted as ours, and their sources."""
    cells = [_comparable(printed.find(line.trials[0], line.params, "valid_ppl"), line) for line in lines]
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


def at_cost(line: Row, x: float | None, printed: PrintedNumbers) -> Series | None:
    """Test perplexity against a cost, with a bar from the lowest seed to the highest; None without both."""
    values = line.values(METRIC)
    if not values or x is None:
        return None
    return Series(label=line.head, points=(_over_seeds(line, x, printed),), seeds=len(values))


def front(points: Sequence[Point]) -> list[Point]:
    """The Pareto front: the points for which no other is lower in both x and y, in the order of x."""
    best, found = math.inf, []
    for point in sorted(points, key=lambda point: (point.x, point.y)):
        if point.y < best:
            best = point.y
            found.append(point)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BandOverSeeds:
    """A band of tokens: their number, the mean difference in nats, and those of the lowest and the highest seed."""

    label: str
    tokens: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """A row's nats per token less those of the baseline, by bands of tokens: below 0 the row is better.

    Args:
        row: its index among the given rows.
        seeds: the number of shared seeds, over which the nats of each token are averaged.
    """

    row: int
    seeds: int
    by_frequency: tuple[BandOverSeeds, ...]
    by_position: tuple[BandOverSeeds, ...]


def gains(lines: Sequence[Row], chosen: Sequence[int], reference: Row, evidence: Evidence) -> list[Gain]:
    """The gains of the chosen rows that share a seed with the reference for which both trials have token scores.

    Raises: RecordError when the scores are of two test splits.
    """
    found = []
    for index in chosen:
        pairs = []
        for seed in lines[index].ok_seeds:
            if seed in reference.ok_seeds:
                of_both = [evidence.token_scores(line.records[seed].id) for line in (reference, lines[index])]
                pairs += [of_both] if None not in of_both else []
        if pairs:
            frequency, position = (_over_pairs(bands_of, pairs) for bands_of in (by_frequency, by_position))
            found.append(Gain(row=index, seeds=len(pairs), by_frequency=frequency, by_position=position))
    return found


def _over_pairs(bands_of: BandsOf, pairs: Sequence[Sequence[TokenScores]]) -> tuple[BandOverSeeds, ...]:
    """The bands of the scores averaged over seeds, with the range over seeds."""
    each = [bands_of(*pair) for pair in pairs]
    found = []
    for band in bands_of(*(mean_scores(kept) for kept in zip(*pairs, strict=True))):
        seeds = [one.mean for bands in each for one in bands if one.label == band.label]
        found.append(
            BandOverSeeds(label=band.label, tokens=band.tokens, mean=band.mean, low=min(seeds), high=max(seeds))
        )
    return tuple(found)


def _over_seeds(line: Row, x: float, printed: PrintedNumbers) -> Point:
    values = line.values(METRIC)
    theirs = _comparable(printed.find(line.trials[0], line.params, METRIC), line)
    return Point(x=x, y=statistics.fmean(values), low=min(values), high=max(values), **theirs)


def _comparable(cell: PrintedCell | None, line: Row) -> dict[str, Any]:
    """`printed` and `source` of a point: a cell's number and source, if it was counted as ours."""
    if cell is None or cell.number is None or (cell.counting and cell.counting != line.boundary):
        return {}
    return {"printed": cell.number, "source": cell.source}
