"""The page of a submission: card, numbers, curves, certificates, checks, badges, how to run it, and its source."""

import shlex
from collections.abc import Iterable, Mapping, Sequence

from harness.printable import counted
from harness.report import layouts, suite_table
from harness.report.content import NOTHING, Cell, Column, Line, Table
from harness.report.figures import plots
from harness.report.figures.drawn import Plot
from harness.report.page import document
from harness.report.page.document import Section
from harness.report.study import Study
from harness.submissions.received import Received

CURVES = "learning_curves"  # the kind of plot


def page(one: Received, study: Study | None, links: Mapping[str, str]) -> str:
    """The page of a submission.

    Args:
        study: of its suite, with its trials; None where it gives no numbers.
    """
    card = one.submission.card
    numbers = [] if study is None else _numbers(one, study)
    if study is None:
        numbers = [Section(heading="Numbers", notes=(f"None are shown: {one.why_not}.",))]
    sections = [
        Section(heading="What it is", notes=(card.sentence,)),
        Section(heading="Badges", tables=(_badges(one),)),
        *numbers,
        Section(heading="Checks", **_checks(one)),
        Section(heading="Run this yourself", notes=_how(one), code=command(one)),
    ]
    if one.submission.source is not None:
        lines = counted(len(one.submission.source.splitlines()), "line")
        source = one.submission.source
        sections.append(Section(heading="Source", folded=f"{lines}, {card.licence}", code=source))
    about = {
        "Suite": card.suite,
        "Head": card.head,
        "Authors": ", ".join(card.authors),
        "Paper": card.paper or "",
        "Licence": card.licence or "",
        "Date": card.date,
        "Hardware": "; ".join(card.hardware),
        "Core hours": f"{card.core_hours:g}",
        "Made by": f"harness {card.harness}",
        "SHA-256": one.submission.digest.hex(),
    }
    known = {name: text for name, text in about.items() if text}
    title = f"{card.name}, submitted to {card.suite}"
    return document.of_tables(title, sections, known, links)


def listing(found: Iterable[Received], up: str) -> Table:
    """A table of submissions, each with a link to its page; `up`: from the page of the table to the first page."""
    names = ("submission", "suite", "authors", "date", "badges", "numbers")
    lines = []
    for one in found:
        card = one.submission.card
        texts = (card.suite, ", ".join(card.authors), card.date, badges_text(one), one.why_not or "in the table")
        name = Cell(text=card.name, link=f"{up}{one.page}")
        lines.append(Line(cells=(name, *(Cell(text=text) for text in texts))))
    columns = tuple(Column(name=name) for name in names)
    lead = "A submission gives numbers when nothing was refused in its checks."
    return Table(title="In the order in which they were checked", columns=columns, lines=tuple(lines), lead=lead)


def badges_text(one: Received) -> str:
    """The badges of a submission: 'submitted, checked, run again by a second party (Eve)'."""
    texts = []
    for badge in one.badges:
        others = f" ({', '.join(badge.who)})" if badge.who and badge.name.startswith("run again") else ""
        texts += [f"{badge.name}{others}"] if badge.earned else []
    return ", ".join(texts)


def command(one: Received) -> str:
    """The command that trains its trials."""
    card, head = one.submission.card, one.submission.head_name
    return shlex.join(["harness", "run", card.suite, "--set", f"heads+={card.head}", "--only", f"head={head}"])


def as_json(one: Received) -> dict[str, object]:
    """What the feed of a site says of a submission."""
    card = one.submission.card
    return {
        "suite": card.suite,
        "file": one.submission.place.name,
        "sha256": one.submission.digest.hex(),
        "page": one.page,
        "name": card.name,
        "head": card.head,
        "authors": list(card.authors),
        "date": card.date,
        "badges": [{"name": each.name, "who": list(each.who)} for each in one.badges if each.earned],
        "without_numbers": one.why_not or None,
    }


def _how(one: Received) -> tuple[str, ...]:
    name = one.submission.head_name
    where = () if one.submission.source is None else (f"Save the source below as heads/{name}.py first.",)
    return (*where, f"`harness check-submission {one.submission.place.name}` checks the file.")


def _badges(one: Received) -> Table:
    columns = tuple(Column(name=name) for name in ("badge", "by", "when and where"))
    lines = []
    for badge in one.badges:
        texts = (badge.name, ", ".join(badge.who), badge.sentence) if badge.earned else (badge.name, "not yet", "")
        lines.append(Line(cells=tuple(Cell(text=text or NOTHING) for text in texts)))
    return Table(title="What was done with it", columns=columns, lines=tuple(lines))


def _checks(one: Received) -> dict[str, tuple]:
    """Tables or notes on the maintainers' checks."""
    if one.checked is None:
        return {"notes": ("The maintainers have not checked it yet.",)}
    columns = tuple(Column(name=name) for name in ("check", "outcome", "what was found"))
    lines = []
    for check in one.checked.checks:
        lines.append(Line(cells=tuple(Cell(text=text) for text in (check.name, check.outcome, check.sentence))))
    title = f"Checked by {one.checked.who}, {one.checked.date[:10]}, harness {one.checked.harness}"
    return {"tables": (Table(title=title, columns=columns, lines=tuple(lines)),)}


def _numbers(one: Received, study: Study) -> list[Section]:
    """Its rows in the table of the suite, its learning curves beside those of the controls, and its certificates."""
    rows = [row for row in study.rows if one.trials.intersection(row.ids)]
    ids = {trial for row in rows for trial in row.ids}
    table = suite_table.of_trials(layouts.select(suite_table.build(study.findings)), ids)
    table = Table(title="Its rows in the table", columns=table.columns, lines=table.lines)
    groups = {row.group for row in rows}
    controls = [row for row in study.findings.baselines.values() if row.group in groups]
    with_controls = ids.union(*(row.ids for row in controls))
    drawn = plots.draw(study.findings, study.suite.name, with_controls, kind=CURVES)
    curves = tuple(plot for plot in drawn if isinstance(plot, Plot))
    return [
        Section(heading="Numbers", tables=(table,), notes=(_certificates([row.ok for row in rows]),)),
        Section(heading="Learning curves", plots=curves),
    ]


def _certificates(found: Sequence[Sequence]) -> str:
    records = [record for each in found for record in each]
    certified = [record.certificate for record in records if record.certificate is not None]
    positions = sum(each.positions for each in certified)
    return f"{len(certified)} of {counted(len(records), 'trial')} have a certificate, asked at {positions:,} positions."
