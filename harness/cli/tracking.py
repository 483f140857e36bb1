"""`harness sync` and `ui`: MLflow's view of the records."""

from typing import Annotated

import typer

from harness.cli.options import RESULTS, Results, say, warn
from harness.plan.reader import suite_name
from harness.printable import counted
from harness.tracking.sync import errors_of_mlflow
from harness.tracking.sync import sync as sync_records


def sync(results: Results = RESULTS) -> None:
    """Write all records to MLflow. A database that is damaged, or was made in another folder, is replaced."""
    records, suites = sync_records(results, warn)
    say(f"{counted(records, 'record')} of {counted(suites, 'suite')} in {results / 'mlflow.db'}")


def ui(
    suite: Annotated[
        str | None, typer.Argument(metavar="SUITE", help="Open the runs of this suite: its name, or its file.")
    ] = None,
    results: Results = RESULTS,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 5000,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    remote: Annotated[
        bool,
        typer.Option("--allow-remote", help="Allow a --host that other machines can reach; there is no password."),
    ] = False,
) -> None:
    """Start the MLflow UI on this machine and print the link to the suite's runs. Ctrl-C ends it."""
    with errors_of_mlflow("cannot be imported"):
        from harness.tracking.ui import Address, serve

    address = Address(host=host, port=port, remote=remote)
    name = None if suite is None else suite_name(suite)
    raise typer.Exit(serve(results, address, name, lambda link: print(link, flush=True)))
