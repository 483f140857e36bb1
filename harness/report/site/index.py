"""The first page of the site: all suites, the ground truths, and all rows, which can be searched by head."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.plan.specs import GROUND_TRUTH
from harness.report import ground_truth
from harness.report.outputs import Trials
from harness.report.page import document
from harness.report.page.document import Section
from harness.report.study import Study
from harness.report.table.columns import EMPTY, quantities
from harness.report.table.content import Cell, Column, Line, Table

SHOWN = ("test ppl", "vs baseline", "verdict", "n", "valid ppl", "params", "train ms/batch", "reproduced")
TEXTS = ("verdict", "n", "reproduced")


def page(found: Sequence[Study], links: Mapping[str, str]) -> str:
    """The page of some suites."""
    truths = [each for each in found if each.suite.name.startswith(f"{GROUND_TRUTH}_")]
    sections = [Section(heading="What has been run", tables=(_suites(found),))]
    if truths:
        sections.append(Section(heading="Printed numbers trained again", tables=(ground_truth.table(truths),)))
    sections.append(Section(heading="All rows", tables=(_rows(found, "leaderboard" in links),), searched=True))
    statuses = Counter[str]()
    for each in found:
        statuses.update({name: getattr(each.evidence.trials, name) for name in ("ok", "planned", "invalid")})
    last = max(record.environment.finished for each in found for record in each.records.values())
    about = {"Trials": str(Trials(**statuses)), "Suites": str(len(found)), "Last trial": last}
    return document.of_tables("Output heads of language models, compared", sections, about, links)


def page_of(found: Study) -> str:
    """The place of a suite's page in the site."""
    return f"suites/{found.suite.name}.html"


def _suites(found: Sequence[Study]) -> Table:
    columns = (
        Column(name="suite"),
        Column(name="found"),
        Column(name="trials"),
        Column(name="last trial"),
    )
    lines = [
        Line(
            cells=(
                Cell(text=each.suite.name, link=page_of(each)),
                Cell(text=f"{each.found()}."),
                Cell(text=str(each.evidence.trials)),
                Cell(text=max(record.environment.finished for record in each.records.values())[:10]),
            )
        )
        for each in found
    ]
    lead = "Each suite has a page with its table, its plots, and everything known of its trials."
    return Table(title="Suites", columns=columns, lines=tuple(lines), lead=lead)


def _rows(found: Sequence[Study], ranked: bool) -> Table:
    """All rows; `ranked`: the site has a leaderboard."""
    columns = [Column(name="head"), Column(name="backbone"), Column(name="corpus"), Column(name="suite")]
    columns += [Column(name=name, numeric=name not in TEXTS) for name in SHOWN]
    lines = []
    for each in found:
        cells = {_general(one.column.name, each): one.cells for one in quantities(each.findings)}
        for index, row in enumerate(each.rows):
            labels = [Cell(text=text) for text in (row.head, row.backbone, row.corpus)]
            suite = Cell(text=each.suite.name, link=page_of(each))
            numbers = [cells[name][index] if name in cells else EMPTY for name in SHOWN]
            lines.append(Line(cells=(*labels, suite, *numbers), trials=tuple(trial.id for trial in row.trials)))
    columns, lines = _without_empty(columns, lines)
    lead = "Only rows of one suite compare: each suite has its own budget and, for 'vs baseline', its own baseline."
    lead += " The leaderboard compares rows of several suites." if ranked else ""
    return Table(title="Rows of all suites", columns=tuple(columns), lines=tuple(lines), lead=lead)


def _without_empty(columns: list[Column], lines: list[Line]) -> tuple[list[Column], list[Line]]:
    """The columns that are not empty in every line."""
    kept = [index for index in range(len(columns)) if any(line.cells[index] != EMPTY for line in lines)]
    shorter = [replace(line, cells=tuple(line.cells[index] for index in kept)) for line in lines]
    return [columns[index] for index in kept], shorter


def _general(column: str, found: Study) -> str:
    """The name of a column in a table of several suites: 'vs baseline' for 'vs softmax'."""
    return "vs baseline" if column == f"vs {found.findings.baseline}" else column
