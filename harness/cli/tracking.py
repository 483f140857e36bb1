"""`harness sync` and `ui`: MLflow's view of the records."""

from typing import Annotated

import typer

from harness.cli.options import RESULTS, Results, say, warn
from harness.plan.reader import suite_name
from harness.printable import counted
from harness.tracking.sync import sync as sync_records
from harness.tracking.ui import serve


def sync(results: Results = RESULTS) -> None:
    """Write all records to MLflow. A database that MLflow cannot use is replaced."""
    records, suites = sync_records(results, warn)
    say(f"{counted(records, 'record')} of {counted(suites, 'suite')} in {results / 'mlflow.db'}")


def ui(
    suite: Annotated[
        str | None, typer.Argument(metavar="SUITE", help="Open the runs of this suite: its name, or its file.")
    ] = None,
    results: Results = RESULTS,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 5000,
) -> None:
    """Start the MLflow UI on this machine and print the link to the suite's runs. Ctrl-C ends it."""
    name = None if suite is None else suite_name(suite)
    raise typer.Exit(serve(results, port, name, lambda link: print(link, flush=True)))
