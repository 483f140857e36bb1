"""Shows records in MLflow: one experiment per suite, one run per trial. The only module that imports MLflow.

Only the driver writes to MLflow, and only through `MlflowClient`, MLflow's public Python client. The client has no
transaction for a whole run, so a run is written by these calls, in this order:

    create_run       the run, with status RUNNING and all tags
    log_batch        parameters and metrics, in as many calls as MLflow's limits require
    set_terminated   the final status: the run is complete

A process that is killed between two calls leaves a run with status RUNNING. Such a run is deleted and written again
when its record is logged the next time, by `harness run` or `harness sync`.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
# No connection stays open: an open connection would write to a database file that has been renamed.
os.environ["MLFLOW_SQLALCHEMYSTORE_POOLCLASS"] = "NullPool"

from mlflow import MlflowClient
from mlflow.entities import Experiment, Metric, Param, Run

from harness.machine import processes
from harness.records import store
from harness.records.record import TrialRecord
from harness.tracking import database, diagnosed_metrics, run_fields, saved_views
from harness.tracking.database import ARTIFACTS, DATABASE, DIGEST_TAG, TRIAL_TAG, WRITER_TAG, UnusableDatabase
from harness.tracking.run_fields import Point

for _library in ("alembic", "mlflow"):  # after the import of MLflow, which sets its own levels
    logging.getLogger(_library).setLevel(logging.ERROR)

NEW_DATABASE = f"{DATABASE}.new"  # the name of a database until MLflow has created all of its tables
DESCRIPTION_TAG = "mlflow.note.content"  # MLflow shows this tag as the description of an experiment
MAX_PARAMS, MAX_METRICS = 100, 900  # in one call of log_batch: MLflow accepts 100 parameters, and 1,000 values in all


class Tracker:
    """Writes the records of one results folder to <results>/mlflow.db. Only one of our processes writes at a time.

    Args:
        results: the results folder. Its database is created when it does not exist.

    Raises:
        UnusableDatabase: the database is damaged, or this version of MLflow cannot use it.
        ExecutionError: the database is locked or cannot be written.
    """

    def __init__(self, results: Path):
        self.results = results.resolve()
        with database.single_writer(self.results):
            self.client = open_client(self.results)

    def log(self, record: TrialRecord) -> None:
        """Write the run of a record, in place of all other runs of its trial.

        Nothing is written when the run of the trial already shows this record and its diagnostics. Raises
        ExecutionError when the database is locked.
        """
        with self._writing():
            self._log(record, self._experiment(record.suite))

    def catch_up(self, suite: str, records: Iterable[TrialRecord], *, remove_others: bool = False) -> None:
        """Write the runs of those records that MLflow does not show completely. The runs are listed once.

        Args:
            suite: the suite of all these records.
            records: at most one record per trial.
            remove_others: delete the runs of trials that have no record in `records`.

        Raises:
            ExecutionError: the database is locked.
        """
        with self._writing():
            experiment = self._experiment(suite)
        runs, logged = self._runs(experiment), set()
        for record in records:
            logged.add(record.id)
            if not _shows(runs.get(record.id, []), record, self._diagnosed(record)):  # guard: missed-runs-logged
                with self._writing():  # for each record, so that another driver never waits for long
                    self._log(record, experiment)
        for trial in (runs.keys() - logged) if remove_others else ():  # guard: runs-of-others-stay always
            with self._writing():
                self._delete(runs[trial])

    def describe(self, suite: str, markdown: str) -> str:
        """Set the description and the saved views of a suite's experiment. Returns the id of the experiment."""
        with self._writing():
            experiment = self._experiment(suite)
            for name, value in {DESCRIPTION_TAG: markdown, **saved_views.tags()}.items():
                if experiment.tags.get(name) != value:
                    self.client.set_experiment_tag(experiment.experiment_id, name, value)
        return experiment.experiment_id

    def _log(self, record: TrialRecord, experiment: Experiment) -> None:
        runs, diagnosed = self._runs(experiment, record.id).get(record.id, []), self._diagnosed(record)
        if not _shows(runs, record, diagnosed):  # guard: run-not-logged-twice always
            self._delete(runs)  # guard: one-run-per-trial
            self._write(record, experiment, diagnosed)

    def _diagnosed(self, record: TrialRecord) -> list[Point]:
        return diagnosed_metrics.diagnosed_points(store.runs_folder(self.results, record.suite), record)

    def _write(self, record: TrialRecord, experiment: Experiment, diagnosed: Sequence[Point] = ()) -> None:
        started, finished = map(run_fields.milliseconds, (record.environment.started, record.environment.finished))
        tags = {**run_fields.tags(record), DIGEST_TAG: _shown_as(record, diagnosed)}
        tags[WRITER_TAG] = processes.current_process()
        run = self.client.create_run(experiment.experiment_id, started, tags, run_fields.name(record)).info.run_id
        params = [Param(key, value) for key, value in run_fields.params(record).items()]
        points = [*run_fields.points(record), *diagnosed]
        metrics = [Metric(point.key, point.value, finished, point.step) for point in points]
        parts = zip_longest(_parts(metrics, MAX_METRICS), _parts(params, MAX_PARAMS), fillvalue=())
        for some_metrics, some_params in parts:
            self.client.log_batch(run, some_metrics, some_params)
        self.client.set_terminated(run, _final_status(record), finished)

    def _delete(self, runs: list[Run]) -> None:
        for run in runs:
            self.client.delete_run(run.info.run_id)

    def _runs(self, experiment: Experiment, trial: str | None = None) -> dict[str, list[Run]]:
        """Trial id -> its runs, of all trials of an experiment or of one. Runs that a user added are left out."""
        question = "" if trial is None else f"tags.`{TRIAL_TAG}` = '{trial}'"
        found: dict[str, list[Run]] = {}
        page = self.client.search_runs([experiment.experiment_id], question)
        runs = list(page)
        while page.token:  # guard: all-pages-of-runs
            page = self.client.search_runs([experiment.experiment_id], question, page_token=page.token)
            runs += page
        for run in runs:
            if TRIAL_TAG in run.data.tags:  # guard: runs-of-users-stay always
                found.setdefault(run.data.tags[TRIAL_TAG], []).append(run)
        return found

    def _experiment(self, suite: str) -> Experiment:
        """The experiment of a suite: created when there is none, restored when a user deleted it."""
        found = self.client.get_experiment_by_name(suite)
        if found is None:
            artifacts = self.results / ARTIFACTS / suite
            return self.client.get_experiment(self.client.create_experiment(suite, artifacts.as_uri()))
        if found.lifecycle_stage == "deleted":
            self.client.restore_experiment(found.experiment_id)
        return found

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with database.single_writer(self.results):
            database.refuse_locked(self.results)  # guard: mlflow-not-locked
            yield


