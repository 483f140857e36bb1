"""`harness sync` and `ui`: MLflow's view of the records. MLflow is imported within the commands only."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import RESULTS, Results, console, errors
from harness.errors import ExecutionError, HarnessError
from harness.records import store
from harness.tracking.description import description

if TYPE_CHECKING:
    from harness.tracking.tracker import Tracker


def sync(results: Results = RESULTS) -> None:
    """Rebuild MLflow from the records. A database that is damaged, or was made in another folder, is set aside."""
    with _mlflow("cannot be imported"):
        from harness.tracking.tracker import open_or_replace

    folders = sorted({path.parent.parent for path in (results / "runs").glob(f"*/*/{store.FILE_NAME}")})
    if not folders:
        raise ExecutionError(
            f"{results / 'runs'} holds no records: run a suite first, or name the folder with --results"
        )
    with _mlflow("cannot be written"):
        tracker = open_or_replace(results, lambda fault: errors.print(f"warning: {fault}"))
        total = sum(_sync(tracker, folder, results) for folder in folders)
    console.print(f"{total} records of {len(folders)} suites are in {results / 'mlflow.db'}", highlight=False)


def _sync(tracker: "Tracker", folder: Path, results: Path) -> int:
    """One suite's records; their number."""
    found, warnings = store.load_all(folder, [path.name for path in sorted(folder.iterdir()) if path.is_dir()])
    for warning in warnings:
        errors.print(f"warning: {warning}")
    tracker.catch_up(folder.name, found.values(), remove_others=True)
    tracker.describe(folder.name, description(folder.name, results))
    return len(found)


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
    with _mlflow("cannot be imported"):
        from harness.tracking.ui import Address, serve

    address = Address(host=host, port=port, remote=remote)
    raise typer.Exit(serve(results, address, suite, lambda link: print(link, flush=True)))


@contextmanager
def _mlflow(fault: str) -> Iterator[None]:
    """What MLflow, SQLAlchemy, Alembic and broken installations raise is a sentence too."""
    try:
        yield
    except HarnessError:
        raise
    except Exception as cause:
        reason = f"{type(cause).__name__}: {cause}".splitlines()[0]
        raise ExecutionError(f"MLflow {fault} ({reason}); runs and tables do without it") from cause
