"""The file of MLflow's database: whether it is complete, writable and made for this folder; one writer at a time.

This module only reads, and asks SQLite rather than MLflow: on a damaged or locked file MLflow tries again for minutes.
"""

import atexit
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlparse

from filelock import FileLock, Timeout

from harness.errors import ExecutionError
from harness.machine import processes
from harness.machine.processes import scratch_prefix

DATABASE, PREVIOUS = "mlflow.db", "mlflow.db.previous"
TRIAL_TAG = "harness.trial_id"
DIGEST_TAG = "harness.record"  # the checksum of the record that a run shows
WRITER_TAG = "harness.writer"  # the process that wrote the run: see harness/machine/processes.py
ARTIFACTS = "artifacts"
LOCK = ".mlflow.lock"
LOCK_SECONDS = 60  # of waiting for another process that writes; one record takes a fraction of a second
BUSY_SECONDS = 5  # of waiting for a program that holds SQLite's own lock
NOT_IN_URI = "?%"  # '?' begins the options of a URI, and some versions of SQLAlchemy read '%' as a quoted character
BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")
DAMAGED = ("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_ERROR")


class UnusableDatabase(ExecutionError):
    """A database that MLflow cannot use. `harness sync` replaces it."""


@contextmanager
def single_writer(results: Path) -> Iterator[None]:
    """Hold the lock that every process of ours holds while it writes to the database of a results folder.

    Raises:
        ExecutionError: another process has held the lock for more than LOCK_SECONDS.
    """
    lock = results / "runs" / LOCK
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(lock, timeout=LOCK_SECONDS):  # guard: mlflow-one-writer
            yield
    except Timeout as cause:
        raise ExecutionError(f"{lock} has been held by another process for {LOCK_SECONDS} s") from cause


@cache
def path_for_uri(results: Path) -> Path:
    """A path of a results folder that can be part of a database URI: its own path, or a link to it.

    The link lies in a temporary folder, which is removed when the process ends, or, after a kill, by the next run
    under Ray.

    Raises:
        ExecutionError: the path of the temporary folder cannot be part of a URI either.
    """
    place = results.resolve()
    if not set(NOT_IN_URI) & set(str(place)):  # guard: uri-of-any-name always
        return place
    if set(NOT_IN_URI) & set(tempfile.gettempdir()):
        raise ExecutionError(
            f"the temporary folder {tempfile.gettempdir()} has one of {NOT_IN_URI} in its path; set TMPDIR to another"
        )
    folder = Path(tempfile.mkdtemp(prefix=f"{scratch_prefix()}{os.getpid()}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "results").symlink_to(place, target_is_directory=True)
    return folder / "results"


def exists(results: Path) -> bool:
    """Whether a results folder has a database. An empty file counts as none."""
    place = results / DATABASE
    return place.exists() and (not place.is_file() or place.stat().st_size > 0)


def refuse_unusable(results: Path) -> None:
    """Check the content of the whole database.

    Raises:
        UnusableDatabase: the database is damaged.
        ExecutionError: the database is locked or cannot be written.
    """
    with _opened(results) as database:
        result = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if result != "ok":
        raise UnusableDatabase(_damaged(results))


def refuse_locked(results: Path) -> None:
    """Check that the database can be written now. Raises ExecutionError when it cannot."""
    with _opened(results):
        pass


def made_elsewhere(results: Path) -> Path | None:
    """The results folder that the database was made for, when it is another one: the folder was moved or copied.
    Otherwise None.
    """
    with _opened(results) as database:
        locations = database.execute("SELECT artifact_location FROM experiments").fetchall()
    for (location,) in locations:
        place = Path(unquote(urlparse(location).path))
        if place.parent.name == ARTIFACTS and place.parent.parent != results.resolve():
            return place.parent.parent
    return None


def left_running(results: Path) -> list[str]:
    """The trials whose MLflow run is incomplete because its writer was killed."""
    question = """SELECT trial.value, writer.value FROM runs
        JOIN tags AS trial ON trial.run_uuid = runs.run_uuid AND trial.key = ?
        JOIN tags AS writer ON writer.run_uuid = runs.run_uuid AND writer.key = ?
        WHERE runs.status = 'RUNNING' AND runs.lifecycle_stage = 'active'"""
    with _opened(results) as database:
        return [
            trial
            for trial, writer in database.execute(question, (TRIAL_TAG, WRITER_TAG))
            if processes.has_ended(writer)  # guard: run-of-living-writer processes.has_ended(writer) -> True
        ]


def set_aside(results: Path) -> Path:
    """Rename the database to mlflow.db.previous. Returns the new path."""
    with single_writer(results):
        return (results / DATABASE).replace(results / PREVIOUS)


@contextmanager
def _opened(results: Path) -> Iterator[sqlite3.Connection]:
    """The database, after a check that it could be written now. Nothing is written, except what SQLite itself must
    undo after a crash.
    """
    place = results.resolve() / DATABASE
    try:
        with closing(_connect(place)) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("ROLLBACK")
            yield database
    except sqlite3.DatabaseError as fault:
        name = getattr(fault, "sqlite_errorname", "")
        if name.startswith(BUSY):
            raise ExecutionError(f"{place} is locked by another program") from fault
        if name.startswith(DAMAGED):
            raise UnusableDatabase(_damaged(results)) from fault
        raise ExecutionError(f"{place} cannot be opened ({fault})") from fault


def _connect(place: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{place.as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None)


def _damaged(results: Path) -> str:
    return f"{results / DATABASE} is damaged, or is not an SQLite database of MLflow"
