"""The table of a ladder: a line for each head, with its gain at each size, its trend and what it is worth."""

import math
from itertools import pairwise

from harness.ladder.drawn_means import Estimate, mean
from harness.ladder.facts import AXES, AxisName, HeadOnLadder, Ladder, of_findings
from harness.ladder.gains import Gain, Trend, fraction
from harness.ladder.words import number_text, trend_in_brief, worth_text
from harness.ladder.worth import Share, Worth
from harness.plan.specs import as_number
from harness.report.columns import CellOf, quantities
from harness.report.content import NOTHING, Cell, Column, Line, Note
from harness.report.findings import Findings

EMPTY = Cell(text=NOTHING)
WORTH_NAMES = {"N": "worth, parameters", "C": "worth, compute", "T": "speed-up"}


def lay_out(findings: Findings) -> tuple[list[Column], list[Line], list[str]] | None:
    """Return columns, lines and notes; None of a suite without `ladder`, and before there is a result at every size."""
    ladders = of_findings(findings)
    if not ladders:
        return None
    known = {axis for each in ladders for head in each.heads for axis in head.worth}
    axes = [axis for axis in AXES if axis in known]
    (ppl,) = [each for each in quantities(findings) if each.column.key == "test_ppl"]
    several, lines = len(ladders) > 1, []
    for ladder in ladders:
        name = f"{ladder.corpus} {ladder.sizes[0]} to {ladder.sizes[-1]}"
        for head in ladder.heads:
            cells = [Cell(text=name)] if several else []
            cells += [Cell(text=head.name), *_cells(ladder, head, ppl.cell, axes)]
            trials = tuple(trial for row in head.rows if row is not None for trial in row.ids)
            lines.append(Line(cells=tuple(cells), trials=trials))
    sizes = ladders[0].sizes
    if several:
        sizes = tuple(f"size {number}" for number, _ in enumerate(sizes, 1))
    return _columns(sizes, axes, several=several), lines, _notes(findings, ladders, axes)


def _columns(sizes: tuple[str, ...], axes: list[AxisName], *, several: bool) -> list[Column]:
    found = [Column(name="ladder", key="label")] if several else []
    found.append(Column(name="head", key="label"))
    about = {"numeric": True, "topics": ("comparison",)}
    found += [Column(name="test ppl", group=size, numeric=True) for size in sizes]
    found += [Column(name="gain", group=size, key="gain", **about) for size in sizes]
    found.append(Column(name="trend", key="trend", **about))
    found += [Column(name=WORTH_NAMES[axis], key="worth", **about) for axis in axes]
    found.append(Column(name="share of the last step", key="share", **about))
    found.append(Column(name="verdict", key="verdict", topics=("comparison",)))
    for axis in axes:
        found += [Column(name=WORTH_NAMES[axis], group=size, **about) for size in sizes[:-1]]
    found += [Column(name="share of the step", group=size, **about) for size in sizes[:-2]]
    return found


def _cells(ladder: Ladder, head: HeadOnLadder, ppl: CellOf, axes: list[AxisName]) -> list[Cell]:
    sizes = len(ladder.sizes)
    found = [EMPTY if row is None else ppl(row) for row in head.rows]
    for row, control, gain in zip(head.rows, ladder.baseline, head.gains, strict=True):
        found.append(EMPTY if row is control else _gain(gain))
    if head.rows == ladder.baseline:
        rest = [EMPTY] * (2 + len(axes) * sizes + sizes - 1)
        rest[len(axes) + 2] = Cell(text=verdict(head))
        return [*found, *rest]
    worth = {axis: head.worth.get(axis, (None,) * sizes) for axis in axes}
    found += [_trend(head.trend), *(_worth(each[-1]) for each in worth.values())]
    found += [_share(head.shares[-2]), Cell(text=verdict(head))]
    for each in worth.values():
        found += map(_worth, each[:-1])
    return [*found, *map(_share, head.shares[:-2])]


def verdict(head: HeadOnLadder) -> str:
    """'better at 3 of 3, shrinks', 'worse at 3 of 3, catches up', 'undecided: seeds missing at lstm 80k', 'control'."""
    if head.is_control:
        return "control"
    if head.obstacle:
        return f"undecided: {head.obstacle}"
    words = ("better", "worse", "equivalent")
    counts = [f"{word} at {head.number(word)} of {len(head.gains)}" for word in words if head.number(word)]
    if not counts:
        return "undecided"
    changes = head.number("better") or head.number("worse")
    if changes and head.trend is not None:
        counts.append(trend_in_brief(head))
    return ", ".join([*counts, *head.limits])


