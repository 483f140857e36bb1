"""Draw a forest plot: which rows differ from the strongest control, by how much, how sure, at what
cost. A line for each row, in the order of the suite.
"""

import math
import statistics
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from harness.report.content import MARKS, NOT_CONVERGED_MARK, TIME_MARK
from harness.report.evidence import Evidence
from harness.report.figures.looks import FAINT, INK, VERDICTS, Look, looks_of
from harness.report.figures.style import Frame, axes, belongs, shown
from harness.report.findings import Findings, percent
from harness.report.statistics import CONFIDENCE
from harness.report.table_rows import Row, Time, ratio, time_mark, time_of
from harness.report.verdicts import LIMITS, Compared, Verdict, logarithms

WIDE, NARROW, PHONE = 6.6, 5.0, 2.7  # inches: as it is drawn, below which texts stand above intervals, and on a phone
WITH_PPL = 3.0  # inches: below it a narrow plot has no perplexities
LINE, STACKED, FURNITURE = 0.24, 0.3, 0.95  # inches: of a row, with texts above it; of the axis, label and headings
ABOVE, BELOW = 0.34, 0.4  # of a row: from its interval to the texts above it, and to its lower end
FAR = 4.0  # a row that is farther from 0 than so many times the median row is drawn at the edge
LARGE = 1e4  # percent; more is written as a power of ten
AXES = 0.22  # of the width: the least that is left to the axes
LEAST_NAME, MOST_WORD = 12, {True: 14, False: 30}  # characters: of a row's name, and of its verdict or state if short
LOOKS = {  # word of a verdict -> colour, marker and fill: apart in grey print, too
    word: (colour, marker, "full")
    for word, colour, marker in zip(("better", "worse", "equivalent"), VERDICTS, "osD", strict=True)
}
LOOKS["control"] = (INK, "x", "full")
OTHER = (INK, "o", "none")
LETTER, NAME_LETTER, GAP = 0.6, 0.55, 1.3  # of the size of a text: a letter, one of a name, between columns


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
    findings: Findings, lines: list[Row], evidence: Evidence, frame: Frame | None = None
) -> tuple[Axes, str] | str:
    """The plot of some rows of one corpus and backbone. The line at 0 is the strongest control."""
    compared = findings.compared
    effects = {line: effect(compared[line]) for line in lines if line in compared}
    if not effects:
        return "no row is compared with a control"
    width = (frame or Frame()).width or WIDE
    table, stacked, looks = evidence.suite.table, width < NARROW, looks_of(evidence)
    size = 6.5 if stacked else 7.5  # points
    on = axes(
        "change of test perplexity, % (lower is better)",
        "",
        frame,
        (WIDE, FURNITURE + (STACKED if stacked else LINE) * len(lines)),
    )
    low, high = _ends(list(effects.values()), 100 * table.margin)
    on.set_xlim(low, high)
    on.set_ylim(len(lines) - 1 + BELOW, -0.6)
    for bottom, top in _free(on, len(lines)) if stacked else [(0, 1)]:
        on.axvspan(
            percent(-math.log1p(table.margin)), 100 * table.margin, bottom, top, color=FAINT, alpha=0.2, linewidth=0
        )
        on.axvline(0, bottom, top, color=INK, linewidth=0.8)
    for place, line in enumerate(lines):
        if line in effects:
            drawn = _row(on, place, effects[line], compared[line].judged.word, size)
            belongs(looks[line], "effect", *drawn)
    words = [str(compared[line].judged) for line in lines if line in compared]
    short = stacked or max(map(len, words)) > MOST_WORD[False]
    texts = [_texts(line, findings, short=short) for line in lines]
    names = [line.head if line.compat is None else f"{line.head} (compat)" for line in lines]
    write = _above if stacked else _beside
    write(on, names, texts, size, [looks[line] for line in lines])
    on.xaxis.set_major_locator(MaxNLocator(5 if stacked else 7, steps=[1, 2, 5, 10]))
    on.tick_params(axis="x", labelsize=size)
    on.xaxis.label.set_size(size + 1)
    on.tick_params(axis="y", length=0)
    on.grid(visible=False, axis="both" if stacked else "y")
    on.spines["left"].set_visible(False)
    shown_texts = [*names, *(text for each in texts for text in each)]
    return on, _caption(list(effects.values()), {part for text in shown_texts for part in text.split()}, table.margin)


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
    near = [end for each in effects if abs(each.mean) <= far for end in (each.low, each.mean, each.high, *each.seeds)]
    low, high = max(-2 * far, min(-2 * margin, *near)), min(2 * far, max(2 * margin, *near))
    room = 0.03 * (high - low)
    return low - room, high + room


