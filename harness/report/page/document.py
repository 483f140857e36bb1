"""The page of a suite, and pages of tables: what is arranged, broken into lines, escaped and drawn in them."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from harness.plan.tuning import epochs_text
from harness.printable import counted, printable
from harness.records.metrics import METRICS
from harness.records.record import CurvePoint, TrialRecord
from harness.report.content import Cell, Column, Line, Note, Table, legend, meanings
from harness.report.evidence import Evidence
from harness.report.figures.drawn import FIRST, LeftOut, Plot
from harness.report.figures.looks import DARK, FAINT, INK, PAPER
from harness.report.findings import Findings
from harness.report.layouts import ORDER
from harness.report.outcome import summary
from harness.report.page.details import RowDetails, failures, row_details

LABELS = ("head", "quantity", "backbone", "corpus", "training")  # what a row is: the first names it
IN_SIGHT = ("rank", "test_ppl", "vs_best", *ORDER)  # keys of columns; a box above the table shows the others
_VARIABLES = {INK: "var(--ink)", FAINT: "var(--faint)", PAPER: "none"} | {
    light: f"light-dark({light}, {dark})" for light, dark in DARK.items()
}
_MEANINGS = {metric.label: metric.description for metric in METRICS.values()} | {
    "seeds": "Trials that are finished and ok, each of another seed.",
    "n": "Trials that are finished and ok, of those that are planned.",
    "rank": "By mean test perplexity; validation has chosen the epoch and what was tuned.",
}


def parts(text: str) -> list[str]:
    """The parts of a cell between which a narrow screen may break the line: '88.58', '± 0.31'; '88.58,', '90.12'."""
    return re.split(r" (?=[±\[])|(?<=\d,) (?=\d)", text)


class ArrangedLine(NamedTuple):
    """A line of a page's table: its name with the other labels below it, its other cells, and the line itself."""

    name: Cell
    of: tuple[str, ...]
    cells: tuple[Cell, ...]
    line: Line


class Arranged(NamedTuple):
    """A table as a page shows it: the column of names and the others, of which so many are shown at first."""

    title: str
    first: Column
    columns: tuple[Column, ...]
    in_sight: int
    lines: tuple[ArrangedLine, ...]


def arranged(table: Table) -> Arranged:
    """Arrange a table: its label columns become one, its main results come next. No cell is left out.

    A row is named by the first of LABELS that the table has, or by a label in its first column that is none of these.
    """
    names = [column.name for column in table.columns]
    labels = [names.index(label) for label in LABELS if label in names]
    if not labels or (table.columns[0].key == "label" and 0 not in labels):
        labels.insert(0, 0)
    others = [index for index in range(len(names)) if index not in labels]
    scored = any(column.key == "test_ppl" for column in table.columns)
    if scored:
        others.sort(key=lambda index: _importance(table.columns[index]))
    lines = []
    for line in table.lines:
        texts = [line.cells[index].text for index in labels[1:]]
        of = tuple(text for text in texts if text)
        cells = tuple(line.cells[index] for index in others)
        lines.append(ArrangedLine(name=line.cells[labels[0]], of=of, cells=cells, line=line))
    return Arranged(
        title=table.title,
        first=table.columns[labels[0]],
        columns=tuple(table.columns[index] for index in others),
        in_sight=sum(not scored or _importance(table.columns[index]) < len(IN_SIGHT) for index in others),
        lines=tuple(lines),
    )