def open_or_replace(results: Path, warn: Callable[[str], None]) -> Tracker:
    """A tracker for `harness sync`. A database that cannot be used, or that was made in another folder, is renamed
    first, and an empty one is created in its place.

    Args:
        results: the results folder.
        warn: receives a sentence that says why the database was renamed.

    Raises:
        ExecutionError: the database is locked or cannot be written.
    """
    try:
        # guard: mlflow-moved -> before := ""
        if database.exists(results) and (before := database.made_elsewhere(results)):
            raise UnusableDatabase(f"{results / DATABASE} was made for {before}")
        return Tracker(results)
    except UnusableDatabase as fault:
        warn(f"{fault}; it is kept as {database.set_aside(results)}")
        return Tracker(results)


def open_client(results: Path) -> MlflowClient:
    """A client of the database of a results folder. A missing database is created under another name and renamed when
    it is complete, so that a killed process leaves no database without tables.

    Raises:
        UnusableDatabase: the database is damaged, or this version of MLflow cannot use it.
        ExecutionError: the database is locked or cannot be written.
    """
    place, new = results / DATABASE, results / NEW_DATABASE  # guard: mlflow-made-whole NEW_DATABASE -> DATABASE
    if not database.exists(results):
        new.unlink(missing_ok=True)
        MlflowClient(tracking_uri=_uri(results, NEW_DATABASE)).search_experiments(max_results=1)
        new.replace(place)
    database.refuse_unusable(results)  # guard: mlflow-usable
    try:
        client = MlflowClient(tracking_uri=store_uri(results))
        client.search_experiments(max_results=1)
    except Exception as cause:  # exceptions of MLflow, SQLAlchemy or Alembic
        reason = f"{type(cause).__name__}: {cause}".splitlines()[0]
        raise UnusableDatabase(f"{place} cannot be used by this version of MLflow ({reason})") from cause
    return client


def store_uri(results: Path) -> str:
    """The tracking URI of the database of a results folder."""
    return _uri(results, DATABASE)


def _uri(results: Path, name: str) -> str:
    return f"sqlite:///{database.path_for_uri(results) / name}"


def _shows(runs: list[Run], record: TrialRecord, diagnosed: Sequence[Point]) -> bool:
    """Whether the runs of a trial are one run, which shows this record and its diagnostics, and is complete."""
    # guard: run-ended run.info.status -> _final_status(record)
    # guard: run-digest run.data.tags.get(DIGEST_TAG) -> digest(record)
    return [(run.data.tags.get(DIGEST_TAG), run.info.status) for run in runs] == [
        (_shown_as(record, diagnosed), _final_status(record))
    ]


def _shown_as(record: TrialRecord, diagnosed: Sequence[Point]) -> str:
    return run_fields.shown_as(record, diagnosed_metrics.checksum(diagnosed) if diagnosed else "")


def _final_status(record: TrialRecord) -> str:
    return "FINISHED" if record.status == "ok" else "FAILED"


def _parts(values: list, size: int) -> list[list]:
    return [values[start : start + size] for start in range(0, len(values), size)]
