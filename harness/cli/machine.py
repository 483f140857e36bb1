"""The commands on this machine: `harness doctor`, and `sync` and `ui`, MLflow's view of the records."""

import typer

from harness.cli.options import RESULTS, Data, Results, argument, errors, option, say, warn
from harness.corpora.download import DEFAULT_DATA
from harness.plan.reader import suite_name
from harness.printable import counted


def doctor(
    results: Results = RESULTS,
    data: Data = DEFAULT_DATA,
    again: option(bool, "Repeat the measurements that are kept for this machine.", "--again") = False,
    gpu: option(bool, "Check the code for GPUs on small batches, as each trial checks it on its own.", "--gpu") = False,
) -> None:
    """Check versions, folders, disk and Ray, and describe the machine and its matrix products.

    Exit code 2, with a sentence for each problem, when something prevents `harness run` from working, or when a part
    for GPUs is wrong.
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
    """Write all records to MLflow. A database that MLflow cannot use is replaced, and kept beside the new one."""
    from harness.tracking.sync import sync as sync_records

    records, suites = sync_records(results, warn)
    say(f"{counted(records, 'record')} of {counted(suites, 'suite')} in {results / 'mlflow.db'}")


def ui(
    suite: argument(str | None, "Open the runs of this suite: its name, or its file.", metavar="SUITE") = None,
    results: Results = RESULTS,
    port: option(int, "The port to listen on.", min=1, max=65535) = 5000,
) -> None:
    """Start the MLflow UI on this machine and print the link to the suite's runs. Ctrl-C ends it."""
    from harness.tracking.ui import serve

    serve(results, port, None if suite is None else suite_name(suite))
