"""The commands on this machine: `harness doctor`, and `sync` and `ui`, MLflow's view of the records."""

from typing import Annotated

import typer

from harness.cli.options import RESULTS, Data, Results, errors, say, warn
from harness.corpora.download import DEFAULT_DATA
from harness.plan.reader import suite_name
from harness.printable import counted


def doctor(
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    again: Annotated[
        bool, typer.Option("--again", help="Repeat the measurements that are kept for this machine.")
    ] = False,
    gpu: Annotated[
        bool,
        typer.Option("--gpu", help="Check the code for GPUs on small batches, as each trial checks it on its own."),
    ] = False,
) -> None:
    """Check versions, folders, memory, MLflow and Ray, and describe the machine and its matrix products.

    Exit code 2, with a sentence for each problem, when something prevents `harness run` from working.
    """
    from harness.execution.doctor import examine

    found = examine(results, data, again=again, gpu=gpu)
    for name, value in found.values.items():
        say(f"{name + ':':16} {value}")
    for note in found.notes:
        say(f"note: {note}")
    for problem in found.problems:
        errors.print(problem)
    raise typer.Exit(2 if found.problems else 0)


def sync(results: Results = RESULTS) -> None:
    """Write all records to MLflow. A database that MLflow cannot use is replaced."""
    from harness.tracking.sync import sync as sync_records

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
    from harness.tracking.ui import serve

    name = None if suite is None else suite_name(suite)
    raise typer.Exit(serve(results, port, name, lambda link: print(link, flush=True)))
