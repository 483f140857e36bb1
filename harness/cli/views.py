"""The commands that show a suite: `harness table` and `report`."""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness import bundled
from harness import plan as planning
from harness.cli.commands import COMMANDS
from harness.cli.options import (
    RESULTS,
    Data,
    Only,
    Results,
    Seeds,
    Set,
    SuitePath,
    changes,
    console,
    option,
    say,
    say_files,
    warn,
)
from harness.corpora.download import DEFAULT_DATA
from harness.errors import SuiteError
from harness.plan.reader import suite_name
from harness.plan.suite_file import Form, Shape
from harness.report import screen

if TYPE_CHECKING:  # a command waits only for the modules that it works with
    from harness.report.study import Study

NAMED = "a trial's id or its first digits; with --suite, a head by its name or as the table shows it."
NARROWEST, COLUMN, WIDEST = 2.5, 3.3, 12.0  # inches
A_WIDTH = "Of --figure: 3.3in, one column of a paper, or 178mm."
UNITS = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4}  # in inches


def study_of(suite: Path, overrides: Iterable[str], results: Path) -> "Study":
    """Read the records of a suite, and say what lies in its folder and is not of it. Raises SuiteError."""
    from harness.records import contents
    from harness.report import history, study

    try:
        read = planning.load(suite, tuple(overrides))
    except SuiteError as error:
        name = suite_name(suite)
        if any("corpora." in problem for problem in error.problems) and name in history.suites(results):
            warn(f"without its text, `harness runs {name}` shows the records of {name}")
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
    shape: Annotated[
        Shape | None, option("How rows are laid out; another shape than the suite's has its own files.")
    ] = None,
    form: Annotated[
        Form | None, option("What is printed: by default a summary on a terminal, else md. All three are written.")
    ] = None,
    columns: Annotated[str, option("Print these columns only: 'test ppl, vs, params'.", metavar="NAME[,...]")] = "",
    wide: Annotated[bool, option("Print all columns and notes.", "--wide")] = False,
    compact: Annotated[
        bool, option("Print a table for one column of a paper: short cells, no intervals.", "--compact")
    ] = False,
) -> None:
    """Write the table of a suite again from its records. With --only, print those rows only."""
    found = study_of(suite, changes(overrides, seeds), results)
    if not found.records and "import" in COMMANDS and (files := _committed(found.suite.name)):
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
    figure: Annotated[
        str | None, option("Write this plot only, as PDF for a paper: forest.", "--figure", metavar="NAME")
    ] = None,
    width: Annotated[float | None, option(A_WIDTH, "--width", metavar="WIDTH", parser=inches)] = None,
    no_title: Annotated[bool, option("Draw no titles in the files of the plots.", "--no-title")] = False,
) -> None:
    """Write the plots of a suite and one web page with everything known about its trials.

    With --only, the files of the selected trials have names of their own. With --figure, one plot is written for a
    paper, and nothing else.
    """
    found = study_of(suite, changes(overrides, seeds), results)
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
