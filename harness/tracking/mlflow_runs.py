"""MLflow, a view of the records that can be rebuilt from them. The only module that imports it; driver only.

One experiment a suite, one flat run a trial, found by its tag `harness.trial_id`. A tracking fault never fails a trial.
"""

import logging
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
os.environ["MLFLOW_SQLALCHEMYSTORE_POOLCLASS"] = "NullPool"  # a connection kept open would write to a file set aside

from mlflow import MlflowClient
from mlflow.entities import Experiment, Run, ViewType
from mlflow.store.tracking.dbmodels import models
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NAME, MLFLOW_RUN_NOTE

from harness.machine import processes
from harness.records.record import TrialRecord
from harness.records.store import digest
from harness.tracking import database
from harness.tracking import run_content as content
from harness.tracking.database import ARTIFACTS, DATABASE, WRITER_TAG, ShownRun, UnusableDatabase

for _noisy in ("alembic", "mlflow"):  # after the import, which sets levels of its own
    logging.getLogger(_noisy).setLevel(logging.ERROR)

NEW = f"{DATABASE}.new"  # a database while it is made
ENDS = {"ok": "FINISHED", "interrupted": "KILLED"}  # a record's status -> its run's; else FAILED
MAX_NAME = 250  # characters of a run's name
AT_ONCE = 100  # records written in one transaction, while other drivers wait


class Tracker:
    """Writes records of one results folder to <results>/mlflow.db; nobody else of us does meanwhile.

    Raises: UnusableDatabase when the database there is damaged; ExecutionError when it is locked or cannot be written.
    """

    def __init__(self, results: Path):
        self.results = results.resolve()
        with database.alone(self.results):
            self.client = opened(self.results)
            self.store = SqlAlchemyStore(store_uri(self.results), (self.results / ARTIFACTS).as_uri())
            self._end_abandoned()

    def log(self, *records: TrialRecord) -> None:
        """Make the runs of records' trials show those records; nothing is written where they already do."""
        for suite in dict.fromkeys(record.suite for record in records):
            of_suite = [record for record in records if record.suite == suite]
            for start in range(0, len(of_suite), AT_ONCE):
                with self._writing():
                    self._log(suite, of_suite[start : start + AT_ONCE])

    def catch_up(self, suite: str, found: Iterable[TrialRecord]) -> None:
        """Log those of a suite's records that no run shows: whoever was to log them died before."""
        shown = {(run.digest, run.status) for run in database.shown(self.results, suite)}
        self.log(*(record for record in found if (digest(record), _end(record)) not in shown))

    def keep_only(self, suite: str, trial_ids: set[str]) -> None:
        """Delete the runs of trials that have no record any more."""
        with self._writing():
            for run in database.shown(self.results, suite):
                if run.trial not in trial_ids:
                    self.client.delete_run(run.run)

    def describe(self, suite: str, markdown: str) -> str:
        """Put a description, and the views of its runs, into a suite's experiment; returns the experiment's id."""
        with self._writing():
            experiment = self._experiment(suite)
            for name, value in {MLFLOW_RUN_NOTE: markdown, **content.views()}.items():
                if experiment.tags.get(name) != value:
                    self.client.set_experiment_tag(experiment.experiment_id, name, value)
        return experiment.experiment_id

    def _log(self, suite: str, records: list[TrialRecord]) -> None:
        shown: dict[str, list[ShownRun]] = {}
        for run in database.shown(self.results, suite, records[0].id if len(records) == 1 else None):
            shown.setdefault(run.trial, []).append(run)
        missing = []
        for record in records:
            runs = shown.get(record.id, [])
            right = [run for run in runs if _shows(run, record)][:1]
            for run in runs:
                if run not in right:
                    self.client.delete_run(run.run)
            if not right:
                missing.append(record)
        if missing:
            self._write(self._experiment(suite), missing)

    def _write(self, experiment: Experiment, records: list[TrialRecord]) -> None:
        """New runs, all whole or none: one transaction into the tables that MLflow's own calls write, which take
        eight transactions a run.
        """
        rows: dict[type, list[dict[str, Any]]] = {}
        for record in records:
            for table, some in _rows(record, experiment).items():
                rows.setdefault(table, []).extend(some)
        with self.store.ManagedSessionMaker(read_only=False) as session:
            for table, some in rows.items():
                session.bulk_insert_mappings(table, some)

    def _end_abandoned(self) -> None:
        """Runs that a writer of this host left RUNNING when it died are KILLED; logging their records replaces them."""
        experiments = [each.experiment_id for each in self.client.search_experiments()]
        for run in self._runs(*experiments, matching="attributes.status = 'RUNNING'"):
            if processes.has_ended(run.data.tags.get(WRITER_TAG, "")):
                self.client.set_terminated(run.info.run_id, "KILLED")

    def _runs(self, *experiments: str, matching: str = "") -> list[Run]:
        """All runs, page by page."""
        found = self.client.search_runs(list(experiments), matching, ViewType.ACTIVE_ONLY)
        runs = list(found)
        while found.token:
            found = self.client.search_runs(list(experiments), matching, ViewType.ACTIVE_ONLY, page_token=found.token)
            runs += found
        return runs

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with database.alone(self.results):
            database.refuse_locked(self.results)
            yield

    def _experiment(self, suite: str) -> Experiment:
        found = self.client.get_experiment_by_name(suite)
        if found is None:
            artifacts = self.results / ARTIFACTS / suite
            return self.client.get_experiment(self.client.create_experiment(suite, artifacts.as_uri()))
        if found.lifecycle_stage == "deleted":
            self.client.restore_experiment(found.experiment_id)
        return found


