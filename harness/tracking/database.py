"""MLflow's database of a results folder: it is opened, and one process of ours writes at a time.

MLflow is imported when a database is opened, because it takes a second.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import ExecutionError
from harness.machine.locks import held

if TYPE_CHECKING:
    from mlflow import MlflowClient

DATABASE, PREVIOUS = "mlflow.db", "mlflow.db.previous"
LOCK = ".mlflow.lock"
LOCK_SECONDS = 60  # of waiting for another process that writes; one record takes a fraction of a second
NOT_IN_ADDRESS = "?%"  # '?' begins options in the address of a database, '%' a quoted character


class UnusableDatabase(ExecutionError):
    """A database that MLflow cannot open. `harness sync` sets it aside and makes another."""


def address(results: Path) -> str:
    """The address of the database for MLflow.

    Raises: ExecutionError where the folder's path cannot be part of one.
    """
    place = results.absolute() / DATABASE
    if set(NOT_IN_ADDRESS) & set(str(place)):
        raise ExecutionError(f"MLflow cannot open {place}: a path with '?' or '%' is no address of a database")
    return f"sqlite:///{place}"


def client(results: Path) -> "MlflowClient":
    """A client of the database of a results folder, which is created when there is none.

    Raises:
        UnusableDatabase: MLflow cannot open it.
        ExecutionError: as `address` and `writing`; MLflow cannot be imported.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    # An open connection would go on writing to a database file that has been renamed.
    os.environ["MLFLOW_SQLALCHEMYSTORE_POOLCLASS"] = "NullPool"
    try:
        from mlflow import MlflowClient
        from mlflow.store.db import utils
    except Exception as cause:  # of any kind, in any of its dependencies
        said = f"MLflow cannot be imported ({reason(cause)}); runs and tables work without it"
        raise ExecutionError(said) from cause
    utils.MAX_RETRY_COUNT = 1  # with its 10, a damaged database takes MLflow 100 s
    for library in ("alembic", "mlflow"):  # after the import of MLflow, which sets its own levels
        logging.getLogger(library).setLevel(logging.ERROR)
    place = address(results)
    with writing(results):
        try:
            made = MlflowClient(tracking_uri=place)
            made.search_experiments(max_results=1)
        except Exception as cause:  # of MLflow, SQLAlchemy or Alembic
            raise UnusableDatabase(f"MLflow cannot use {results / DATABASE} ({reason(cause)})") from cause
    return made


def reason(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}".splitlines()[0]


@contextmanager
def writing(results: Path) -> Iterator[None]:
    """Hold the lock that every process of ours holds while it writes a run.

    Raises: ExecutionError when another process has held it for more than LOCK_SECONDS.
    """
    lock = results / "runs" / LOCK
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with held(lock, wait=LOCK_SECONDS):
            yield
    except TimeoutError as cause:
        said = f"{lock} has not been free for {LOCK_SECONDS} s: {cause.strerror}"
        raise ExecutionError(said) from cause
