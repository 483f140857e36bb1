"""`harness report`: a suite's plots and its page."""

from harness import plan as planning
from harness.cli.options import RESULTS, Data, Results, Set, SuitePath, console, errors
from harness.corpora.download import DEFAULT_DATA
from harness.errors import RecordError
from harness.report import tables
from harness.report.evidence import gather


def report(
    suite: SuitePath,
    overrides: Set = [],  # noqa: B006 - typer copies it
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
) -> None:
    """A suite's plots, and one page that shows all that is known of its trials, from their records."""
    from harness.report import page, plots  # here: matplotlib takes a second to import

    read = planning.load(suite, tuple(overrides))
    evidence = gather(read, results, lambda sentence: errors.print(f"warning: {sentence}"))
    if not evidence.records:
        raise RecordError(f"{evidence.runs}: no record of {read.name}'s trials; `harness run` makes them")
    table = tables.build(evidence)
    drawn = plots.draw(evidence, table.title)
    folder, place = plots.folder(evidence, results), page.place_of(evidence, results)
    plots.write(drawn, folder)
    page.write(page.render(evidence, table, drawn), place)
    for plot in drawn:
        if isinstance(plot, plots.LeftOut):
            errors.print(f"no plot '{plot.title}': {plot.reason}")
    made = sum(isinstance(plot, plots.Plot) for plot in drawn)
    console.print(f"plots: {folder} ({made}, each as .svg and .png)", highlight=False, soft_wrap=True)
    console.print(f"page: {place}", highlight=False, soft_wrap=True)
