"""`harness report`: the plots and the page of a suite."""

import re
from typing import Annotated

import typer

from harness import plan as planning
from harness.cli.options import RESULTS, Data, Only, Overwrite, Results, Set, SuitePath, say, warn
from harness.corpora.download import DEFAULT_DATA
from harness.report import study
from harness.tracking import database
from harness.tracking.sync import Tracker

NARROWEST, COLUMN, WIDEST = 2.5, 3.3, 12.0  # inches
A_WIDTH = "Of --figure: 3.3in, one column of a paper, or 178mm."
UNITS = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4}  # in inches


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
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    figure: Annotated[
        str | None, typer.Option("--figure", metavar="NAME", help="Write this plot only, as PDF for a paper: forest.")
    ] = None,
    width: Annotated[float | None, typer.Option("--width", metavar="WIDTH", parser=inches, help=A_WIDTH)] = None,
    no_title: Annotated[bool, typer.Option("--no-title", help="Draw no titles in the files of the plots.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Write the plots of a suite and one web page with everything known about its trials.

    With --only, the files of the selected trials have names of their own. With --figure, one plot is written for a
    paper, and nothing else.
    """
    found = study.load(planning.load(suite, tuple(overrides)), results, warn=warn)
    if figure is not None:
        for place in found.write_figure(figure, only, width=width or COLUMN, overwrite=overwrite):
            say(f"figure: {place}")
        return
    if width is not None:
        raise typer.BadParameter("--width is the width of a figure: name one with --figure")
    page, *plots = found.write_report(overwrite, only, titled=not no_title)
    if plots:
        say(f"plots: {plots[0].parent} ({len({place.stem for place in plots})}, each as .svg, .png and .pdf)")
    say(f"page: {page}")
    Tracker(results if database.exists(results) else None, warn).show_suite(found)  # its description names the files
