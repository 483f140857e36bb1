"""The commands of MLflow's view of the records: `harness sync` and `ui`."""

from typing import Annotated

from harness.cli.options import RESULTS, Results, argument, option, say, warn
from harness.plan.reader import suite_name
from harness.printable import counted


def sync(results: Results = RESULTS) -> None:
    """Write all records to MLflow. A database that MLflow cannot use is replaced, and kept beside the new one."""
    from harness.tracking.sync import sync as sync_records

    records, suites = sync_records(results, warn)
    say(f"{counted(records, 'record')} of {counted(suites, 'suite')} in {results / 'mlflow.db'}")


def ui(
    suite: Annotated[
        str | None, argument("Open the runs of this suite: its name, or its file.", metavar="SUITE")
    ] = None,
    results: Results = RESULTS,
    port: Annotated[int, option("The port to listen on.", min=1, max=65535)] = 5000,
) -> None:
    """Start the MLflow UI on this machine and print the link to the suite's runs. Ctrl-C ends it."""
    from harness.tracking.ui import serve

    serve(results, port, None if suite is None else suite_name(suite))