def renewed(results: Path, tell: Callable[[str], None]) -> Tracker:
    """A tracker for rebuilding: a database that cannot be used, or was made in another folder, is set aside first."""
    try:
        if database.exists(results) and (before := database.made_elsewhere(results)):
            raise UnusableDatabase(f"{results / DATABASE} was made for {before}")
        return Tracker(results)
    except UnusableDatabase as fault:
        tell(f"{fault}; it is kept as {database.set_aside(results)}")
        return Tracker(results)


def opened(results: Path) -> MlflowClient:
    """A client of the results folder's database, which is made whole or not at all when there is none.

    Raises: UnusableDatabase when it is damaged or this MLflow cannot use it; ExecutionError when it is locked.
    """
    place, new = results / DATABASE, results / NEW
    if not database.exists(results):
        new.unlink(missing_ok=True)
        MlflowClient(tracking_uri=_address(results, NEW)).search_experiments(max_results=1)
        new.replace(place)
    database.refuse_unusable(results)
    try:
        client = MlflowClient(tracking_uri=store_uri(results))
        client.search_experiments(max_results=1)
    except Exception as cause:  # MLflow's, SQLAlchemy's, Alembic's
        reason = f"{type(cause).__name__}: {cause}".splitlines()[0]
        raise UnusableDatabase(f"{place} cannot be used by this MLflow ({reason})") from cause
    return client


def store_uri(results: Path) -> str:
    """The address of a results folder's database."""
    return _address(results, DATABASE)


def _address(results: Path, name: str) -> str:
    return f"sqlite:///{database.linked(results) / name}"


def _shows(run: ShownRun, record: TrialRecord) -> bool:
    """Whether a run is a record's, complete to its end."""
    return run.digest == digest(record) and run.status == _end(record)


def _end(record: TrialRecord) -> str:
    return ENDS.get(record.status, "FAILED")


def _rows(record: TrialRecord, experiment: Experiment) -> dict[type, list[dict[str, Any]]]:
    """MLflow's table -> the rows that a record's run has in it; the run itself first, since the others refer to it."""
    run, name = uuid.uuid4().hex, str(record.spec)[:MAX_NAME]
    started, finished = (content.milliseconds(t) for t in (record.environment.started, record.environment.finished))
    about = {
        "name": name,
        "experiment_id": int(experiment.experiment_id),
        "artifact_uri": f"{experiment.artifact_location}/{run}/artifacts",
        "user_id": "unknown",  # as in a run of MLflow's client
        "status": _end(record),
        "start_time": started,
        "end_time": finished,
        "lifecycle_stage": "active",
    }
    tags = {**content.tags(record), WRITER_TAG: processes.current_process(), MLFLOW_RUN_NAME: name}
    points = [{**asdict(point), "timestamp": finished, "is_nan": False} for point in content.points(record)]
    latest = {point["key"]: point for point in points}  # a metric's points come in the order of their steps
    rows = {
        models.SqlRun: [about],
        models.SqlTag: [{"key": key, "value": value} for key, value in tags.items()],
        models.SqlParam: [{"key": key, "value": value} for key, value in content.params(record).items()],
        models.SqlMetric: points,
        models.SqlLatestMetric: list(latest.values()),
    }
    return {table: [{**row, "run_uuid": run} for row in some] for table, some in rows.items()}
