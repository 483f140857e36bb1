"""`harness report`: a suite's plots and its page."""

from harness import plan as planning
from harness.cli.options import RESULTS, Data, Only, Overwrite, Results, Set, SuitePath, console, errors
from harness.corpora.download import DEFAULT_DATA
from harness.report import study
from harness.tracking import database
from harness.tracking.description import description
from harness.tracking.guarded import Tracking


def report(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006 - typer copies it
    only: Only = [],  # noqa: B006
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    overwrite: Overwrite = False,
) -> None:
    """A suite's plots, and one page that shows all that is known of its trials. With --only: in files of their own."""
    read = planning.load(suite, tuple(overrides))
    made = study.load(read, results, warn=lambda sentence: errors.print(f"warning: {sentence}"))
    page, *drawn = made.write_report(overwrite, only)
    if drawn:
        plots = len({place.stem for place in drawn})
        console.print(f"plots: {drawn[0].parent} ({plots}, each as .svg and .png)", highlight=False, soft_wrap=True)
    console.print(f"page: {page}", highlight=False, soft_wrap=True)
    tracking = Tracking(results if database.exists(results) else None, errors)  # its description names these files
    tracking.call(lambda tracker: tracker.describe(read.name, description(read.name, results)))
