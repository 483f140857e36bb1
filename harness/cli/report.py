"""`harness report`: a suite's plots and its page."""

import hashlib
from dataclasses import replace

from harness import plan as planning
from harness.cli.options import RESULTS, Data, Only, Overwrite, Results, Set, SuitePath, console, errors
from harness.corpora.download import DEFAULT_DATA
from harness.errors import RecordError
from harness.report.evidence.gather import gather
from harness.report.table import suite_table
from harness.tracking import database
from harness.tracking.description import description
from harness.tracking.safe_tracker import SafeTracker


def report(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006 - typer copies it
    only: Only = [],  # noqa: B006
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    overwrite: Overwrite = False,
) -> None:
    """A suite's plots, and one page that shows all that is known of its trials. With --only: in files of their own."""
    from harness.report import outputs
    from harness.report.figures import plots
    from harness.report.page import document

    read = planning.load(suite, tuple(overrides))
    chosen = {trial.id for trial in planning.select(read.trials, tuple(only))}
    evidence = gather(read, results, lambda sentence: errors.print(f"warning: {sentence}"))
    if not chosen & evidence.records.keys():
        raise RecordError(f"{evidence.runs} has no record of these trials; `harness run {suite}` makes them")
    table, name = suite_table.of_trials(suite_table.build(evidence), chosen), suite_table.stem(read)
    if only:
        table = replace(table, title=f"{table.title}; ONLY {' or '.join(only)}")
        name += f".only-{hashlib.sha256(repr(sorted(only)).encode()).hexdigest()[:8]}"
    drawn = plots.draw(evidence, table.title, chosen)
    folder, place = results / "plots" / name, results / "reports" / f"{name}.html"
    files, gone = plots.files_of(drawn, folder)
    outputs.write({place: document.render(evidence, table, drawn).encode(), **files}, gone=gone, overwrite=overwrite)
    for plot in drawn:
        if isinstance(plot, plots.LeftOut):
            errors.print(f"no plot '{plot.title}': {plot.reason}")
    made = sum(isinstance(plot, plots.Plot) for plot in drawn)
    console.print(f"plots: {folder} ({made}, each as .svg and .png)", highlight=False, soft_wrap=True)
    console.print(f"page: {place}", highlight=False, soft_wrap=True)
    tracking = SafeTracker(results if database.exists(results) else None, errors)  # its description names these files
    tracking.call(lambda tracker: tracker.describe(read.name, description(read.name, results)))
