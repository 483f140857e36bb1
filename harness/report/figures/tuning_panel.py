"""The plot of tuning: validation perplexity against a value that was drawn from a range. How sensitive a row is."""

from dataclasses import dataclass

from matplotlib.axes import Axes

from harness.plan.loaded_suite import Candidate, Suite
from harness.report.evidence.gather import Evidence
from harness.report.evidence.table_rows import Row
from harness.report.figures.style import axes, legend, logarithmic, style

MOST = 12  # rows in a plot; of more rows, those with the lowest validation perplexity
CEILING = 10.0  # times the lowest perplexity of a plot: a trial above it would make the others a flat line


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The tuning trials of a row, in the order of a key's values.

    Args:
        places: (value of the key, validation perplexity) of the trials that are ok.
        failed: the values of the others.
        best: the chosen one of `places`.
        single: no other key differs between the trials, so that a line through them is a curve.
    """

    label: str
    places: tuple[tuple[float, float], ...]
    failed: tuple[float, ...]
    best: tuple[float, float]
    single: bool


def keys(suite: Suite) -> list[str]:
    """The keys of a tuned suite that have a plot: those that are drawn from a range."""
    return [] if suite.tuning is None else [key for key, axis in suite.tuning.spec.space.items() if axis.range]


def tried(key: str, lines: list[Row], suite: Suite) -> list[Tried]:
    """The tuning of the rows to which a key applies and for which a point is chosen."""
    found = []
    of_trial = {trial.id: row for row in range(len(suite.tuning.rows)) for trial in suite.tuning.of_table(row)}
    for line in lines:
        index = of_trial[line.trials[0].id]
        choice, candidates = suite.tuning.choices[index], suite.tuning.rows[index].candidates
        if key not in candidates[0].point:
            continue
        ppl = [(each.point[key], choice.valid_ppl[each.trial.id]) for each in candidates]  # values may be equal
        found.append(
            Tried(
                label=line.head,
                places=tuple(sorted((x, y) for x, y in ppl if y is not None)),
                failed=tuple(sorted(x for x, y in ppl if y is None)),
                best=(choice.point[key], choice.valid_ppl[choice.trial]),
                single=_only(key, candidates),
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
    spec, name = evidence.suite.tuning.spec, key.removeprefix("train.")
    on, entries, values, heights, crosses = axes(name, "validation perplexity"), [], [], [], ""
    for index in shown:
        row, how = rows[index], style(index)
        within = [place for place in row.places if place[1] <= max(ceiling, row.best[1])]
        x, y = zip(*within, strict=True)
        (line,) = on.plot(x, y, color=how.colour, marker=how.marker, linestyle=how.line if row.single else "")
        on.plot(*row.best, "o", color=how.colour, markersize=11, fillstyle="none")
        above = [*row.failed, *(place[0] for place in row.places if place not in within)]
        if above:
            at_top = [0.98 - 0.03 * index] * len(above)
            on.plot(above, at_top, "x", color=how.colour, transform=on.get_xaxis_transform())
            crosses = (
                f" Crosses at the top: trials that failed, or have more than {CEILING:g} times the lowest perplexity."
            )
        entries.append((line, row.label))
        values, heights = [*values, *x, *above], [*heights, *y]
    if spec.space[key].log_uniform is not None:
        logarithmic(on.xaxis, min(values), max(values))
    logarithmic(on.yaxis, min(heights), max(heights))
    legend(on, entries)
    left = "" if len(shown) == len(rows) else f" Shown: {MOST} of {len(rows)} rows, those with the lowest perplexity."
    return on, (
        f"Each point is one tuning trial of {spec.budget} under seed {spec.seed}; the chosen one is circled."
        f"{crosses}{left}"
    )


def _only(key: str, candidates: tuple[Candidate, ...]) -> bool:
    """Whether the points differ in this key only."""
    others = [{name: value for name, value in each.point.items() if name != key} for each in candidates]
    return all(each == others[0] for each in others)
