"""The plot of tuning: validation perplexity against a key whose values are in an order. How sensitive a row is."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes

from harness.plan.loaded_suite import Suite
from harness.plan.specs import canonical
from harness.plan.tuning import epochs_text
from harness.report.evidence import Evidence
from harness.report.figures.style import Style, axes, legend, logarithmic, style
from harness.report.table_rows import Row

MOST = 12  # rows in a plot; of more rows, those with the lowest validation perplexity
CEILING = 10.0  # times the lowest perplexity of a plot: a trial above it would make the others a flat line


_PALE = " Pale: trials with another value of a key that has a list of values."
_CROSSES = f" Crosses at the top: trials that failed, or have more than {CEILING:g} times the lowest perplexity."
Place = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The tuning trials of a row that compare with the chosen one, in the order of a key's values.

    Args:
        curves: (value of the key, validation perplexity) of the trials that are ok, in a group for each value of the
            other keys that are in no order. The first group has the chosen trial.
        failed: the values of the others.
        best: the chosen trial's place.
        epochs: of these trials.
    """

    label: str
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
        choice, row = suite.tuning.choices[index], suite.tuning.rows[index]
        if key not in choice.point:
            continue
        compared = row.compared(choice)
        ppl = [(point, choice.valid_ppl[trial.id]) for point, trial in compared]
        curves: dict[str, list[Place]] = {_others(choice.point, ordered): []}  # the one with the chosen point is first
        for point, y in ppl:
            if y is not None:
                curves.setdefault(_others(point, ordered), []).append((point[key], y))
        found.append(
            Tried(
                label=line.head,
                curves=tuple(tuple(sorted(curve)) for curve in curves.values()),
                failed=tuple(sorted(point[key] for point, y in ppl if y is None)),
                best=(choice.point[key], choice.valid_ppl[choice.trial]),
                epochs=tuple(trial.train.epochs for _, trial in compared),
            )
        )
    return found


def draw(key: str, lines: list[Row], evidence: Evidence) -> tuple[Axes, str] | str:
    """Validation perplexity of every tuning trial against the value of a key; the chosen point is circled, and trials
    that failed are crosses at the top.
    """
    rows = tried(key, lines, evidence.suite)
    if not rows:
        return "no tuned row has this key"
    shown = sorted(sorted(range(len(rows)), key=lambda index: rows[index].best[1])[:MOST])
    ceiling = CEILING * min(row.best[1] for row in rows)
    tuning, name = evidence.suite.tuning, key.removeprefix("train.")
    joined = len(keys(evidence.suite)) == 1  # with a second key, a line would join points that differ in more
    on, entries, inside, above = axes(name, "validation perplexity"), [], [], []
    for index in shown:
        row = rows[index]
        limit = max(ceiling, row.best[1])
        inside += [place for place in row.places if place[1] <= limit]
        crosses = [*row.failed, *(x for x, y in row.places if y > limit)]
        entries.append((_curves(on, row, limit, style(index), joined=joined), row.label))
        if crosses:
            at_top = [0.98 - 0.03 * index] * len(crosses)
            on.plot(crosses, at_top, "x", color=style(index).colour, transform=on.get_xaxis_transform())
            above += crosses
    values, heights = [*(x for x, _ in inside), *above], [y for _, y in inside]
    if tuning.spec.space[key].uniform is None:
        logarithmic(on.xaxis, min(values), max(values))
    logarithmic(on.yaxis, min(heights), max(heights))
    legend(on, entries)
    budget = epochs_text(*(epochs for row in rows for epochs in row.epochs))
    return on, "".join(
        (
            f"Each point is one tuning trial of {budget}, seed {tuning.spec.seed}; the chosen one is circled.",
            _PALE if any(len(rows[index].curves) > 1 for index in shown) else "",
            _CROSSES if above else "",
            f" Shown: {MOST} of {len(rows)} rows, those with the lowest perplexity." if len(shown) < len(rows) else "",
        )
    )


def _curves(on: Axes, row: Tried, limit: float, how: Style, *, joined: bool) -> Artist:
    """The trials of a row below a limit, in a line for each group; that of the chosen point is not pale."""
    drawn = []
    for curve in row.curves:
        places = [place for place in curve if place[1] <= limit]
        line, alpha = how.line if joined else "", 0.3 if drawn else 1.0
        at, heights = [x for x, _ in places], [y for _, y in places]
        drawn += on.plot(at, heights, color=how.colour, marker=how.marker, linestyle=line, alpha=alpha)
    on.plot(*row.best, "o", color=how.colour, markersize=11, fillstyle="none")
    return drawn[0]


def _others(point: Mapping[str, Any], ordered: Container[str]) -> str:
    """The values of the keys of a point that are in no order."""
    return canonical({name: value for name, value in point.items() if name not in ordered})
