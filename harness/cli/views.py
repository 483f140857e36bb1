"""The commands that show records: `harness table`, `report`, `leaderboard`, `diff` and `site`."""

import json
import math
import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from harness import bundled
from harness import plan as planning
from harness.cli.options import (
    RESULTS,
    Data,
    Json,
    Only,
    Results,
    Seeds,
    Set,
    SuitePath,
    argument,
    changes,
    console,
    option,
    say,
    say_files,
    warn,
)
from harness.corpora.download import DEFAULT_DATA
from harness.errors import ExecutionError, SuiteError
from harness.machine.files import unsynced
from harness.plan.reader import suite_name
from harness.plan.suite_file import Form, Shape
from harness.printable import printable
from harness.records.metrics import METRICS
from harness.report import screen

if TYPE_CHECKING:  # a command waits only for the modules that it works with
    from harness.report.diff import Difference, MetricDifference
    from harness.report.study import Study
    from harness.report.tokens import Context

NAMED = "a trial's id or its first digits; with --suite, a head by its name or as the table shows it."
NARROWEST, COLUMN, WIDEST = 2.5, 3.3, 12.0  # inches
A_WIDTH = "Of --figure: 3.3in, one column of a paper, or 178mm."
UNITS = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4}  # in inches


def _study(suite: Path, overrides: Iterable[str], results: Path) -> "Study":
    from harness.records import contents
    from harness.report import history, study

    try:
        read = planning.load(suite, tuple(overrides))
    except SuiteError as error:
        name = suite_name(suite)
        if any("corpora." in problem for problem in error.problems) and name in history.suites(results):
            warn(f"without its text, `harness runs {name}` and `harness leaderboard` show the records of {name}")
        raise
    found = study.load(read, results, warn=warn)
    if len(found.records) < len(read.trials) and (others := contents.of_others(read, found.evidence.runs)):
        warn(others)
    return found


def table(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    seeds: Seeds = None,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    shape: option(Shape | None, "How rows are laid out; another shape than the suite's has its own files.") = None,
    form: option(
        Form | None, "What is printed: by default a summary on a terminal, else md. All three are written."
    ) = None,
    columns: option(str, "Print these columns only: 'test ppl, vs, params'.", metavar="NAME[,...]") = "",
    wide: option(bool, "Print all columns and notes.", "--wide") = False,
    compact: option(bool, "Print a table for one column of a paper: short cells, no intervals.", "--compact") = False,
) -> None:
    """Write the table of a suite again from its records. With --only, print those rows only."""
    found = _study(suite, changes(overrides, seeds), results)
    if not found.records and (files := _committed(found.suite.name)):
        warn(f"{results} has no finished trial of this suite; the repository has some: harness import {files}")
    names = columns.split(",") if columns else []
    if form is None and shape is None and not (names or wide) and console.is_terminal:
        console.print(screen.short(found.summary(only, compact=compact), console.width))
    else:
        say(found.table(form or "md", shape, only, names, wide=wide, compact=compact))
    files = found.write_table(shape)
    if form in (None, "md"):  # the other forms are for programs, which read only the table
        say_files("table", files)


def _committed(suite: str) -> str:
    """The files with records of a suite that are part of a clone; '' for none."""
    records = bundled("results/showcase") / "records"
    places = [*records.glob(f"{suite}.zip"), *sorted(records.glob(f"{suite}.*.zip"))]
    return shlex.join(map(str, places))


def inches(text: str) -> float:
    """'84mm' -> 3.307. Raises typer.BadParameter."""
    found = re.fullmatch(r"([0-9.]+)(in|cm|mm)", text)
    try:
        width = float(found[1]) * UNITS[found[2]]
    except (TypeError, ValueError):
        raise typer.BadParameter(f"'{text}' is no width; expected a number with in, cm or mm: 3.3in") from None
    if not NARROWEST <= width <= WIDEST:
        raise typer.BadParameter(f"{text} is not between {NARROWEST:g} and {WIDEST:g} inches")
    return width


def report(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006 - typer copies it
    only: Only = [],  # noqa: B006
    seeds: Seeds = None,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    figure: option(str | None, "Write this plot only, as PDF for a paper: forest.", "--figure", metavar="NAME") = None,
    width: option(float | None, A_WIDTH, "--width", metavar="WIDTH", parser=inches) = None,
    no_title: option(bool, "Draw no titles in the files of the plots.", "--no-title") = False,
) -> None:
    """Write the plots of a suite and one web page with everything known about its trials.

    With --only, the files of the selected trials have names of their own. With --figure, one plot is written for a
    paper, and nothing else.
    """
    found = _study(suite, changes(overrides, seeds), results)
    if figure is not None:
        for place in found.write_figure(figure, only, width=width or COLUMN):
            say(f"figure: {place}")
        return
    if width is not None:
        raise typer.BadParameter("--width is the width of a figure: name one with --figure")
    page, *plots = found.write_report(only, titled=not no_title)
    if plots:
        say(f"plots: {plots[0].parent} ({len({place.stem for place in plots})}, each as .svg and .png)")
    say(f"page: {page}")


