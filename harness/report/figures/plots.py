"""The plots of a suite, as SVG, PNG and PDF: changes against the baseline, perplexity by mixtures, epochs, time and
size, and where a gain is.
"""

import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from pathlib import Path

from matplotlib.axes import Axes

from harness.errors import RecordError
from harness.extensions import provided
from harness.printable import printable
from harness.report import tokens
from harness.report.evidence import Evidence
from harness.report.figures import comparison, forest, learning
from harness.report.figures.drawn import FOREST, LeftOut, Plot
from harness.report.figures.style import Frame, finished, settings, svg_of
from harness.report.findings import Findings
from harness.report.grouping import grouped
from harness.report.row_facts import RowFacts, time_of

ENDINGS = ("svg", "png", "pdf")
MAX_LETTERS = 20  # that are named


@dataclass(frozen=True, slots=True)
class PlotKind:
    """A kind of plot.

    Args:
        part: the labels that the rows of one plot share; None for a row that is in no plot.
        draw: rows, evidence, frame -> axes and a caption, or a sentence on why there is nothing to show.
        narrow: its width on a phone, in inches; None if the plot is readable there.
    """

    name: str
    title: str
    part: Callable[[RowFacts, Evidence], tuple[str, ...] | None]
    draw: Callable[[list[RowFacts], Evidence, Frame], tuple[Axes, str] | str]
    narrow: float | None = None


def draw(
    findings: Findings,
    suite: str,
    only: Container[str] | None = None,
    *,
    titled: bool = True,
    kind: str | None = None,
    width: float | None = None,
) -> tuple[Plot | LeftOut, ...]:
    """All plots of a suite, in the order in which a page shows them. The same records give the same bytes. N-grams are
    in no plot, because they have no parameters, no training and no baseline.

    Args:
        suite: the title of its table, which is part of each plot: it says if the suite was shortened, for example.
        titled: draw the title above each plot, and below it the suite; without, a paper's caption says both.
        width: of each plot, in inches; None: that of its kind.
    Raises: RecordError where there is no such kind.
    """
    evidence = findings.evidence
    lines = []
    for line in findings.rows:
        if not line.is_ngram and (only is None or any(trial in only for trial in line.ids)):
            lines.append(line)
    with settings():
        kinds = {each.name: each for each in _kinds(lines, findings)}
        if kind is not None and kind not in kinds:
            raise RecordError(f"this suite has no plot '{kind}'; it has: {', '.join(kinds)}")
        chosen = kinds.values() if kind is None else [kinds[kind]]
        return tuple(
            made for each in chosen for made in _of_kind(each, lines, evidence, suite if titled else None, width)
        )


def files_of(plots: Sequence[Plot | LeftOut], place: Path, *, pdf: bool = True) -> tuple[dict[Path, bytes], list[Path]]:
    """The files of plots in a suite's folder of plots, and files there that are no longer made.

    Args:
        pdf: make PDFs, too. They take longer than all else, since the fonts in them are cut to what is used.
    """
    files = {}
    for plot in plots:
        if isinstance(plot, Plot):
            files |= {place / f"{plot.name}.svg": plot.svg.encode(), place / f"{plot.name}.png": plot.png()}
            files |= {place / f"{plot.name}.pdf": plot.pdf()} if pdf else {}
    old = [file for ending in ENDINGS for file in place.glob(f"*.{ending}")]
    return files, [file for file in old if file not in files]


def boxes_in(plots: Sequence[Plot | LeftOut]) -> str:
    """A sentence on the letters that PNG and PDF files of plots lack; '' where they lack none."""
    if not (letters := "".join(sorted({letter for plot in plots for letter in getattr(plot, "boxes", "")}))):
        return ""
    more = " ..." if len(letters) > MAX_LETTERS else ""
    return (
        f"no font of this machine has {printable(letters[:MAX_LETTERS])}{more}: PNG and PDF files show boxes in their "
        "place, SVG files and the page do not; install a font that has them, such as Noto"
    )