def _gain(gain: Gain) -> Cell:
    if gain.difference is None:
        return EMPTY
    found = gain.difference
    return _percent(Estimate(value=found.mean, low=found.low, high=found.high))


def _trend(trend: Trend | None) -> Cell:
    if trend is None:
        return EMPTY
    return _percent(Estimate(value=trend.slope, low=trend.low, high=trend.high), sign=True)


def _percent(nats: Estimate, *, sign: bool = False) -> Cell:
    """A gain in per cent of perplexity, from nats."""
    ends = [None if end is None else 100 * fraction(end) for end in (nats.low, nats.high)]
    return _with_ends(100 * fraction(nats.value), *ends, sign=sign)


def _share(share: Share | None) -> Cell:
    if share is None:
        return EMPTY
    found = share.perplexity
    ends = [None if end is None else 100 * end for end in (found.low, found.high)]
    return _with_ends(100 * found.value, *ends)


def _with_ends(value: float, low: float | None, high: float | None, *, sign: bool = False) -> Cell:
    text = f"{number_text(value, sign=sign)} %"
    if low is None or high is None:
        return Cell(text=text, value=value)
    shown = [number_text(end, sign=sign) for end in (low, high)]
    return Cell(text=f"{text} [{', '.join(shown)}]", value=value, interval=(low, high))


def _worth(worth: Worth | None) -> Cell:
    """A worth beyond the sizes is a text and no number: 0 below them, infinite above."""
    if worth is None:
        return EMPTY
    best = worth.best
    value = _known(best.value)
    low, high = _known(best.low), _known(best.high)
    return Cell(text=worth_text(worth), value=value, interval=None if None in (low, high) else (low, high))


def _known(worth: float | None) -> float | None:
    return worth if worth and math.isfinite(worth) else None


def _notes(findings: Findings, ladders: list[Ladder], axes: list[AxisName]) -> list[str]:
    found = [Note(each, level="warning") for each in _untried(findings, ladders)]
    for ladder in ladders:
        sizes = ", ".join(f"{name} N = {number:,}" for name, number in zip(ladder.sizes, ladder.numbers, strict=True))
        strongest = ", ".join(row.head for row in ladder.baseline)
        text = f"Sizes: {sizes}; N: parameters without embeddings and head. Strongest control of each: {strongest}."
        found.append(Note(text, level="reading"))
    texts = [
        "Gains: how much lower the perplexity is than that of the strongest control of the size, over shared seeds, "
        "with 95 % t intervals; words are corrected for the numbers of sizes and heads. The trend is the slope on "
        "log2 N.",
        "Worth: the size at which the controls have the head's loss, divided by the head's own; above 1 the head is "
        "worth what it takes. At the largest size the curve is read backwards. Intervals are over seeds, not over the "
        "choice of learning rates (harness docs ladder).",
    ]
    found += [Note(each, level="warning") for each in map(_without_worth, ladders) if each]
    if "T" not in axes:
        texts.append("Times are not compared: not all rows are timed in an exclusive pass.")
    return [*found, *(Note(text, level="reading") for text in texts)]


def _without_worth(ladder: Ladder) -> str:
    """A sentence where the controls are not better from each size to the next, by the geometric mean over seeds; else
    ''.
    """
    means = [math.exp(mean(losses)) for losses in ladder.losses]
    for (before, after), size in zip(pairwise(means), ladder.sizes[1:], strict=True):
        if after >= before:
            what = f"the perplexity of the strongest control does not fall up to {size} ({before:.2f} to {after:.2f})"
            return f"No worth is known: {what}; tune the learning rate of each size, or train for longer."
    return ""


def _untried(findings: Findings, ladders: list[Ladder]) -> list[str]:
    """A sentence on learning rates that follow from other sizes and lie outside of those that were tried."""
    tune = findings.evidence.suite.tune
    if tune is None:
        return []
    axis = tune.space.get("train.lr")
    tried = [] if axis is None else [as_number(each) for each in axis.range or axis.listed]
    far = []
    for ladder in ladders:
        for head in ladder.heads:
            for row in head.rows:
                rate = None if row is None or row.planned.follows is None else row.spec.train.lr
                if rate is not None and tried and not min(tried) <= rate <= max(tried):
                    far.append(f"{head.name} at {row.backbone}: {rate:g}")
    return [f"Learning rates outside of those that were tried: {'; '.join(far)}."] if far else []
