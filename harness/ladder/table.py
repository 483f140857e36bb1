"""The table of a ladder: a line for each head, with its gain at each size, its trend and what it is worth."""

from harness.ladder.drawn_means import Estimate
from harness.ladder.facts import AXES, HeadOnLadder, Ladder, of_findings
from harness.ladder.gains import Gain, Trend, fraction
from harness.ladder.words import number_text, worth_text
from harness.ladder.worth import Share, Worth
from harness.report.content import NOTHING, Cell, Column, Line, Note
from harness.report.findings import Findings
from harness.report.row_facts import RowFacts

EMPTY = Cell(text=NOTHING)
WORTH_NAMES = {"N": "worth, parameters", "C": "worth, compute", "T": "speed-up"}


def lay_out(findings: Findings) -> tuple[list[Column], list[Line], list[str]] | None:
    """Return columns, lines and notes; None of a suite without `ladder`, and before there is a result at every size."""
    ladders = of_findings(findings)
    if not ladders:
        return None
    several, columns, lines = len(ladders) > 1, [], []
    axes = [axis for axis in AXES if any(axis in head.worth for each in ladders for head in each.heads)]
    for ladder in ladders:
        columns = _columns(ladder, axes, several=several)
        for name, rows in ((ladder.reference, ladder.baseline), *((head.name, head.rows) for head in ladder.heads)):
            head = next((each for each in ladder.heads if each.name == name), None)
            cells = [Cell(text=f"{ladder.corpus} {ladder.sizes[0]}")] if several else []
            cells += [Cell(text=name), *_cells(ladder, head, rows, axes)]
            trials = tuple(trial.id for row in rows if row is not None for trial in row.trials)
            lines.append(Line(cells=tuple(cells), trials=trials))
    return columns, lines, _notes(ladders[0], axes)


def _columns(ladder: Ladder, axes: list[str], *, several: bool) -> list[Column]:
    found = [Column(name="ladder", key="label")] if several else []
    found.append(Column(name="head", key="label"))
    about = {"numeric": True, "topics": ("comparison",)}
    found += [Column(name="test ppl", group=size, numeric=True) for size in ladder.sizes]
    found += [Column(name="gain", group=size, key="gain", **about) for size in ladder.sizes]
    found.append(Column(name="trend", key="trend", **about))
    found += [Column(name=WORTH_NAMES[axis], key="worth", **about) for axis in axes]
    found.append(Column(name="share of the last step", key="share", **about))
    found.append(Column(name="verdict", key="verdict", topics=("comparison",)))
    for axis in axes:
        found += [Column(name=WORTH_NAMES[axis], group=size, **about) for size in ladder.sizes[:-1]]
    found += [Column(name="share of the step", group=size, **about) for size in ladder.sizes[:-2]]
    return found


def _cells(ladder: Ladder, head: HeadOnLadder | None, rows: tuple[RowFacts | None, ...], axes: list[str]) -> list[Cell]:
    found = [EMPTY if row is None else Cell.mean(row.values("test_ppl"), 2) for row in rows]
    sizes = len(ladder.sizes)
    if head is None:
        blank = sizes + 3 + len(axes) * sizes + sizes - 2
        cells = [*found, *[EMPTY] * blank]
        cells[2 * sizes + len(axes) + 2] = Cell(text="baseline")
        return cells
    found += map(_gain, head.gains)
    found.append(_trend(head.trend))
    worth = {axis: head.worth.get(axis, (None,) * sizes) for axis in axes}
    found += [_worth(each[-1]) for each in worth.values()]
    found.append(_share(head.shares[-2]))
    found.append(Cell(text=verdict(ladder, head)))
    for each in worth.values():
        found += map(_worth, each[:-1])
    return [*found, *map(_share, head.shares[:-2])]


def verdict(ladder: Ladder, head: HeadOnLadder) -> str:
    """'better at 3 of 3, shrinks', 'no difference', 'undecided: seeds missing at lstm 80k'."""
    if head.obstacle:
        return f"undecided: {head.obstacle}"
    counts = [f"{word} at {number} of {len(head.gains)}" for word, number in _counts(head) if number]
    if not counts:
        return "no difference"
    word = "undecided" if head.trend is None else head.trend.word
    said = ", ".join(counts) + (", trend undecided" if word == "undecided" else f", {word}")
    return f"control: {said}" if head.name in ladder.controls else said


def _counts(head: HeadOnLadder) -> tuple[tuple[str, int], ...]:
    return (("better", head.better), ("worse", head.worse))


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
    if worth is None:
        return EMPTY
    best = worth.best
    interval = None if best.low is None or best.high is None else (best.low, best.high)
    return Cell(text=worth_text(worth), value=best.value, interval=interval)


def _notes(ladder: Ladder, axes: list[str]) -> list[str]:
    sizes = ", ".join(f"{name} N = {number:,}" for name, number in zip(ladder.sizes, ladder.numbers, strict=True))
    found = [
        f"Sizes: {sizes}; N: parameters without embeddings and head.",
        f"Gains: how much lower the perplexity is than that of {ladder.reference}, over shared seeds, with 95 % "
        "t intervals; the trend is the slope on log2 N.",
        "Worth: the size at which the baseline has the head's loss, divided by the head's own; above 1 the head is "
        "worth what it takes. Intervals are over seeds, not over the choice of learning rates (harness docs ladder).",
    ]
    if "T" not in axes:
        found.append("Times are not compared: not all rows are timed in an exclusive pass.")
    return [Note(text, level="reading") for text in found]
