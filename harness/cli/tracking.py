"""`harness sync` and `ui`: MLflow's view of the records. MLflow is imported within the commands only."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from harness import records
from harness.cli.options import RESULTS, Results, console, errors
from harness.errors import ExecutionError
from harness.report import tables


def sync(results: Results = RESULTS) -> None:
    """Rebuild MLflow from the records. A database that is damaged, or was made in another folder, is set aside."""
    with _mlflow():
        from harness.execution.tracking import renewed

    folders = sorted({path.parent.parent for path in (results / "runs").glob(f"*/*/{records.FILE_NAME}")})
    if not folders:
        raise ExecutionError(
            f"{results / 'runs'} holds no records: run a suite first, or name the folder with --results"
        )
    tracker, total = renewed(results, lambda fault: errors.print(f"warning: {fault}")), 0
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
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    remote: Annotated[
        bool, typer.Option("--allow-remote", help="Let --host be one that other machines reach: no password there.")
    ] = False,
) -> None:
    """Start the MLflow UI on this machine and print the link to the suite's runs. Ctrl-C ends it."""
    with _mlflow():
        from harness.execution.ui import Address, serve

    address = Address(host=host, port=port, remote=remote)
    raise typer.Exit(serve(results, address, suite, lambda link: print(link, flush=True)))


@contextmanager
def _mlflow() -> Iterator[None]:
    """For its import, which fails with whatever a broken installation raises."""
    try:
        yield
    except Exception as cause:
        reason = f"{type(cause).__name__}: {cause}".splitlines()[0]
        raise ExecutionError(f"MLflow cannot be imported ({reason}); runs and tables do without it") from cause