def _kinds(lines: list[RowFacts], findings: Findings) -> list[PlotKind]:
    """The kinds of a suite's plots, in the order in which a page shows them."""
    found, evidence = [*KINDS], findings.evidence
    if findings.baseline is not None:
        draw_forest = partial(forest.draw, findings)
        found.insert(0, PlotKind(FOREST, "Change against the strongest control", _group, draw_forest, forest.PHONE))
    found = [*provided("harness.ladder.plot:kinds", lambda findings: [])(findings), *found]
    if any(line.params_of("head").get("d_embed") is not None for line in lines):  # as in low-rank softmax
        by_width = partial(comparison.by_parameter, "d_embed", "width of the output matrix, d_embed")
        found.append(PlotKind("perplexity_by_width", "Test perplexity by width of the output matrix", _group, by_width))
    if len({(line.corpus, line.head, line.spec.backbone.name) for line in lines}) < len(lines):
        by_backbone = partial(learning.curves, of_backbones=True)  # of a head on variants of one backbone
        title = "Learning curves by backbone"
        found.append(PlotKind("learning_curves_by_backbone", title, _head_on_variants, by_backbone))
    for key in learning.keys(evidence.suite):
        name = key.removeprefix("train.")
        title = f"Validation perplexity by {name}, tuning"
        found.append(PlotKind(f"tuning_{name}", title, _group, partial(learning.tuning, key)))
    return found


def _of_kind(
    kind: PlotKind, lines: list[RowFacts], evidence: Evidence, suite: str | None, width: float | None
) -> list[Plot | LeftOut]:
    parts = grouped((part, line) for line in lines if (part := kind.part(line, evidence)) is not None)
    if not parts:
        reason = "no trial is finished with a time" if lines else "n-grams are in no plot"
        return [LeftOut(title=kind.title, reason=reason)]
    differs = [len(set(labels)) > 1 for labels in zip(*parts, strict=True)]
    made, names, reasons = [], [], []
    for part, inside in parts.items():
        labels = list(compress(part, differs))  # what all plots share is not in their names
        titles = {} if suite is None else {"title": kind.title, "below": "; ".join([*labels, suite])}
        drawn = kind.draw(inside, evidence, Frame(width=width, **titles))
        if isinstance(drawn, str):
            reasons.append(drawn)
            made.append(LeftOut(title=", ".join([kind.title, *labels]), reason=drawn))
            continue
        name = ".".join([kind.name, *(re.sub(r"[^A-Za-z0-9_=.-]+", "_", label)[:40] for label in labels)])
        names.append(name)
        name = f"{name}-{names.count(name)}" if names.count(name) > 1 else name
        on, caption = drawn
        title, of = ", ".join([kind.title, *labels]), str(evidence.trials)
        plot = finished(on, name=name, title=title, caption=caption, of=of)
        if kind.narrow is not None:
            on, _ = kind.draw(inside, evidence, Frame(width=kind.narrow))
            plot = replace(plot, narrow=svg_of(on.figure, of))
        made.append(plot)
    if len(set(reasons)) == 1 and len(reasons) == len(made):
        return [LeftOut(title=kind.title, reason=reasons[0])]
    return made


def _group(line: RowFacts, evidence: Evidence) -> tuple[str, ...]:
    return line.group


def _head_on_variants(line: RowFacts, evidence: Evidence) -> tuple[str, ...]:
    return line.corpus, line.spec.backbone.name, line.head


def _corpus(line: RowFacts, evidence: Evidence) -> tuple[str, ...]:
    return (line.corpus,)


def _one_pass(line: RowFacts, evidence: Evidence) -> tuple[str, ...] | None:
    """Times can be compared within one exclusive pass, or if trials measured them on one device."""
    time = time_of(line, "train_ms_per_batch", evidence.timings)
    return None if time is None else (line.corpus, time.device, time.pass_id or "measured during training")


_by_mixtures = partial(comparison.by_parameter, "num_mixtures", "mixtures K")
_by_frequency = partial(comparison.gain, tokens.by_frequency, "occurrences of the target in training")
_by_position = partial(comparison.gain, tokens.by_position, "tokens of the segment before the target")
KINDS = (
    PlotKind("perplexity_by_time", "Test perplexity by training time", _one_pass, comparison.by_time),
    PlotKind("perplexity_by_parameters", "Test perplexity by parameters", _corpus, comparison.by_size),
    PlotKind("perplexity_by_mixtures", "Test perplexity by number of mixtures", _group, _by_mixtures),
    PlotKind("learning_curves", "Learning curves", _group, learning.curves),
    PlotKind("gain_by_frequency", "Where the gain is: word frequency", _group, _by_frequency),
    PlotKind("gain_by_position", "Where the gain is: place in the segment", _group, _by_position),
)