def leaderboard(
    corpus: option(list[str], "Show only this corpus. Repeatable.", "--corpus", metavar="NAME") = [],  # noqa: B006
    everything: option(bool, "Show the tables in which no row can be ranked, too.", "--all") = False,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Rank the finished trials of all suites, in groups with the same text, counting, evaluation and budget."""
    from harness.report.leaderboard import load

    found = load(results, warn)
    if as_json:
        print(json.dumps(found.as_json(corpus), indent=1))
        return
    if console.is_terminal:
        for summary in found.summaries(corpus, everything=everything):
            console.print(screen.short(summary, console.width), end="\n\n")
    else:
        say(found.text(corpus, everything=everything))
    say(f"leaderboard: {', '.join(map(str, found.write()))}")


def diff(
    a: argument(str, f"The first one: {NAMED}", metavar="A"),
    b: argument(str, "The second one, which is compared with A.", metavar="B"),
    suite: option(
        Path | None, "Compare heads of this suite, seed by seed: its file or name.", "--suite", metavar="SUITE"
    ) = None,
    overrides: Set = [],  # noqa: B006 - typer copies it
    only: Only = [],  # noqa: B006
    top: option(int, "How many contexts of each kind are shown.", min=0) = 10,
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Show what differs: settings, metrics with intervals, and the test words on which they differ most."""
    from harness.plan.selection import chosen_trials
    from harness.report.diff import difference, of_heads, of_trials

    if suite is None:
        if overrides or only:
            raise ExecutionError("--set and --only select trials of a suite: name the suite with --suite")
        compared = [("", *of_trials(results, a, b))]
    else:
        study = _study(suite, overrides, results)
        chosen = {trial.id for trial in chosen_trials(study.suite, tuple(only))}
        rows = [row for row in study.rows if chosen & {trial.id for trial in row.trials}]
        compared = of_heads(rows, study.evidence, a, b)
    found = [difference(one, other, data, top=top, within=within) for within, one, other in compared]
    if as_json:
        content = [asdict(each, dict_factory=_without_nan) for each in found]
        print(json.dumps({"differences": content}, indent=1, allow_nan=False))
        return
    for part in (part for each in found for part in _differences(each)):
        console.print(part)


def _without_nan(items: list[tuple[str, object]]) -> dict[str, object]:
    """null for a standard error that a single block cannot give."""
    return {key: None if value != value else value for key, value in items}


def _differences(found: "Difference") -> Iterator[Table | Text]:
    """A comparison of A and B: settings, metrics, groups of tokens, the contexts in which they differ most, notes."""
    within = f" on {found.within}" if found.within else ""
    a, b = (Text(printable(name), style="bold") for name in (found.a, found.b))
    yield Text.assemble("A: ", a, "; B: ", b, printable(within))
    yield screen.grid(("setting", "A", "B"), [(change.key, change.a, change.b) for change in found.changes])
    yield _metrics(found.metrics)
    for title, bands in {
        "how often training had the token": found.by_frequency,
        "tokens before it in its segment, less one": found.by_position,
    }.items():
        names = (title, "tokens", "B - A, nats", "standard error")
        errors = ["-" if math.isnan(band.error) else f"{band.error:.4f}" for band in bands]
        rows = [
            (band.label, f"{band.tokens:,}", f"{band.mean:+.4f}", error)
            for band, error in zip(bands, errors, strict=True)
        ]
        yield from [screen.grid(names, rows, right=names)] if rows else []
    for title, contexts in {"B is better: fewer nats": found.better, "B is worse: more nats": found.worse}.items():
        numbers = ("A, nats", "B, nats", "in training")
        rows = [(f"{each.a:.2f}", f"{each.b:.2f}", f"{each.count:,}", _in_context(each)) for each in contexts]
        yield from [screen.grid((*numbers, "text"), rows, right=numbers, title=title)] if rows else []
    yield from map(screen.text, found.notes)


def _metrics(metrics: "Iterable[MetricDifference]") -> Table:
    names = ("metric", "A", "B", "B / A - 1", "interval", "n")
    rows = []
    for each in metrics:
        digits = METRICS[each.name].digits
        change = "-" if each.change is None else f"{100 * each.change:+.2f} %"
        interval = "-" if each.low is None else f"[{100 * each.low:+.2f}, {100 * each.high:+.2f}] %"
        interval = "too wide" if each.too_wide else interval
        rows.append((each.name, f"{each.a:,.{digits}f}", f"{each.b:,.{digits}f}", change, interval, str(each.n)))
    title = "B against A: geometric means, intervals of 95 % over n seeds; costs on one device only"
    return screen.grid(names, rows, right=names[1:], title=title)


def _in_context(each: "Context") -> Text:
    before, target, after = map(printable, (each.before, each.target, each.after))
    return Text.assemble(before, (f"[{target}]", "bold"), after)


def site(
    out: option(Path, "The folder of the site.", "--out", metavar="DIR") = Path("site"),
    results: Results = RESULTS,
    records: option(
        Path | None, "Show the exported records in this folder instead: *.zip.", "--records", metavar="DIR"
    ) = None,
    suites: option(Path, "The folder of the suite files.", "--suites", metavar="DIR") = Path("suites"),
) -> None:
    """Write all results as web pages: suites, leaderboard, plots, data as CSV, and a search by head.

    The folder needs no network and no server: open its index.html, or copy it to any host.
    """
    from harness.report import site

    if records is None:
        files = _files_of_site(results, suites)
    else:
        with tempfile.TemporaryDirectory(prefix="harness-site-") as imported:
            with unsynced():
                _import(records, Path(imported))
            files = _files_of_site(Path(imported), suites)
    site.write(files, out)
    say(f"site: {out / 'index.html'} ({len(files)} files, {sum(map(len, files.values())) / 2**20:.1f} MiB)")


def _files_of_site(results: Path, suites: Path) -> dict[str, bytes]:
    from harness.report import site  # here: matplotlib, jinja2 and pandas take seconds to import

    return site.files_of(site.studies(results, suites, warn), results, suites, warn)


def _import(records: Path, results: Path) -> None:
    from harness.exchange.copying import import_records

    found = sorted(records.glob("*.zip"))
    if not found:
        raise ExecutionError(f"--records {records} has no file *.zip; `harness export` writes such files")
    for path in found:
        for sentence in import_records(path, results).warnings:
            warn(f"{path}: {sentence}")
