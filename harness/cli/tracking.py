"""`harness sync` and `ui`: MLflow's view of the records. MLflow is imported within the commands only."""

from typing import Annotated

import typer

from harness import records
from harness.cli.options import RESULTS, Results, console, errors
from harness.errors import ExecutionError
from harness.report import tables


def sync(results: Results = RESULTS) -> None:
    """Rebuild MLflow from the records."""
    from harness.execution.tracking import Tracker

    folders = sorted({path.parent.parent for path in (results / "runs").glob(f"*/*/{records.FILE_NAME}")})
    if not folders:
        raise ExecutionError(
            f"{results / 'runs'} holds no records: run a suite first, or name the folder with --results"
        )
    tracker, total = Tracker(results), 0
    for folder in folders:
        found, warnings = records.load_all(folder, [path.name for path in sorted(folder.iterdir()) if path.is_dir()])
        for warning in warnings:
            errors.print(f"warning: {warning}")
        for record in found.values():
            tracker.log(record)
        tracker.keep_only(folder.name, set(found))
        total += len(found)
        tracker.describe(folder.name, tables.all_of(folder.name, results))
    console.print(f"{total} records of {len(folders)} suites are in {results / 'mlflow.db'}", highlight=False)


def ui(
    suite: Annotated[str | None, typer.Argument(help="Open this suite's runs.")] = None,
    results: Results = RESULTS,
    port: Annotated[int, typer.Option(min=1, max=65535)] = 5000,
) -> None:
    """Start the MLflow UI on 127.0.0.1 and print the link to the suite's runs. Ctrl-C ends it."""
    from harness.execution.tracking import serve

    raise typer.Exit(serve(results, port, suite, lambda link: print(link, flush=True)))
