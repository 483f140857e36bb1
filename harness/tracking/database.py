"""MLflow's database as a file: one writer at a time; is it whole, free, made here? Asked of sqlite3, not of MLflow.

MLflow itself tries for minutes before it gives up on a file that is damaged or locked.
"""

import atexit
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlparse

from filelock import FileLock, Timeout

from harness.errors import ExecutionError
from harness.machine import processes
from harness.machine.scratch import scratch_prefix

DATABASE, PREVIOUS = "mlflow.db", "mlflow.db.previous"
TRIAL_TAG = "harness.trial_id"
DIGEST_TAG = "harness.record"  # the record's checksum: tells a rerun from the same record
WRITER_TAG = "harness.writer"  # who wrote the run: see harness/machine/processes.py
ARTIFACTS = "artifacts"
LOCK = ".mlflow.lock"
LOCK_SECONDS = 60  # of waiting for another driver or sync; one trial's run takes a fraction of a second
BUSY_SECONDS = 5  # of waiting for a program that holds SQLite's own lock
UNFIT = "?%"  # in an address the first begins options, the second a quoted character, for some versions of SQLAlchemy
BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")
DAMAGED = ("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_ERROR")


class UnusableDatabase(ExecutionError):
    """A database that MLflow cannot use, and `harness sync` replaces."""


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A run of MLflow's and the trial it is of. Without a digest it is half written, by somebody alive or dead."""

    run: str
    trial: str
    digest: str | None
    status: str


@contextmanager
def alone(results: Path) -> Iterator[None]:
    """The only one of our processes to touch a results folder's database.

    Raises: ExecutionError when another holds it for over a minute.
    """
    lock = results / "runs" / LOCK
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(lock, timeout=LOCK_SECONDS):
            yield
    except Timeout as cause:
        raise ExecutionError(f"{lock} has been held by another process for {LOCK_SECONDS} s") from cause


@cache
def linked(results: Path) -> Path:
    """A results folder by a path that a database's address can hold: its own, or a link to it in a temporary folder,
    which is removed when the process ends; where it is killed, by the next run under Ray. Raises ExecutionError when
    temporary folders have no such path either.
    """
    place = results.resolve()
    if not set(UNFIT) & set(str(place)):
        return place
    if set(UNFIT) & set(tempfile.gettempdir()):
        raise ExecutionError(
            f"the temporary folder {tempfile.gettempdir()} has one of {UNFIT} in its path; set TMPDIR to another"
        )
    folder = Path(tempfile.mkdtemp(prefix=f"{scratch_prefix()}{os.getpid()}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "results").symlink_to(place, target_is_directory=True)
    return folder / "results"


def exists(results: Path) -> bool:
    """Whether there is anything; a file without content is no database yet."""
    place = results / DATABASE
    return place.exists() and (not place.is_file() or place.stat().st_size > 0)


def refuse_unusable(results: Path) -> None:
    """Raises UnusableDatabase when the database is damaged, ExecutionError when it is locked or cannot be written."""
    with _opened(results) as database:
        verdict = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise UnusableDatabase(_damaged(results))


def refuse_locked(results: Path) -> None:
    """Raises ExecutionError when the database cannot be written now."""
    with _opened(results):
        pass


def made_elsewhere(results: Path) -> Path | None:
    """The results folder whose artifacts the experiments name, when it is another one: the folder was moved."""
    with _opened(results) as database:
        locations = database.execute("SELECT artifact_location FROM experiments").fetchall()
    for (location,) in locations:
        place = Path(unquote(urlparse(location).path))
        if place.parent.name == ARTIFACTS and place.parent.parent != results.resolve():
            return place.parent.parent
    return None


def left_running(results: Path) -> list[str]:
    """Trials whose MLflow run is still RUNNING although its writer is gone."""
    question = """SELECT trial.value, writer.value FROM runs
        JOIN tags AS trial ON trial.run_uuid = runs.run_uuid AND trial.key = ?
        JOIN tags AS writer ON writer.run_uuid = runs.run_uuid AND writer.key = ?
        WHERE runs.status = 'RUNNING' AND runs.lifecycle_stage = 'active'"""
    with _opened(results) as database:
        return [
            trial
            for trial, writer in database.execute(question, (TRIAL_TAG, WRITER_TAG))
            if processes.has_ended(writer)
        ]


def shown(results: Path, suite: str, trial: str | None = None) -> list[ShownRun]:
    """The active runs of a suite's trials, or of one of them. A tenth of the time that MLflow's own search takes.

    Raises: ExecutionError when the database cannot be written now.
    """
    question = """SELECT runs.run_uuid, trial.value, record.value, runs.status FROM experiments
        JOIN runs ON runs.experiment_id = experiments.experiment_id AND runs.lifecycle_stage = 'active'
        JOIN tags AS trial ON trial.run_uuid = runs.run_uuid AND trial.key = ?
        LEFT JOIN tags AS record ON record.run_uuid = runs.run_uuid AND record.key = ?
        WHERE experiments.name = ? AND (? IS NULL OR trial.value = ?)"""
    with _opened(results) as database:
        rows = database.execute(question, (TRIAL_TAG, DIGEST_TAG, suite, trial, trial))
        return [ShownRun(*row) for row in rows]


def set_aside(results: Path) -> Path:
    """Take the database out of the way; where it is now."""
    with alone(results):
        return (results / DATABASE).replace(results / PREVIOUS)


@contextmanager
def _opened(results: Path) -> Iterator[sqlite3.Connection]:
    """The database, when it is one and could be written now. Nothing is written, but for what a crash left undone."""
    place = results.resolve() / DATABASE
    try:
        with closing(_connected(place)) as database:
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


def _connected(place: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{place.as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None)


def _damaged(results: Path) -> str:
    return f"{results / DATABASE} is no SQLite database of MLflow's or is damaged"