def _importance(column: Column) -> int:
    return IN_SIGHT.index(column.key) if column.key in IN_SIGHT else len(IN_SIGHT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Tables below a heading, and notes on all of them.

    Args:
        code: a text that is shown as it is.
        plots: below the tables.
        folded: the line that opens the section; '' for one that is open.
        searched: its rows are those that the page's search field searches.
        anchor: the ids of its tables are this with a hyphen and their number, from 1; '' for none.
    """

    heading: str
    text: str = ""
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    code: str = ""
    plots: tuple[Plot, ...] = ()
    folded: str = ""
    anchor: str = ""
    searched: bool = False


def render(
    findings: Findings,
    table: Table,
    plots: Sequence[Plot | LeftOut],
    sections: Sequence[Section] = (),
    links: Mapping[str, str] | None = None,
    plot_folder: str = "",
) -> str:
    """The page of a suite: a summary, its forest plots, its table with the details of each row, the other plots, failed
    trials, notes, and further tables. The same arguments and logs of failed trials give the same bytes.

    Args:
        plot_folder: the place of the plots as SVG files, with a slash at its end; '' if the page does not link to them.
    """
    evidence = findings.evidence
    by_trial: dict[str, RowDetails] = {}
    for one in row_details(evidence):
        by_trial |= dict.fromkeys(one.row.ids, one)
    behind = []
    for line in table.lines:
        behind.append(list(dict.fromkeys(by_trial[each] for each in line.trials)))
    shown = dict.fromkeys(one.row for ones in behind for one in ones)
    drawn = [plot for plot in plots if isinstance(plot, Plot)]
    return _page(
        title=table.title,
        summary=summary(findings, list(shown)),
        links=links,
        plot_folder=plot_folder,
        table=table,
        numbers={trial: number for number, row in enumerate(evidence.rows) for trial in row.ids},
        behind=behind,
        forests=[plot for plot in drawn if plot.name.startswith(FIRST)],
        plots=[plot for plot in drawn if not plot.name.startswith(FIRST)],
        left_out=[plot for plot in plots if isinstance(plot, LeftOut)],
        failures=failures(evidence, shown),
        sections=sections,
        about=_about(evidence),
        unscored=evidence.unscored,
    )


def of_tables(
    title: str,
    sections: Sequence[Section],
    about: Mapping[str, str] | None = None,
    links: Mapping[str, str] | None = None,
) -> str:
    """A page with tables only. It has a search field if the rows of a section can be searched."""
    empty = {"table": None, "numbers": {}, "behind": [], "forests": [], "plots": [], "left_out": [], "failures": []}
    empty["plot_folder"] = ""
    return _page(title=title, sections=sections, about=about, links=links, **empty)


def inline(plot: Plot, narrow: bool = False) -> Markup:
    """A plot's SVG as a part of the page: of flexible width, in the colours of the page, with unique ids.

    It is safe markup: matplotlib wrote it, and labels are escaped in it.
    """
    whole = plot.narrow if narrow else plot.svg
    svg = whole[whole.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style .*?</style>", "", svg, flags=re.DOTALL)
    prefix = re.sub(r"[^A-Za-z0-9]+", "-", plot.name) + ("-narrow" if narrow else "")
    return Markup(re.sub(r"<[^>]*>", lambda tag: _tag(tag[0], prefix), svg))


def _tag(tag: str, prefix: str) -> str:
    """A tag of an SVG, changed for the page. The text between tags is not changed."""
    if tag.startswith("<svg"):
        tag = re.sub(r' (width|height)="[^"]*"', "", tag)
    tag = re.sub(r'\bid="row-(\d+)-\d+"', r'data-row="\1"', tag)
    tag = re.sub(r'(\bid="|\bxlink:href="#|\burl\(#)', rf"\g<1>{prefix}-", tag)
    return re.sub(r"#[0-9a-f]{6}\b", lambda colour: _VARIABLES.get(colour[0], colour[0]), tag)


def marks(cell: Cell) -> str:
    """What the marks in a cell mean; '' without marks."""
    return "; ".join(meanings([cell]))


def opening(text: str) -> tuple[str, str]:
    """A docstring up to the line `Shapes:`, and the rest."""
    first, found, rest = text.partition("\nShapes:")
    return first.strip(), f"Shapes:{rest}" if found else ""


def _meaning(column: str) -> str:
    return _MEANINGS.get(column, "")


def number(value: float) -> str:
    """A number as text: whole numbers with commas, others with six digits."""
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"


def curve(record: TrialRecord) -> str:
    """A trial's curve as aligned text, because thousands of curves as tables would slow a browser down."""
    names = list(CurvePoint.model_fields)
    lines = [names]
    for point in record.curve:
        lines.append([number(getattr(point, name)) for name in names])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.rjust, row, widths)) for row in lines)


def _about(evidence: Evidence) -> dict[str, str]:
    where = [record.environment for record in evidence.finished]
    trained = [trial for trial in evidence.suite.trials if not trial.is_ngram]
    about = {
        "Trials": str(evidence.trials),
        "Seeds": ", ".join(dict.fromkeys(str(trial.seed) for trial in trained)),
        "Budget": epochs_text(*(trial.train.epochs for trial in trained)) if trained else "",
        "Device": "; ".join(dict.fromkeys(each.device for each in where)),
        "Versions": "; ".join(dict.fromkeys(f"harness {e.harness}, torch {e.torch}, Python {e.python}" for e in where)),
        "Commit": ", ".join(dict.fromkeys(each.commit for each in where)),
        "Last trial": max((each.finished for each in where), default=""),
    }
    return {name: text for name, text in about.items() if text}


def _page(**content: object) -> str:
    template, script, style = _template()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return template.render(**content, script=Markup(script), style=Markup(style), script_hash=digest)


@cache
def _template() -> tuple[Template, str, str]:
    """The template of a page, its script and its style."""
    here = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(here),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {"number": number, "inline": inline, "curve": curve, "runs": _runs, "in_code": in_code}
    environment.filters |= {"arranged": arranged, "parts": parts, "meaning": _meaning}
    environment.filters |= {"legend": legend, "marks": marks, "opening": opening, "by_level": _by_level, "rows": _rows}
    environment.filters["counted"] = counted
    script = (here / "page.js").read_text(encoding="utf-8")
    style = (here / "page.css").read_text(encoding="utf-8")
    return environment.get_template("page.html"), script, style


def in_code(text: str) -> Markup:
    """A text in which what stands between two backticks is shown as code. All of it is escaped."""
    return Markup(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", str(escape(_shown(text)))))


def _rows(trials: Iterable[str], numbers: Mapping[str, int]) -> str:
    """'2 3': the numbers of the rows of some trials, by which the page finds what plots show of them."""
    return " ".join(dict.fromkeys(str(numbers[trial]) for trial in trials if trial in numbers))


def _by_level(notes: Iterable[str]) -> list[tuple[str, list[str]]]:
    found = {"reading": [], "detail": []}
    for note in notes:
        found["reading" if isinstance(note, Note) and note.level != "detail" else "detail"].append(note)
    return [(level, of) for level, of in found.items() if of]


def _runs(names: Iterable[str]) -> list[dict[str, object]]:
    """Runs of equal neighbours: 'a', 'a', 'b' -> a of length 2, b of length 1."""
    return [{"name": name, "length": len(list(alike))} for name, alike in groupby(names)]


def _shown(value: object) -> object:
    """Spell out invisible characters, except line ends, in all text that is not our own markup."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return "\n".join(map(printable, value.split("\n")))
