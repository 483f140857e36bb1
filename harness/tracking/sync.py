"""Writes all records of a results folder to MLflow: what `harness sync` does. MLflow is imported in the functions."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import ExecutionError, HarnessError
from harness.records import store
from harness.tracking.description import description

if TYPE_CHECKING:
    from harness.tracking.tracker import Tracker


def sync(results: Path, warn: Callable[[str], None]) -> tuple[int, int]:
    """Make MLflow's database agree with the records of a results folder.

    A database that is damaged, or was made in another folder, is renamed and replaced.

    Args:
        results: the results folder.
        warn: called with a sentence for each damaged record or database.

    Returns:
        The number of records and of suites.

    Raises:
        ExecutionError: there are no records, or MLflow cannot be imported or written.
    """
    with errors_of_mlflow("cannot be imported"):
        from harness.tracking.tracker import open_or_replace

    folders = sorted({path.parent.parent for path in (results / "runs").glob(f"*/*/{store.FILE_NAME}")})
    if not folders:
        raise ExecutionError(
            f"{results / 'runs'} holds no records: run a suite first, or name the folder with --results"
        )
    with errors_of_mlflow("cannot be written"):
        tracker = open_or_replace(results, warn)
        return sum(_sync_suite(tracker, folder, results, warn) for folder in folders), len(folders)


@contextmanager
def errors_of_mlflow(fault: str) -> Iterator[None]:
    """Turns any exception of MLflow, SQLAlchemy or Alembic within the block into an ExecutionError of one sentence.

    Args:
        fault: what is wrong with MLflow, for example 'cannot be imported'.
    """
    try:
        yield
    except HarnessError:
        raise
    except Exception as cause:
        reason = f"{type(cause).__name__}: {cause}".splitlines()[0]
        raise ExecutionError(f"MLflow {fault} ({reason}); runs and tables work without it") from cause


def _sync_suite(tracker: "Tracker", folder: Path, results: Path, warn: Callable[[str], None]) -> int:
    """Write the records of one suite; returns their number."""
    records, damaged = store.load_all(folder, [path.name for path in sorted(folder.iterdir()) if path.is_dir()])
    for sentence in damaged:
        warn(sentence)
    tracker.catch_up(folder.name, records.values(), remove_others=True)
    tracker.describe(folder.name, description(folder.name, results))
    return len(records)
