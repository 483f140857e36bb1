"""`harness report`: the plots and the page of a suite."""

from typing import Annotated

import typer

from harness import plan as planning
from harness.cli.options import RESULTS, Data, Only, Overwrite, Results, Set, SuitePath, say, warn
from harness.corpora.download import DEFAULT_DATA
from harness.report import study
from harness.tracking import database
from harness.tracking.description import description
from harness.tracking.safe_tracker import SafeTracker


def report(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006 - typer copies it
    only: Only = [],  # noqa: B006
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    no_title: Annotated[bool, typer.Option("--no-title", help="Draw no titles in the files of the plots.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Write the plots of a suite and one web page with everything known about its trials.

    With --only, the files of the selected trials have names of their own.
    """
    found = study.load(planning.load(suite, tuple(overrides)), results, warn=warn)
    page, *plots = found.write_report(overwrite, only, titled=not no_title)
    if plots:
        say(f"plots: {plots[0].parent} ({len({place.stem for place in plots})}, each as .svg, .png and .pdf)")
    say(f"page: {page}")
    tracking = SafeTracker(results if database.exists(results) else None, warn)  # MLflow's description names the files
    tracking.call(lambda tracker: tracker.describe(found.suite.name, description(found.suite.name, results)))
