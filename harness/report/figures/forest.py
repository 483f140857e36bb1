"""Draw a forest plot: which rows differ from the strongest control, by how much, how sure, at what
cost. A line for each row, in the order of the suite.
"""

import math
import statistics
import textwrap
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from harness.records.metrics import METRICS
from harness.report.columns import time_cell
from harness.report.content import COARSE, MARKS, NOT_CONVERGED_MARK, TIME_MARK
from harness.report.evidence import Evidence
from harness.report.figures.looks import FAINT, INK, VERDICTS, looks_of
from harness.report.figures.style import Frame, axes, belongs, shown
from harness.report.findings import Findings, percent
from harness.report.row_facts import RowFacts
from harness.report.statistics import CONFIDENCE
from harness.report.verdicts import Compared, Verdict, logarithms

WIDE, NARROW, PHONE = 6.6, 5.0, 2.7  # inches: as it is drawn, below which texts stand above intervals, and on a phone
WITH_PPL = 3.0  # inches: below it a narrow plot has no perplexities
LINE, STACKED, FURNITURE = 0.24, 0.3, 0.95  # inches: of a row, with a text above it; of the axis, label and headings
TOP, TEXT, BELOW = 0.6, 0.34, 0.4  # of a row: its upper end, the middle of a text above it, its lower end
FAR = 4.0  # a row that is farther from 0 than so many times the median row is drawn at the edge
LARGE = 1e4  # percent; more is written as a power of ten
AXES = 0.22  # of the width: the least that is left to the axes
LEAST_NAME, MOST_WORD = 12, {True: 20, False: 30}  # characters: of a row's name, and of its verdict or state if short
HEADINGS = ("", "test ppl", "ms/batch")
LOOKS = {  # word of a verdict -> colour, marker and fill: apart in grey print, too
    word: (colour, marker, "full")
    for word, colour, marker in zip(("better", "worse", "equivalent"), VERDICTS, "osD", strict=True)
}
LOOKS["control"] = (INK, "x", "full")
OTHER, UNDECIDED = (INK, "o", "none"), "not decided"
LETTER, TEXT_LETTER, GAP = 0.6, 0.52, 1.3  # of the size of a text: a letter, one of a long text, between columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The change of a row's perplexity against the strongest control, in percent.

    Args:
        low, high: the ends of its interval; both are the mean if there is none.
        seeds: of each shared seed; () for Welch's test, which has no pairs.
        blocks: the interval is over blocks of text, of a single seed.
    """

    mean: float
    low: float
    high: float
    seeds: tuple[float, ...]
    blocks: bool = False


def draw(
    findings: Findings, rows: list[RowFacts], evidence: Evidence, frame: Frame | None = None
) -> tuple[Axes, str] | str:
    """The plot of some rows of one corpus and backbone. The line at 0 is the strongest control."""
    compared = findings.compared
    effects = {row: effect(compared[row]) for row in rows if row in compared}
    if not effects:
        return "no row is compared with a control"
    width = (frame or Frame()).width or WIDE
    margin, stacked, looks = evidence.suite.table.margin, width < NARROW, looks_of(evidence)
    size = 6.5 if stacked else 7.5  # points
    height = FURNITURE + (STACKED if stacked else LINE) * len(rows)
    on = axes("change of test perplexity, % (lower is better)", "", frame, (WIDE, height))
    on.set_xlim(*_ends(list(effects.values()), 100 * margin))
    on.set_ylim(len(rows) - 1 + BELOW, -TOP)
    spans = [(-TOP, len(rows) - 1 + BELOW)]
    if stacked:  # nothing crosses the texts
        spans = [(place - TEXT / 2, place + BELOW) for place in range(len(rows))]
    for top, bottom in spans:
        band = [percent(-math.log1p(margin))] * 2, [100 * margin] * 2
        within = f"within {100 * margin:g} %"
        on.fill_betweenx([top, bottom], *band, color=FAINT, alpha=0.2, linewidth=0, label=within)
        on.vlines(0, top, bottom, color=INK, linewidth=0.8)
    words = [str(compared[row].judged) for row in effects]
    short = stacked or max(map(len, words)) > MOST_WORD[False]
    texts = [_texts(row, findings, short=short) for row in rows]
    names = [row.head if row.compat is None else f"{row.head} (compat)" for row in rows]
    written = _above(on, names, texts, size) if stacked else _beside(on, names, texts, size)
    for place, row in enumerate(rows):
        drawn = []
        if row in effects:
            drawn = _interval(on, place, effects[row], compared[row].judged.word, size)
        belongs(looks[row].row, [*drawn, *written[place]])
    if any(each.low < each.high for each in effects.values()):  # in the legend, in no verdict's colour
        on.plot([], [], color=INK, linewidth=1.3, label=f"{100 * CONFIDENCE:.0f} % interval")
    on.xaxis.set_major_locator(MaxNLocator(5 if stacked else 7, steps=[1, 2, 5, 10]))
    on.tick_params(axis="x", labelsize=size)
    on.xaxis.label.set_size(size + 1)
    on.tick_params(axis="y", length=0)
    on.grid(visible=False, axis="both" if stacked else "y")
    on.spines["left"].set_visible(False)
    return on, _caption(list(effects.values()), " ".join(text for each in texts for text in each).split(), margin)


def effect(found: Compared) -> Effect:
    """The change in percent, of a comparison in nats."""
    mean, low, high = found.difference.mean, found.difference.low, found.difference.high
    if found.interval is not None:  # over blocks of text, for a single seed
        low, high = found.interval.low, found.interval.high
    pairs = zip(logarithms(found.row, found.seeds), logarithms(found.control, found.seeds), strict=True)
    return Effect(
        mean=percent(mean),
        low=percent(mean if low is None else low),
        high=percent(mean if high is None else high),
        seeds=() if found.test == "welch" else tuple(percent(ours - theirs) for ours, theirs in pairs),
        blocks=found.interval is not None,
    )


def _ends(effects: list[Effect], margin: float) -> tuple[float, float]:
    """The ends of the axis, in percent: those of the intervals and seeds of all rows that are not far off."""
    far = FAR * max(margin, statistics.median(abs(each.mean) for each in effects))
    near = [-2 * margin, 2 * margin]
    for each in effects:
        if abs(each.mean) <= far:
            near += [each.low, each.mean, each.high, *each.seeds]
    low, high = max(-2 * far, min(near)), min(2 * far, max(near))
    room = 0.03 * (high - low)
    return low - room, high + room


def _interval(on: Axes, place: int, found: Effect, verdict: str, size: float) -> list[Artist]:
    """Draw the effect of a row; returns what is drawn. Beyond the edge it is a number with its interval."""
    (colour, marker, fill), (low, high) = LOOKS.get(verdict, OTHER), on.get_xlim()
    ends = [max(found.low, low), min(found.high, high)]
    drawn = on.plot(ends, [place, place], color=colour, linewidth=1.3, linestyle=":" if found.blocks else "-")
    dots = {"color": FAINT, "markersize": 2.5, "label": "a seed" if found.seeds else ""}
    drawn += on.plot(found.seeds, [place + 0.22] * len(found.seeds), ".", **dots)
    mean = {"color": colour, "fillstyle": fill, "markersize": size / 1.5}
    if low <= found.mean <= high:
        label = verdict if verdict in LOOKS else UNDECIDED
        return drawn + on.plot([found.mean], [place], marker, label=label, **mean)
    above = found.mean > 0
    end, arrow, align = (high, ">", "right") if above else (low, "<", "left")
    drawn += on.plot([end], [place], arrow, clip_on=False, **mean)
    at = {"xytext": (-6 if above else 6, 0), "textcoords": "offset points", "ha": align, "va": "center"}
    at["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # over the line of an interval that is in sight
    percents = f"{found.mean:+.0f} %" if abs(found.mean) < LARGE else f"{found.mean:+.0e} %"
    if found.high > found.low and abs(found.high) < LARGE:
        percents += f" [{found.low:.0f}, {found.high:.0f}]"
    return [*drawn, on.annotate(percents, (end, place), fontsize=size, color=colour, **at)]


def _above(on: Axes, names: list[str], texts: list[tuple[str, str, str]], size: float) -> list[list[Artist]]:
    """The name and the texts of each row above its interval, for a phone or a column of a paper."""
    on.set_yticks([])
    width, made = on.figure.get_figwidth(), []
    for place, (name, (word, ppl, time)) in enumerate(zip(names, texts, strict=True)):
        rest = f": {word}; ppl {ppl}; {time} ms/batch" if width >= WITH_PPL else f": {word}; {time} ms/batch"
        room = int(72 * width / (TEXT_LETTER * size)) - len(rest)
        about = {"transform": on.get_yaxis_transform(), "va": "center", "fontsize": size, "in_layout": False}
        made.append([on.text(0, place - TEXT, _elided(name, room) + rest, **about)])
    return made


def _beside(on: Axes, names: list[str], texts: list[tuple[str, str, str]], size: float) -> list[list[Artist]]:
    """The names to the left of the rows, and columns of texts to their right, with headings."""
    made: list[list[Artist]] = [[] for _ in names]
    about = {"textcoords": "offset points", "fontsize": size, "annotation_clip": False}
    end = 0.0  # of a column, in points to the right of the axes
    for column, heading in enumerate(HEADINGS):
        start = end + GAP * size
        end = start + LETTER * size * max(len(heading), *(len(each[column]) for each in texts))
        at, align = (start, "left") if column == 0 else (end, "right")
        on.annotate(heading, (1, 1), (at, 4), xycoords="axes fraction", ha=align, fontweight="bold", **about)
        for place, each in enumerate(texts):
            about_row = {"xycoords": on.get_yaxis_transform(), "ha": align, "va": "center", **about}
            colour = INK if column else _colour(each[0])
            made[place].append(on.annotate(each[column], (1, place), (at, 0), color=colour, **about_row))
    room = max(LEAST_NAME, int((72 * on.figure.get_figwidth() * (1 - AXES) - end) / (TEXT_LETTER * size)))
    fitted = []
    for name in names:
        lines = textwrap.wrap(_elided(name, 2 * room - LEAST_NAME), room, max_lines=2, placeholder="…")
        fitted.append("\n".join(lines))
    on.set_yticks(range(len(names)), fitted, fontsize=size)
    for place, label in enumerate(on.get_yticklabels()):
        made[place].append(label)
    return made


def _elided(name: str, room: int) -> str:
    """A name without its middle where it is too long: parameters that differ are often the last ones."""
    line, most = shown(name, 10 * LEAST_NAME), max(LEAST_NAME, room)
    return line if len(line) <= most else f"{line[: most // 3]}…{line[most // 3 + 1 - most :]}"


def _colour(word: str) -> str:
    for known, (colour, _, _) in LOOKS.items():
        if word.startswith(known):
            return colour
    return INK


def _texts(row: RowFacts, findings: Findings, *, short: bool) -> tuple[str, str, str]:
    """The verdict or state of a row, its perplexity and its time."""
    if row in findings.compared:
        judged = findings.compared[row].judged
        word = _in_short(judged) if short else str(judged)
    else:
        word = findings.role(row) or ("not compared" if row.ok_seeds else row.undone)
    mean = statistics.fmean(row.values("test_ppl")) if row.ok_seeds else None
    ppl = "-" if mean is None else f"{mean:.2f}" if mean < LARGE else f"{mean:.1e}"
    time = time_cell(row, METRICS["train_ms_per_batch"], findings).without_spread(1).text
    return shown(word, MOST_WORD[short]), ppl, time


def _in_short(judged: Verdict) -> str:
    """'worse ↓': a verdict, with the mark of a row that is not converged or collapsed."""
    limited = any(limit != COARSE for limit in judged.limits)
    return f"{judged.word} {NOT_CONVERGED_MARK}" if limited else judged.word


def _caption(found: list[Effect], words: list[str], margin: float) -> str:
    said = f"Change of test perplexity over the shared seeds, with its {100 * CONFIDENCE:.0f} % interval"
    if any(len(each.seeds) > 1 for each in found):
        said += "; dots: seeds"
    if any(each.blocks for each in found):
        said += "; dotted: an interval over blocks of text, of one seed"
    said += f"; band: the smallest difference of interest, {100 * margin:g} %"
    said += ". Verdicts are corrected for all comparisons and allow for tuning; intervals are of the seeds alone."
    for mark in (NOT_CONVERGED_MARK, TIME_MARK):
        if mark in words:
            said += f" {mark} {MARKS[mark]}."
    return said
