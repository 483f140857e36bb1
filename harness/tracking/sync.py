"""Shows records in MLflow, one way: a suite is an experiment, a trial is a run.

Only the driver writes, and only by `MlflowClient`, MLflow's public client. The client has no transaction for a run, so
a run is written by these calls, in this order:

    create_run       the run, with its tags
    log_batch        parameters and metrics, in as many calls as MLflow's limits require
    set_terminated   the final status
    set_tag          what the run shows: the checksum of the record

A run without this tag, or with another checksum, is deleted and written again: a process was killed while it wrote the
run, or the trial ran again.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import ExecutionError, HarnessError
from harness.printable import sentence
from harness.records import store
from harness.records.record import TrialRecord
from harness.tracking import database, fields
from harness.tracking.description import description, keep, row_names
from harness.tracking.fields import DIGEST_TAG, TRIAL_TAG, Point

if TYPE_CHECKING:
    from mlflow.entities import Experiment, Run

    from harness.report.study import Study

# With this kind the UI opens an experiment on its runs; without one, on a page for traces of language models in use.
KIND_TAG = {"mlflow.experimentKind": "custom_model_development"}
DESCRIPTION_TAG = "mlflow.note.content"  # MLflow shows this tag as the description of an experiment
MAX_PARAMS, MAX_METRICS = 100, 900  # in one call of log_batch: MLflow accepts 100 parameters, and 1,000 values in all


class Tracker:
    """Shows records while suites run. MLflow is opened when it is first needed. Its first fault is one warning, and
    nothing is shown after that: `harness sync` shows what is missing. No method raises.

    Args:
        results: the results folder; None: nothing is shown.
    """

    def __init__(self, results: Path | None, warn: Callable[[str], None]):
        self.results, self._warn = results, warn
        self._mirror: Mirror | None = None

    def show(self, record: TrialRecord) -> None:
        self._call(lambda mirror: mirror.show(record))

    def show_suite(self, found: "Study", *, written: bool = True) -> None:
        """Show all records of a suite, its outcome if its table was written, and its tables."""

        def show(mirror: "Mirror") -> None:
            if written:
                keep(found)
            mirror.show_suite(found.suite.name, list(found.records.values()))

        self._call(show)

    def _call(self, action: Callable[["Mirror"], object]) -> None:
        if self.results is None:
            return
        try:
            self._mirror = self._mirror or Mirror(self.results)
            action(self._mirror)
        # guard: tracking-fault-is-warning
        except Exception as error:  # of any kind: MLflow only shows records, so its faults must not fail a trial
            said = sentence(str(error).splitlines()[0] if isinstance(error, HarnessError) else database.reason(error))
            self._warn(f"MLflow is off from here on ({said}); `harness sync` rebuilds it later")
            self.results = None  # guard: tracking-off-after-fault


class Mirror:
    """The view that MLflow's database gives of a results folder. The database is created when needed.

    Raises: ExecutionError, here and in all methods, where `database.client` and `database.writing`
        do, and any exception of MLflow.
    """

    def __init__(self, results: Path):
        self.results = results
        self.client = database.client(results)

    def show(self, record: TrialRecord) -> None:
        """Write the run of a record, in place of all other runs of its trial, unless it shows the record already."""
        with database.writing(self.results):
            experiment, diagnosed = self._experiment(record.suite), self._diagnosed(record)
            runs = self._runs(experiment, record.id).get(record.id, [])
            if not _shows(runs, record, diagnosed):  # guard: run-not-logged-twice always
                self._delete(runs)  # guard: one-run-per-trial
                self._write(experiment, record, diagnosed)

    def show_suite(self, suite: str, records: Sequence[TrialRecord], *, remove_others: bool = False) -> None:
        """Write the runs of those records that MLflow does not show, the names of rows, the description, and views.
        `remove_others`: delete the runs of trials that have no record in `records`.
        """
        with database.writing(self.results):
            experiment = self._experiment(suite)
        runs, names = self._runs(experiment), row_names(suite, self.results)
        for record in records:
            before = runs.pop(record.id, [])
            if not _shows(before, record, self._diagnosed(record)):  # guard: missed-runs-logged
                self.show(record)  # each under a lock of its own, so that another driver never waits for long
            else:
                self._rename(before[0], record, names.get(record.id))
        if remove_others:  # guard: runs-of-others-stay always
            for others in runs.values():
                self._delete(others)
        for name, value in {
            DESCRIPTION_TAG: description(suite, self.results),
            **KIND_TAG,
            **fields.views(records),
        }.items():
            if experiment.tags.get(name) != value:
                self.client.set_experiment_tag(experiment.experiment_id, name, value)

    def _write(self, experiment: "Experiment", record: TrialRecord, diagnosed: Sequence[Point]) -> None:
        from mlflow.entities import Metric, Param

        row = row_names(record.suite, self.results).get(record.id)
        tags = {**fields.tags(record), fields.ROW_TAG: fields.row_tag(record, row)}
        started, finished = map(fields.milliseconds, (record.environment.started, record.environment.finished))
        run = self.client.create_run(experiment.experiment_id, started, tags, fields.name(record, row)).info.run_id
        params = [Param(key, value) for key, value in fields.params(record).items()]
        metrics = [Metric(each.key, each.value, finished, each.step) for each in [*fields.points(record), *diagnosed]]
        for some in zip_longest(_parts(metrics, MAX_METRICS), _parts(params, MAX_PARAMS), fillvalue=()):
            self.client.log_batch(run, *some)
        self.client.set_terminated(run, "FINISHED" if record.status == "ok" else "FAILED", finished)
        self.client.set_tag(run, DIGEST_TAG, fields.shown_as(record, diagnosed))

    def _rename(self, run: "Run", record: TrialRecord, row: str | None) -> None:
        name, tag = fields.name(record, row), fields.row_tag(record, row)
        if (run.info.run_name, run.data.tags.get(fields.ROW_TAG)) != (name, tag):
            self.client.set_tag(run.info.run_id, fields.ROW_TAG, tag)
            self.client.update_run(run.info.run_id, name=name)

    def _delete(self, runs: Iterable["Run"]) -> None:
        for run in runs:
            self.client.delete_run(run.info.run_id)

    def _diagnosed(self, record: TrialRecord) -> list[Point]:
        return fields.diagnosed_points(store.runs_folder(self.results, record.suite), record)

    def _runs(self, experiment: "Experiment", trial: str | None = None) -> dict[str, list["Run"]]:
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

    def _experiment(self, suite: str) -> "Experiment":
        """The experiment of a suite: created when there is none, restored when a user deleted it."""
        found = self.client.get_experiment_by_name(suite)
        if found is None:
            return self.client.get_experiment(self.client.create_experiment(suite, f"mlflow-artifacts:/{suite}"))
        if found.lifecycle_stage == "deleted":
            self.client.restore_experiment(found.experiment_id)
        return found


def sync(results: Path, warn: Callable[[str], None]) -> tuple[int, int]:
    """Make MLflow's database agree with the records of a results folder: what `harness sync` does. A database that
    MLflow cannot open is set aside, and another one made.

    Returns: the number of records and of suites.
    Raises: ExecutionError: there are no records, or MLflow cannot be imported or written.
    """
    suites = sorted({path.parent.parent for path in (results / "runs").glob(f"*/*/{store.FILE_NAME}")})
    if not suites:
        raise ExecutionError(
            f"{results / 'runs'} holds no records: run a suite first, or name the folder with --results"
        )
    number = 0
    try:
        try:
            mirror = Mirror(results)
        except database.UnusableDatabase as fault:
            kept = (results / database.DATABASE).replace(results / database.PREVIOUS)
            warn(f"{fault}; it is kept as {kept}, and a new one is written from the records")
            mirror = Mirror(results)
        for folder in suites:
            records, damaged = store.load_all(folder, [path.name for path in sorted(folder.iterdir()) if path.is_dir()])
            for said in damaged:
                warn(said)
            mirror.show_suite(folder.name, list(records.values()), remove_others=True)
            number += len(records)
    except HarnessError:
        raise
    except Exception as cause:  # exceptions of MLflow, SQLAlchemy or Alembic
        said = f"MLflow cannot be written ({database.reason(cause)}); runs and tables work without it"
        raise ExecutionError(said) from cause
    return number, len(suites)


def _shows(runs: Sequence["Run"], record: TrialRecord, diagnosed: Sequence[Point]) -> bool:
    """Whether the runs of a trial are one run, which shows this record and its diagnostics."""
    # guard: run-digest run.data.tags.get(DIGEST_TAG) -> fields.shown_as(record, diagnosed)
    return [run.data.tags.get(DIGEST_TAG) for run in runs] == [fields.shown_as(record, diagnosed)]


def _parts(values: list, size: int) -> list[list]:
    return [values[start : start + size] for start in range(0, len(values), size)]
