"""MLflow's database of a results folder: one writer at a time, and a file that MLflow cannot use is set aside.

SQLite is asked before MLflow is: on a damaged or locked file MLflow tries again for minutes. MLflow is imported when a
database is opened, because it takes a second.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from harness.errors import ExecutionError
from harness.machine.files import write_atomically
from harness.machine.locks import held

if TYPE_CHECKING:
    from mlflow import MlflowClient

DATABASE, PREVIOUS = "mlflow.db", "mlflow.db.previous"
ARTIFACTS = "artifacts"  # of the results folder: files that MLflow's UI shows
LOCK = ".mlflow.lock"
LOCK_SECONDS = 60  # of waiting for another process that writes; one record takes a fraction of a second
BUSY_SECONDS = 5  # of waiting for a program that holds SQLite's own lock
NOT_IN_ADDRESS = "?%"  # '?' begins options in the address of a database, '%' a quoted character
BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")
DAMAGED = ("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_ERROR")


class UnusableDatabase(ExecutionError):
    """A database that MLflow cannot use. `harness run` and `harness sync` set it aside."""


def exists(results: Path) -> bool:
    """Whether a results folder has a database. An empty file counts as none."""
    place = results / DATABASE
    return place.exists() and (not place.is_file() or place.stat().st_size > 0)


def address(results: Path) -> str:
    """The address of the database for MLflow. Raises ExecutionError where the folder's path cannot be part of one."""
    place = results.absolute() / DATABASE
    if set(NOT_IN_ADDRESS) & set(str(place)):  # guard: path-in-address
        raise ExecutionError(f"MLflow cannot open {place}: a path with '?' or '%' is no address of a database")
    return f"sqlite:///{place}"


@contextmanager
def writing(results: Path) -> Iterator[None]:
    """Hold the lock that every process of ours holds while it writes to a database that exists.

    Raises:
        UnusableDatabase: the database is damaged.
        ExecutionError: another process has held the lock for more than LOCK_SECONDS; another program has locked the
            database; it cannot be written.
    """
    with _one_writer(results):
        probe(results)  # guard: mlflow-not-locked
        yield


def probe(results: Path, *, whole: bool = False) -> None:
    """Check that the database could be written; nothing is. `whole`: read all of it, too. Raises as `writing` does."""
    uri, shown = f"{(results.resolve() / DATABASE).as_uri()}?mode=rw", results / DATABASE
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("ROLLBACK")
            sound = not whole or database.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
    except sqlite3.DatabaseError as fault:
        name = getattr(fault, "sqlite_errorname", "")
        if not name.startswith(DAMAGED):
            said = "is locked by another program" if name.startswith(BUSY) else f"cannot be opened ({fault})"
            raise ExecutionError(f"{shown} {said}") from fault
        sound = False
    if not sound:
        raise UnusableDatabase(f"{shown} is damaged, or is not an SQLite database of MLflow")


def client(results: Path) -> "MlflowClient":
    """A client of the database of a results folder. MLflow creates the database when there is none.

    Raises:
        UnusableDatabase: the database is damaged, or this version of MLflow cannot use it.
        ExecutionError: as `writing` and `address`; MLflow cannot be imported.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    # No connection stays open: an open connection would write to a database file that has been renamed.
    os.environ["MLFLOW_SQLALCHEMYSTORE_POOLCLASS"] = "NullPool"
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError
    except Exception as cause:  # of any kind, in any of its dependencies
        raise ExecutionError(f"MLflow cannot be imported ({reason(cause)}); runs and tables work without it") from cause
    for library in ("alembic", "mlflow"):  # after the import of MLflow, which sets its own levels
        logging.getLogger(library).setLevel(logging.ERROR)
    place = address(results)
    if exists(results):
        probe(results, whole=True)  # guard: mlflow-usable
    else:  # by an address that is not used twice: MLflow makes tables when a process uses an address for the first time
        with TemporaryDirectory() as folder:
            new = Path(folder)  # guard: mlflow-made-whole Path(folder) -> results
            MlflowClient(tracking_uri=address(new)).search_experiments(max_results=1)
            write_atomically(results / DATABASE, (new / DATABASE).read_bytes())
    try:
        made = MlflowClient(tracking_uri=place)
        made.search_experiments(max_results=1)
    except (MlflowException, SQLAlchemyError) as cause:
        said = f"{results / DATABASE} cannot be used by this version of MLflow ({reason(cause)})"
        raise UnusableDatabase(said) from cause
    return made


def open_or_replace(results: Path, warn: Callable[[str], None]) -> "MlflowClient":
    """A client of the database. One that MLflow cannot use is renamed first, and an empty one created in its place.
    Raises ExecutionError as `client`.
    """
    with _one_writer(results):  # a database is created by one process
        try:
            return client(results)
        except UnusableDatabase as fault:
            kept = (results / DATABASE).replace(results / PREVIOUS)
            warn(f"{fault}; it is kept as {kept}, and `harness sync` writes all records to a new one")
        return client(results)


def reason(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}".splitlines()[0]


@contextmanager
def _one_writer(results: Path) -> Iterator[None]:
    lock = results / "runs" / LOCK
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with held(lock, wait=LOCK_SECONDS):  # guard: mlflow-one-writer
            yield
    except TimeoutError as cause:
        raise ExecutionError(f"{lock} has not been free for {LOCK_SECONDS} s: {cause.strerror}") from cause