def _row(on: Axes, place: int, found: Effect, verdict: str, size: float) -> list[Artist]:
    """Draw the effect of a row; returns what is drawn. Beyond the edge it is a number with its interval."""
    (colour, marker, fill), (low, high) = LOOKS.get(verdict, OTHER), on.get_xlim()
    line = {"color": colour, "linewidth": 1.3, "linestyle": ":" if found.blocks else "-", "zorder": 2}
    drawn = on.plot([max(found.low, low), min(found.high, high)], [place, place], **line)
    beyond = [(low, 4, each < low) for each in (found.low, *found.seeds)]  # matplotlib's carets: 4 left, 5 right
    beyond += [(high, 5, each > high) for each in (found.high, *found.seeds)]
    for end, caret in {(end, caret) for end, caret, is_beyond in beyond if is_beyond}:
        drawn += on.plot([end], [place], marker=caret, color=colour, markersize=size / 2, clip_on=False, zorder=2)
    seeds = [each for each in found.seeds if low <= each <= high]
    drawn += on.plot(seeds, [place + 0.22] * len(seeds), ".", color=FAINT, markersize=2.5, zorder=1)
    mean = {"color": colour, "fillstyle": fill, "markersize": size / 1.5, "zorder": 3}
    if low <= found.mean <= high:
        return drawn + on.plot([found.mean], [place], marker, **mean)
    above = found.mean > 0
    end, arrow, align = (high, ">", "right") if above else (low, "<", "left")
    drawn += on.plot([end], [place], arrow, clip_on=False, **mean)
    at = {"xytext": (-6 if above else 6, 0), "textcoords": "offset points", "ha": align, "va": "center"}
    at["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # over the line of an interval that is in sight
    percents = f"{found.mean:+.0f} %" if abs(found.mean) < LARGE else f"{found.mean:+.0e} %"
    if found.high > found.low and abs(found.high) < LARGE:
        percents += f" [{found.low:.0f}, {found.high:.0f}]"
    return [*drawn, on.annotate(percents, (end, place), fontsize=size, color=colour, **at)]


def _free(on: Axes, rows: int) -> list[tuple[float, float]]:
    """The heights of rows that have no texts, in parts of the axes."""
    bottom, top = on.get_ylim()
    ends = [(place + BELOW, place - ABOVE / 2) for place in range(rows)]
    return [((low - bottom) / (top - bottom), (high - bottom) / (top - bottom)) for low, high in ends]


def _above(on: Axes, names: list[str], texts: list[tuple[str, ...]], size: float, looks: list[Look]) -> None:
    """The name and the texts of each row above its interval, for a phone or a column of a paper."""
    width, lines = on.figure.get_figwidth(), [("", "test ppl", "ms/batch"), *texts]
    lines = lines if width >= WITH_PPL else [(word, "", time) for word, _, time in lines]
    widths = [LETTER * size * (2 + longest) for each in zip(*lines, strict=True) if (longest := max(map(len, each)))]
    room = max(LEAST_NAME, int((72 * width - sum(widths)) / (NAME_LETTER * size)))
    about = {"textcoords": "offset points", "fontsize": size, "annotation_clip": False}
    above = {"xycoords": on.get_yaxis_transform(), "va": "center", **about}
    columns = [column for column in range(3) if any(line[column] for line in lines)]
    ends = dict(zip(columns, [-sum(widths[after + 1 :]) for after in range(len(widths))], strict=True))
    for column, end in ends.items():
        on.annotate(
            lines[0][column], (1, 1), (end, 4), xycoords="axes fraction", ha="right", fontweight="bold", **about
        )
    on.set_yticks([])
    for place, (name, line, look) in enumerate(zip(names, lines[1:], looks, strict=True)):
        made = [on.annotate(_elided(shown(name), room), (0, place - ABOVE), (0, 0), color=INK, **above)]
        for column, end in ends.items():
            colour = INK if column else _colour(line[0])
            made.append(on.annotate(line[column], (1, place - ABOVE), (end, 0), color=colour, ha="right", **above))
        belongs(look, "name", made[0])
        belongs(look, "text", *made[1:])


def _colour(word: str) -> str:
    return next((look[0] for known, look in LOOKS.items() if word.startswith(known)), INK)


def _fitted(name: str, room: int) -> str:
    """A name in so many characters: in two lines where it has parameters."""
    head, given, rest = name.partition("(")
    lines = [head, f"({rest}"] if given and len(name) > room else [name]
    return "\n".join(_elided(shown(line, 10 * room), room) for line in lines)


def _elided(text: str, most: int) -> str:
    """A text without its middle where it is too long: parameters that differ are often the last ones."""
    return text if len(text) <= most else f"{text[: most // 3]}…{text[len(text) - most + most // 3 + 1 :]}"


def _texts(line: Row, findings: Findings, *, short: bool) -> tuple[str, str, str]:
    if line in findings.compared:
        judged = findings.compared[line].judged
        word = _in_short(judged) if short else str(judged)
    else:
        word = findings.role(line) or ("not compared" if line.ok_seeds else line.undone)
    values, time = line.values("test_ppl"), time_of(line, "train_ms_per_batch", findings.evidence.timings)
    word = shown(word, MOST_WORD[short]) if word else word
    mean = statistics.fmean(values) if values else None
    ppl = "-" if mean is None else f"{mean:.2f}" if mean < LARGE else f"{mean:.1e}"
    return word, ppl, "-" if time is None else _cost(line, time, findings)


def _in_short(judged: Verdict) -> str:
    """'worse ↓': a verdict, with the mark of a row that is not converged or collapsed."""
    limited = any(limit.removeprefix("not ") in judged.why for limit in LIMITS)
    return f"{judged.word} {NOT_CONVERGED_MARK}" if limited else judged.word


def _cost(line: Row, time: Time, findings: Findings) -> str:
    """'63.2 (4.6x)': milliseconds a batch, and how many times that of the baseline they are."""
    reference = findings.baselines.get(line.group)
    base = None if reference in (None, line) else time_of(reference, "train_ms_per_batch", findings.evidence.timings)
    times, said = ratio(time, base), f"{time.value:.1f}"
    return " ".join(filter(None, [said, "" if times is None else f"({times:.1f}x)", time_mark(time, base)]))


def _beside(on: Axes, names: list[str], texts: list[tuple[str, ...]], size: float, looks: list[Look]) -> None:
    """The names to the left of the rows, and columns of texts to their right, with headings."""
    lines = [("", "test ppl", "ms/batch"), *texts]
    gap, ends = GAP * size, [0.0]
    for column in range(3):
        ends.append(ends[-1] + gap + LETTER * size * max(len(line[column]) for line in lines))
    for place, line in enumerate(lines, start=-1):
        columns_of = zip(line, (gap, *ends[2:]), ("left", "right", "right"), strict=True)
        made = [
            on.annotate(
                text,
                (1, 1) if place < 0 else (1, place),
                xycoords="axes fraction" if place < 0 else on.get_yaxis_transform(),
                textcoords="offset points",
                xytext=(offset, 4 if place < 0 else 0),
                ha=align,
                va="bottom" if place < 0 else "center",
                fontsize=size,
                color=_colour(line[0]) if text == line[0] else INK,
                fontweight="bold" if place < 0 else "normal",
                annotation_clip=False,
            )
            for text, offset, align in columns_of
        ]
        if place >= 0:
            belongs(looks[place], "text", *made)
    room = max(LEAST_NAME, int((72 * on.figure.get_figwidth() * (1 - AXES) - ends[-1]) / (NAME_LETTER * size)))
    on.set_yticks(range(len(names)), [_fitted(name, room) for name in names], fontsize=size)
    for look, name in zip(looks, on.get_yticklabels(), strict=True):
        belongs(look, "name", name)


def _caption(found: list[Effect], words: set[str], margin: float) -> str:
    parts = {
        "; dots: seeds": any(len(each.seeds) > 1 for each in found),
        "; dotted: an interval over blocks of text, of one seed": any(each.blocks for each in found),
        f"; band: the smallest difference of interest, {100 * margin:g} %": True,
        ". Verdicts are corrected for all comparisons and allow for tuning; intervals are of the seeds alone.": True,
        **{f" {mark} {MARKS[mark]}.": mark in words for mark in (NOT_CONVERGED_MARK, TIME_MARK)},
    }
    said = "".join(part for part, applies in parts.items() if applies)
    return f"Change of test perplexity over the shared seeds, with its {100 * CONFIDENCE:.0f} % interval{said}"
